"""Prints a document on a console: findings and tables, with warnings on the error stream."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from torchsonic.lab.report.document import Code, Document, Group, Prose, Table, Text

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text as RichText

LOG_WIDTH = 200
"""Line width if the output is not a terminal."""
SHORT = 16
"""Characters of a first column that stays whole beside many others."""
STYLES = {"best": "bold", "alarm": "bold red", "much better": "green", "much worse": "red"}


def print_document(document: Document, *, sections: Collection[str] | None = None) -> None:
    """Print findings, tables (those of ``sections`` by their titles, if given), warnings, and what was left out."""
    console = _console()
    for section in document.sections:
        for block in section.walk():
            if isinstance(block, Table) and (sections is None or section.title in sections):
                print_table(block, console)
            elif isinstance(block, Prose) and block.look == "finding":
                console.print(_plain(block.text), highlight=False, markup=False)
    errors = _console(stderr=True)
    for warning in (*document.warnings, *[f"left out: {name}: {reason}" for name, reason in document.left_out]):
        errors.print(f"warning: {warning}", highlight=False, markup=False, soft_wrap=True)


def print_table(table: Table, console: Console | None = None) -> None:
    """Print a table and its notes."""
    from rich.table import Table as RichTable

    console = console or _console()
    shown = RichTable(title=_rich(table.title), title_justify="left")
    for place, column in enumerate(table.columns):
        heading = f"{column.group}\n{column.title}" if column.group else column.title
        justify = "left" if place < table.left else "right"
        whole = place == 0 and (len(table.columns) < 9 or _first_width(table) <= SHORT)
        shown.add_column(_rich(heading), justify=justify, overflow="fold", no_wrap=whole)
    for line in table.lines:
        if isinstance(line, Group):
            shown.add_section()
            shown.add_row(_rich(line.title, "bold"))
        else:
            shown.add_row(*[_rich(f"{cell.text}\n{cell.note}".strip(), STYLES.get(cell.mark, "")) for cell in line])
    console.print(shown)
    for note in table.notes:
        console.print(_plain(note), style="dim", highlight=False, markup=False)
    console.print()


def _first_width(table: Table) -> int:
    return max((len(line[0].text) for line in table.lines if not isinstance(line, Group)), default=0)


def _console(*, stderr: bool = False) -> Console:
    from rich.console import Console

    console = Console(stderr=stderr)
    return console if console.is_terminal else Console(stderr=stderr, width=LOG_WIDTH)


def _rich(text: str, style: str = "") -> RichText:
    from rich.text import Text as RichText

    return RichText(text, style=style)


def _plain(text: Text) -> str:
    return text if isinstance(text, str) else "".join(p.text if isinstance(p, Code) else p for p in text)
