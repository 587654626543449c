"""The report as one HTML file that needs no other: styles and pictures are inside."""

from __future__ import annotations

from html import escape
from itertools import groupby
from string import Template
from typing import TYPE_CHECKING

from torchsonic.lab.report.table1.budget import BUDGET_HEADERS, budget_rows
from torchsonic.lab.report.table1.elements import embed, item_list, read_part, scrollable, warning_box
from torchsonic.lab.report.table1.table import Cell, Row, Table
from torchsonic.lab.report.table1.words import (
    EXPLANATIONS,
    about_line,
    best_places,
    difference_words,
    number_words,
    origin_words,
    paper_words,
)

if TYPE_CHECKING:
    from torchsonic.lab.report.table1.write import Picture, Report

__all__ = ["to_html"]

SMALL, LARGE = 0.005, 0.03


def to_html(report: Report) -> str:
    """The whole page."""
    return Template(read_part("page.html")).substitute(
        style=read_part("page.css"),
        about=escape(about_line(report)),
        warnings=warning_box(report.warnings),
        table=_main_table(report.table),
        rank="" if report.rank is None else f'<p class="rank">{escape(report.rank)}</p>',
        notes="".join(f"<p>{escape(sentence)}</p>" for sentence in EXPLANATIONS),
        budgets=_budgets(report),
        pictures="".join(map(_picture, report.pictures)),
        links="".join(f'<a href="#{escape(p.name)}">{escape(p.title)}</a>' for p in report.pictures),
        runs=_origins(report),
        skipped=_skipped(report),
    )


def _main_table(table: Table) -> str:
    top = "".join(f'<th scope="colgroup" colspan="3">{escape(column.name)}</th>' for column in table.columns)
    second = '<th scope="col">ours</th><th scope="col">paper</th><th scope="col">diff.</th>' * len(table.columns)
    groups = '<colgroup span="3">' * len(table.columns)
    bodies = ""
    for group, rows in groupby(table.rows, key=lambda row: row.group):
        heading = f'<tr class="group"><th scope="rowgroup" colspan="{1 + 3 * len(table.columns)}">'
        heading += f"<span>{escape(group)}</span></th></tr>"
        bodies += f"<tbody>{heading}{''.join(map(_main_row, rows))}</tbody>"
    return scrollable(
        "Dice and cost of each model: ours, the paper's, and the difference",
        f'<colgroup>{groups}<thead><tr><td rowspan="2"></td>{top}</tr><tr>{second}</tr></thead>{bodies}',
        "scores",
    )


def _main_row(row: Row) -> str:
    best = best_places(row)
    cells = "".join(_cell(cell, row.kind, best=place in best) for place, cell in enumerate(row.cells))
    return f'<tr><th scope="row">{escape(row.label)}</th>{cells}</tr>'


def _cell(cell: Cell, kind: str, *, best: bool) -> str:
    ours = escape(number_words(cell.ours, kind))
    mean, plus, spread = ours.partition(" ± ")
    shown = f"<b>{mean}</b>" if best else mean
    shown += f" <small>±&nbsp;{spread.replace(' ', '&nbsp;')}</small>" if plus else ""
    shade = _shade(cell.difference) if kind == "dice" else "same"
    return (
        f'<td class="ours">{shown}</td><td class="paper">{escape(paper_words(cell, kind))}</td>'
        f'<td class="diff {shade}">{escape(difference_words(cell, kind))}</td>'
    )


def _shade(difference: float | None) -> str:
    if difference is None or abs(difference) < SMALL:
        return "same"
    return ("better" if difference > 0 else "worse") + (" much" if abs(difference) > LARGE else "")


def _budgets(report: Report) -> str:
    head = "".join(f'<th scope="col">{escape(word)}</th>' for word in BUDGET_HEADERS)
    rows = "".join(
        f'<tr><td>{escape(task)}</td><th scope="row">{escape(name)}</th>'
        f"{''.join(f'<td>{escape(word)}</td>' for word in rest)}</tr>"
        for task, name, *rest in budget_rows(report.columns)
    )
    return scrollable(
        "With what each column was obtained", f"<thead><tr>{head}</tr></thead><tbody>{rows}</tbody>", "budgets"
    )


def _picture(picture: Picture) -> str:
    return (
        f'<section><h2 id="{escape(picture.name)}">{escape(picture.title)}</h2><figure>'
        f"{embed(picture.png, picture.title)}"
        f"<figcaption>{escape(picture.caption)}</figcaption></figure></section>"
    )


def _origins(report: Report) -> str:
    return item_list(
        f"<code>{escape(str(run.origin.get('command', 'unknown command')))}</code><br>"
        f"{escape(run.folder.as_posix())}: {escape(origin_words(run))}"
        for run in report.runs
    )


def _skipped(report: Report) -> str:
    if not report.skipped:
        return ""
    items = item_list(f"<code>{escape(folder.as_posix())}</code>: {escape(text)}" for folder, text in report.skipped)
    return f'<section><h2 id="skipped">Left out ({len(report.skipped)})</h2>{items}</section>'
