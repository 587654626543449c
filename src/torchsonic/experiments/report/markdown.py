"""The report as Markdown, with the pictures beside it."""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from torchsonic.experiments.report.budget import BUDGET_HEADERS, budget_rows
from torchsonic.experiments.report.table import Row, Table
from torchsonic.experiments.report.words import (
    EXPLANATIONS,
    about_line,
    best_places,
    difference_words,
    number_words,
    origin_words,
    paper_words,
)

if TYPE_CHECKING:
    from torchsonic.experiments.report.write import Report

__all__ = ["to_markdown"]

SPECIAL = re.compile(r"([\\`*_|\[\]])")


def to_markdown(report: Report) -> str:
    """The whole report."""
    parts = ["# SynthShape and HalliGalli: Table 1", _text(about_line(report))]
    if report.warnings:
        parts += ["## Warnings", _list(_text(warning) for warning in report.warnings)]
    parts += ["## Table 1"]
    for group, rows in groupby(report.table.rows, key=lambda row: row.group):
        parts += [f"### {group}", _scores(report.table, list(rows))]
    parts += [] if report.rank is None else [f"**{_text(report.rank)}**"]
    parts += [_text(sentence) for sentence in EXPLANATIONS]
    parts += ["## Budgets", _table(BUDGET_HEADERS, budget_rows(report.columns), left=2)]
    for picture in report.pictures:
        parts += [f"## {picture.title}", f"![{picture.title}]({picture.name}.png)", picture.caption]
    listed = (
        f"{_code(run.folder.as_posix())}: {_code(str(run.origin.get('command', 'unknown command')))}, "
        f"{_text(origin_words(run))}"
        for run in report.runs
    )
    parts += ["## Where the numbers come from", _list(listed)]
    if report.skipped:
        left_out = (f"{_code(folder.as_posix())}: {_text(reason)}" for folder, reason in report.skipped)
        parts += [f"## Left out ({len(report.skipped)})", _list(left_out)]
    return "\n\n".join(parts) + "\n"


def _scores(table: Table, rows: Sequence[Row]) -> str:
    headers = [""] + [word for column in table.columns for word in (f"{column.name}, ours", "paper", "difference")]
    lines = []
    for row in rows:
        best, line = best_places(row), [_text(row.label)]
        for place, cell in enumerate(row.cells):
            ours = number_words(cell.ours, row.kind)
            line += [f"**{ours}**" if place in best else ours]
            line += [paper_words(cell, row.kind), difference_words(cell, row.kind)]
        lines.append(line)
    return _table(headers, lines, left=1, escaped=True)


def _table(headers: Sequence[str], rows: Sequence[Sequence[str]], *, left: int, escaped: bool = False) -> str:
    marks = ["---" if place < left else "---:" for place in range(len(headers))]
    body = rows if escaped else [[_text(cell) for cell in row] for row in rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in ([_text(word) for word in headers], marks, *body))


def _list(lines) -> str:
    return "\n".join(f"- {line}" for line in lines)


def _text(text: str) -> str:
    """A text in which nothing is a mark or a tag, on one line."""
    return SPECIAL.sub(r"\\\1", html.escape(" ".join(text.split()), quote=False))


def _code(text: str) -> str:
    """A text as code: its fence is longer than any it holds."""
    text = " ".join(text.split())
    fence = "`" * (1 + max((len(found) for found in re.findall("`+", text)), default=0))
    return f"{fence} {text} {fence}" if len(fence) > 1 else f"`{text}`"
