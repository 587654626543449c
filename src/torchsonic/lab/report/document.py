"""The content of a report, independent of its format: headings, prose, tables, figures, warnings and origins.

A page is a function that takes results and returns a :class:`Document`. The modules ``html``, ``markdown`` and
``console`` show any document, and ``files`` writes it; none of them knows what it is about.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby
from typing import Any, Literal, Union

NONE = "\u2013"
"""What a cell without a value shows."""
MINUS = "\u2212"


@dataclass(frozen=True)
class Code:
    """A command or a path, set as code."""

    text: str


Text = str | tuple["str | Code", ...]
"""One line of prose; nothing in a string is markup."""
Mark = Literal["", "best", "better", "much better", "worse", "much worse", "alarm"]


@dataclass(frozen=True)
class Prose:
    """A paragraph; a finding is a key result, a remark is small print."""

    text: Text
    look: Literal["plain", "finding", "remark"] = "plain"


@dataclass(frozen=True)
class Items:
    """A list."""

    items: Sequence[Text]


@dataclass(frozen=True)
class Cell:
    """A value, a note in smaller type such as an interval, and how it is highlighted."""

    text: str
    note: str = ""
    mark: Mark = ""
    link: str = ""
    """Anchor of a section."""

    @property
    def bracketed(self) -> str:
        """The note as it follows the value on a line."""
        return self.note if not self.note or self.note.startswith("±") else f"({self.note})"


@dataclass(frozen=True)
class Column:
    """A column heading; adjacent columns of one group share a heading above."""

    title: str
    group: str = ""

    @property
    def full(self) -> str:
        return f"{self.group}, {self.title}" if self.group else self.title


@dataclass(frozen=True)
class Group:
    """A heading between the rows of a table."""

    title: str


@dataclass(frozen=True)
class Table:
    """Rows of cells; every renderer prints the same words.

    Parameters
    ----------
    title
        Title, shown unless it is that of the section.
    left
        Number of leading columns with text, which are left-aligned.
    note
        What the notes of cells are; the CSV has separate columns for them.
    legend
        What the colours of better and worse cells mean; shown where there are colours.
    """

    title: str
    headers: Sequence[str | Column]
    rows: Sequence[Group | Sequence[str | Cell]]
    notes: Sequence[Text] = ()
    left: int = 1
    note: str = "interval"
    legend: str = ""

    @property
    def columns(self) -> list[Column]:
        return [Column(header) if isinstance(header, str) else header for header in self.headers]

    @property
    def spans(self) -> list[tuple[str, list[Column]]]:
        """Columns by their group, from left to right."""
        return [(group, list(members)) for group, members in groupby(self.columns, key=lambda column: column.group)]

    @property
    def ends(self) -> list[int]:
        """Places of the columns that end a group."""
        counts = list(accumulate(len(members) for _, members in self.spans))
        return [count - 1 for count, (group, _) in zip(counts, self.spans, strict=True) if group]

    @property
    def lines(self) -> list[Group | list[Cell]]:
        return [
            row if isinstance(row, Group) else [Cell(cell) if isinstance(cell, str) else cell for cell in row]
            for row in self.rows
        ]

    def to_csv(self) -> str:
        """Comma-separated values: numbers as numbers, notes in columns of their own, groups of rows in the first."""
        lines = [line for line in self.lines if not isinstance(line, Group)]
        noted = [any(line[place].note for line in lines) for place in range(len(self.columns))]
        grouped = len(lines) < len(self.rows)
        head = ["group"] if grouped else []
        for column, has_notes in zip(self.columns, noted, strict=True):
            head += [column.full, f"{column.full}, {self.note}"] if has_notes else [column.full]
        buffer, group = io.StringIO(), ""
        writer = csv.writer(buffer, lineterminator="\n")
        writer.writerow(head)
        for line in self.lines:
            if isinstance(line, Group):
                group = line.title
                continue
            pairs = zip(line, noted, strict=True)
            words = [
                "" if text in (NONE, "-") else text.replace(MINUS, "-")
                for cell, has_notes in pairs
                for text in ((cell.text, cell.note) if has_notes else (cell.text,))
            ]
            writer.writerow([*([group] if grouped else []), *words])
        return buffer.getvalue()


@dataclass(frozen=True)
class Figure:
    """A picture, its alternative text, and its caption."""

    name: str
    """Of its file, within the report's folder and without its ending."""
    title: str
    caption: str
    data: bytes
    kind: str = "png"
    wide: bool = True
    """Whether to scroll rather than shrink it on a narrow screen."""

    @property
    def file(self) -> str:
        return f"{self.name}.{self.kind}"


Block = Union[Prose, Items, Table, Figure, "Section", str]
"""A string is a plain paragraph."""


@dataclass(frozen=True)
class Section:
    """A heading and its content; sections may contain sections."""

    title: str
    blocks: Sequence[Block]
    folded: bool | None = None
    """Whether it is shown folded; ``None`` if it cannot be folded."""
    anchor: str = ""
    """Target for links from cells."""

    def walk(self) -> Iterator[Block]:
        """All blocks, also those of sections within."""
        for block in self.blocks:
            yield block
            if isinstance(block, Section):
                yield from block.walk()


@dataclass(frozen=True, kw_only=True)
class Document:
    """A whole report."""

    title: str
    about: Text = ""
    sections: Sequence[Section]
    warnings: Sequence[str] = ()
    """What readers must know before they compare or trust the numbers."""
    origins: Sequence[Text] = ()
    """Commands, commits and machines that the numbers come from."""
    left_out: Sequence[tuple[str, str]] = ()
    """What the numbers do not include, and why."""
    data: Mapping[str, Any] | None = None
    """The same for programs."""

    @property
    def figures(self) -> list[Figure]:
        return [block for section in self.sections for block in section.walk() if isinstance(block, Figure)]
