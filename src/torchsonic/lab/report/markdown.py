"""A document as Markdown, with the pictures beside it."""

from __future__ import annotations

import re
from collections.abc import Iterator

from torchsonic.lab.report.document import Cell, Code, Document, Figure, Group, Items, Prose, Section, Table, Text

# An underscore within a word is one; elsewhere it would begin emphasis.
SPECIAL = re.compile(r"([\\`*|\[\]]|(?<![^\W_])_|_(?![^\W_]))")
TAG, ENTITY = re.compile(r"<(?=[a-zA-Z/!?])"), re.compile(r"&(?=#?\w+;)")
PLAIN_PATH = re.compile(r"[\w./-]+")


def to_markdown(document: Document) -> str:
    """The whole report."""
    parts = [f"# {_text(document.title)}"]
    parts += [_text(document.about)] if document.about else []
    if document.warnings:
        parts += ["## Warnings", _list(document.warnings)]
    for section in document.sections:
        parts += _section(section, 2)
    if document.origins:
        parts += ["## Where the numbers come from", _list(document.origins)]
    if document.left_out:
        listed = [(Code(name), f": {reason}") for name, reason in document.left_out]
        parts += [f"## Left out ({len(listed)})", _list(listed)]
    return "\n\n".join(parts) + "\n"


def _section(section: Section, level: int) -> Iterator[str]:
    yield f"{'#' * level} {_text(section.title)}"
    for block in section.blocks:
        match block:
            case Section():
                yield from _section(block, level + 1)
            case Table():
                if block.title != section.title:
                    yield f"**{_text(block.title)}**"
                yield table_to_markdown(block)
            case Figure():
                path = block.file if PLAIN_PATH.fullmatch(block.file) else f"<{block.file}>"
                yield f"![{_text(block.title)}]({path})"
                if block.caption:
                    yield _text(block.caption)
            case Items():
                yield _list(block.items)
            case Prose(text, "finding"):
                yield f"**{_text(text)}**"
            case Prose(text):
                yield _text(text)
            case _:
                yield _text(block)


def table_to_markdown(table: Table) -> str:
    """A table and its notes; headings between rows are bold rows."""
    marks = ["---" if place < table.left else "---:" for place in range(len(table.columns))]
    rows = [[_text(column.full) for column in table.columns], marks]
    for line in table.lines:
        if isinstance(line, Group):
            rows.append([f"**{_text(line.title)}**", *[""] * (len(marks) - 1)])
        else:
            rows.append([_cell(cell) for cell in line])
    lines = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    return "\n\n".join([lines, *map(_text, table.notes)])


def _cell(cell: Cell) -> str:
    text = _text(cell.text)
    strong = f"**{text}**" if cell.mark in ("best", "alarm") else text
    return f"{strong} {_text(cell.bracketed)}" if cell.note else strong


def _list(items) -> str:
    return "\n".join(f"- {_text(item)}" for item in items)


def _text(text: Text) -> str:
    """A text in which nothing is a mark or a tag, on one line."""
    if isinstance(text, tuple):
        return "".join(_code(part.text) if isinstance(part, Code) else _escape(part) for part in text)
    return _escape(text).strip()


def _escape(text: str) -> str:
    return SPECIAL.sub(r"\\\1", TAG.sub("&lt;", ENTITY.sub("&amp;", re.sub(r"\s+", " ", text))))


def _code(text: str) -> str:
    """A text as code: its fence is longer than any it holds."""
    text = " ".join(text.split())
    fence = "`" * (1 + max((len(found) for found in re.findall("`+", text)), default=0))
    return f"{fence} {text} {fence}" if len(fence) > 1 else f"`{text}`"
