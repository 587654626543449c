"""Collects everything that the report on a folder of runs shows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from torchsonic import __version__
from torchsonic.lab.report.document import Figure
from torchsonic.lab.report.files import to_png
from torchsonic.lab.report.runs import count
from torchsonic.lab.report.table1.collect import TASKS, Column, Run, find_runs, make_columns
from torchsonic.lab.report.table1.examples import draw_answers, draw_segmentations, load_models
from torchsonic.lab.report.table1.figures import draw_curves, draw_levels
from torchsonic.lab.report.table1.table import Pair, Table1, make_table


@dataclass(frozen=True)
class Report:
    """What was found in a folder of runs."""

    table: Table1
    figures: Sequence[Figure]
    runs: Sequence[Run]
    skipped: Sequence[tuple[Path, str]]
    date: str
    version: str = __version__

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns of the table."""
        return self.table.columns

    @property
    def num_left_out(self) -> int:
        """Number of folders of which nothing is shown; some other runs only lack a picture."""
        return len({folder for folder, _ in self.skipped} - {run.folder for run in self.runs})


def make_report(root: Path) -> Report:
    """Read all runs under a folder, at least one of them finished, and draw the figures."""
    if not root.is_dir():
        raise ValueError(f"there is no folder {root}")
    runs, skipped = find_runs(root)
    if not runs:
        others = f", but {count(len(skipped), 'other')}" if skipped else "; name a folder that contains runs"
        broken = "".join(f"; {folder}: {reason}" for folder, reason in skipped[:3])
        raise ValueError(f"no finished run of SynthShape or HalliGalli under {root}{others}{broken}")
    table = make_table(make_columns(runs))
    figures, without_picture = _draw(table, root)
    date = datetime.now(UTC).isoformat(timespec="seconds")
    return Report(table, figures, runs, [*skipped, *without_picture], date)


def _draw(table: Table1, root: Path) -> tuple[list[Figure], list[tuple[Path, str]]]:
    shapes, fold, no_shapes = load_models(table.columns, "synthshape", root)
    released, _, no_released = load_models(table.columns, "released", root)
    corners, _, no_corners = load_models(table.columns, "halligalli", root)
    drawn = (
        (
            "levels",
            "Dice over the strength of each perturbation",
            "Lines and small markers: our means, with error bars of one standard deviation over runs. Large faint "
            "markers: the paper's numbers. Models are shifted sideways a little so that they do not overlap.",
            draw_levels(table),
        ),
        (
            "curves",
            "Training loss",
            "Running mean over 4 % of each run. With several runs, the line is their mean and the band runs from the "
            "lowest to the highest.",
            draw_curves(table.columns),
        ),
        (
            "examples_synthshape",
            "Example predictions on SynthShape",
            "One held-out scene at the middle level of each perturbation, but at the highest level of rescaling, whose "
            "middle level changes nothing. Numbers are the Dice of that image.",
            draw_segmentations(shapes, fold),
        ),
        (
            "examples_released",
            "Example predictions under the released protocol",
            "As above, for a scene of the released protocol that was not seen in training.",
            draw_segmentations(released, 0, "released"),
        ),
        (
            "examples_halligalli",
            "Example answers on HalliGalli",
            "Does exactly one pair of the corner shapes match? Each model answers at the framed centre; wrong answers "
            "are hollow and labelled.",
            draw_answers(corners),
        ),
    )
    figures = [Figure(name, title, caption, to_png(f)) for name, title, caption, f in drawn if f is not None]
    return figures, no_shapes + no_released + no_corners


def as_data(report: Report) -> dict[str, Any]:
    """The table and the runs, for programs."""

    def pair_data(pair: Pair) -> dict[str, Any]:
        return {"ours": pair.ours and vars(pair.ours), "paper": pair.paper, "difference": pair.difference}

    rows = [
        {"group": row.group, "row": row.label, "kind": row.kind, "cells": [pair_data(pair) for pair in row.cells]}
        for row in report.table.rows
    ]
    return {
        "date": report.date,
        "torchsonic": report.version,
        "table": {"columns": [_column_data(column) for column in report.columns], "rows": rows},
        "runs": [_run_data(run) for run in report.runs],
        "skipped": [{"folder": folder.as_posix(), "reason": reason} for folder, reason in report.skipped],
    }


def _column_data(column: Column) -> dict[str, Any]:
    folders = {task: [run.folder.as_posix() for run in column.of(task)] for task in TASKS}
    return {"name": column.name, "model": column.model, "options": dict(column.options), "runs": folders}


def _run_data(run: Run) -> dict[str, Any]:
    names = ("test", "level", "told", "dice")
    scores = [dict(zip(names, (*test, dice), strict=True)) for test, dice in run.scores.items()]
    facts = {"folder": run.folder.as_posix(), "task": run.task, "model": run.model, "config": run.config}
    return {**facts, "costs": run.costs, "scores": scores, "run": run.origin}
