"""Tables that print on a console and in Markdown, and the words for numbers in them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

LOG_WIDTH = 160

__all__ = ["Table", "milliseconds", "print_tables", "to_markdown", "verdict", "written"]


@dataclass(frozen=True)
class Table:
    title: str
    headers: Sequence[str]
    rows: Sequence[Sequence[str]]
    notes: Sequence[str] = ()


def written(value: float | None, form: str = ".2f", suffix: str = "") -> str:
    """A number, or a dash where there is none."""
    return "-" if value is None else f"{value:{form}}{suffix}"


def milliseconds(seconds: float | None) -> str:
    return written(None if seconds is None else 1e3 * seconds, ".3g" if seconds and seconds < 0.1 else ".0f")


def verdict(met: bool | None) -> str:
    return {True: "met", False: "**not met**", None: "-"}[met]


def to_markdown(tables: Sequence[Table]) -> str:
    parts = []
    for table in tables:
        lines = [f"## {table.title}", ""]
        lines += [f"| {' | '.join(row)} |" for row in (table.headers, ["---"] * len(table.headers), *table.rows)]
        lines += [f"\n{note}" for note in table.notes]
        parts.append("\n".join(lines))
    return "\n\n".join(parts) + "\n"


def print_tables(tables: Sequence[Table]) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table as RichTable

    console = Console()
    if not console.is_terminal:
        console = Console(width=LOG_WIDTH)
    for table in tables:
        shown = RichTable(title=table.title, title_justify="left")
        for index, header in enumerate(table.headers):
            shown.add_column(escape(header), justify="right" if index else "left", no_wrap=index == 0)
        for row in table.rows:
            shown.add_row(
                *[escape(cell.replace("**", "")) for cell in row], style="red" if "**" in "".join(row) else None
            )
        console.print(shown)
        for note in table.notes:
            console.print(escape(note), style="dim")
        console.print()
