"""The report as Markdown, with the pictures beside it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from torchsonic.lab.report.table1.budget import BUDGET_HEADERS, budget_rows
from torchsonic.lab.report.table1.marks import as_code, as_list, as_table, as_text
from torchsonic.lab.report.table1.table import Row, Table
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
    from torchsonic.lab.report.table1.write import Report

__all__ = ["to_markdown"]


def to_markdown(report: Report) -> str:
    """The whole report."""
    parts = ["# SynthShape and HalliGalli: Table 1", as_text(about_line(report))]
    if report.warnings:
        parts += ["## Warnings", as_list(as_text(warning) for warning in report.warnings)]
    parts += ["## Table 1"]
    for group, rows in groupby(report.table.rows, key=lambda row: row.group):
        parts += [f"### {group}", _scores(report.table, list(rows))]
    parts += [] if report.rank is None else [f"**{as_text(report.rank)}**"]
    parts += [as_text(sentence) for sentence in EXPLANATIONS]
    parts += ["## Budgets", as_table(BUDGET_HEADERS, budget_rows(report.columns), left=2)]
    for picture in report.pictures:
        parts += [f"## {picture.title}", f"![{picture.title}]({picture.name}.png)", picture.caption]
    listed = (
        f"{as_code(run.folder.as_posix())}: {as_code(str(run.origin.get('command', 'unknown command')))}, "
        f"{as_text(origin_words(run))}"
        for run in report.runs
    )
    parts += ["## Where the numbers come from", as_list(listed)]
    if report.skipped:
        left_out = (f"{as_code(folder.as_posix())}: {as_text(reason)}" for folder, reason in report.skipped)
        parts += [f"## Left out ({len(report.skipped)})", as_list(left_out)]
    return "\n\n".join(parts) + "\n"


def _scores(table: Table, rows: Sequence[Row]) -> str:
    headers = [""] + [word for column in table.columns for word in (f"{column.name}, ours", "paper", "difference")]
    lines = []
    for row in rows:
        best, line = best_places(row), [as_text(row.label)]
        for place, cell in enumerate(row.cells):
            ours = number_words(cell.ours, row.kind)
            line += [f"**{ours}**" if place in best else ours]
            line += [paper_words(cell, row.kind), difference_words(cell, row.kind)]
        lines.append(line)
    return as_table(headers, lines, left=1, escaped=True)
