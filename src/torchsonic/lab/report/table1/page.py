"""The page of Table 1: our numbers beside the paper's, and how each was obtained."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from itertools import groupby
from typing import Any

from torchsonic.lab.report import Cell, Code, Column, Document, Group, Prose, Section, Table
from torchsonic.lab.report.catalogue import NOTES as COST_NOTES
from torchsonic.lab.report.document import NONE, Text
from torchsonic.lab.report.runs import Compared, commit_of, count, decimal, find_warnings, join_values, signed
from torchsonic.lab.report.table1.collect import TASKS, Run
from torchsonic.lab.report.table1.collect import Column as Model
from torchsonic.lab.report.table1.report import Report, as_data
from torchsonic.lab.report.table1.table import Pair, Row, Table1, rank_lines
from torchsonic.lab.training import TrainingConfig
from torchsonic.lab.training.loop import MAY_CHANGE

DIGITS = {"dice": 3, "parameters": 3, "flops": 3, "seconds": 0, "samples_per_second": 1}
SMALL, LARGE = 0.005, 0.03
BUDGET = ("task", "model", "steps", "batch", "test samples", "runs", "seeds", "folds", "commit", "threads")
DEFAULTS = {option.name: option.default for option in fields(TrainingConfig)}
# What does not change a result, or differs between runs on purpose.
FREE = {"seed", *MAY_CHANGE}
EXPLANATIONS = (
    "Ours: mean over runs; if there are several, also the sample standard deviation and the number of runs. Paper: "
    "the published number, a mean over the paper's folds and seeds with its own training budget. Difference: ours "
    "minus the paper's for Dice, ours divided by the paper's for costs.",
    "Variants of a model, named in brackets, are all compared with the paper's single number for that model.",
    "Dice excludes the background, as in the paper, and is computed over all test pixels together. HalliGalli scores "
    "only the central patch, over both classes: a constant answer scores about 0.33, a random one about 0.5.",
    "HalliGalli tests whether one block can read and combine the corners, not whether it generalises: training sees "
    "all 625 scenes except unseen arrangements, with random noise of 0 to 0.12 by default. The test noise of 0.1 is in "
    "that range, 0.2 is not. We do not know whether the paper trained with noise.",
    "Given the spacing: the rescaled image comes with its true pixel spacing, for models that can use it; the paper "
    "has no such test. Resolution: the whole scene rendered with 0.75 and 1.5 times as many pixels on each axis, a "
    "test of ours; rescaling by 1.5 shows only the middle of the image, so shapes are cut off at its border.",
    *COST_NOTES[:1],
    "The paper's GFLOPs are twice its GMACs, which match an image of 32 x 32 pixels; ours are for 64 x 64.",
)
RELEASED_NOTES = (
    "Released protocol: scenes, noise, class weights, loss and perturbations are those of the authors' released "
    "script, as are networks and initial weights where they differ from ours. Dice is the mean over batches of 24. "
    "Rescaling: images are resized, then cropped or padded with zeros. Given the spacing: images are only resized; "
    "later versions of the script do this for SONIC alone.",
)


def make_page(report: Report) -> Document:
    """The page on a folder of runs."""
    ranks = rank_lines(report.table)
    budgets = _budgets(report.columns)
    warnings = find_warnings(compared_runs(report.columns), repeats="seeds and folds")
    skipped = f", {report.num_left_out} left out" if report.num_left_out else ""
    about = f"{count(len(report.runs), 'run')}{skipped}; {count(len(report.columns), 'column')}."
    finding = [Prose(rank, "finding") for rank in ranks]
    released = RELEASED_NOTES if any(run.task == "released" for run in report.runs) else ()
    notes = Section("What is counted", [*EXPLANATIONS, *released], folded=False)
    return Document(
        title="SynthShape and HalliGalli: Table 1",
        about=f"{about} Written {report.date} by torchsonic {report.version}.",
        warnings=warnings,
        sections=[
            Section("Table 1", [*finding, _scores(report.table), notes]),
            Section("Budgets", [Table("How each column was obtained", BUDGET, budgets, left=2)]),
            *[Section(figure.title, [figure]) for figure in report.figures],
        ],
        origins=[_origin(run) for run in report.runs],
        left_out=[(folder.as_posix(), reason) for folder, reason in report.skipped],
        data={
            **as_data(report),
            "rank": " ".join(ranks) or None,
            "warnings": warnings,
            "budgets": [dict(zip(BUDGET, row, strict=True)) for row in budgets],
        },
    )


def compared_runs(columns: Sequence[Model]) -> list[Compared]:
    """The runs with the settings that should be equal."""
    runs = [(column.name, run) for column in columns for run in column.runs]
    names = sorted({name for _, run in runs for name in run.training} - FREE - {"steps", "batch"})

    def settings(run: Run) -> dict[str, Any]:
        # A setting that is younger than a run had its default's effect.
        found = {name: run.training.get(name, DEFAULTS.get(name)) for name in ("steps", "batch", *names)}
        return {**found, "test_samples": run.config.get("test_samples")}

    return [
        Compared(
            group=TASKS[run.task],
            name=name,
            settings=settings(run),
            repeat=(run.fold, run.training.get("seed")),
            origin={"commit": None, **run.origin},
        )
        for task in TASKS
        for name, run in runs
        if run.task == task
    ]


def _scores(table: Table1) -> Table:
    parts = ("ours", "paper", "difference")
    rows: list[Group | list[str | Cell]] = []
    for group, members in groupby(table.rows, key=lambda row: row.group):
        rows += [Group(group), *map(_row, members)]
    return Table(
        "Dice and cost of each model: ours, the paper's, and the difference",
        ["", *[Column(part, column.name) for column in table.columns for part in parts]],
        rows,
        note="deviation (runs)",
        legend=f"Above or below the paper's Dice; darker if by more than {LARGE:g}. Bold: the best of ours in a row.",
    )


def _row(row: Row) -> list[str | Cell]:
    best = max((round(p.ours.mean, DIGITS["dice"]) for p in row.cells if p.ours), default=0.0)
    several = row.kind == "dice" and sum(p.ours is not None for p in row.cells) > 1
    cells: list[str | Cell] = [row.label]
    for pair in row.cells:
        is_best = several and pair.ours is not None and round(pair.ours.mean, DIGITS["dice"]) == best
        cells += [
            _ours(pair, row.kind, is_best=is_best),
            decimal(pair.paper, 2 if row.kind == "dice" else 3),
            _difference(pair, row.kind),
        ]
    return cells


def _ours(pair: Pair, kind: str, *, is_best: bool) -> Cell:
    if pair.ours is None:
        return Cell(NONE)
    digits, spread = DIGITS[kind], pair.ours.spread
    has_spread = spread is not None and kind not in ("parameters", "flops")
    note = f"± {spread:.{digits}f} ({pair.ours.count})" if has_spread else ""
    return Cell(f"{pair.ours.mean:.{digits}f}", note, "best" if is_best else "")


def _difference(pair: Pair, kind: str) -> Cell:
    """Signed difference of scores, or ratio of costs."""
    if pair.difference is None or pair.ours is None or not pair.paper:
        return Cell(NONE)
    if kind != "dice":
        return Cell(f"\u00d7{pair.ours.mean / pair.paper:.2f}")
    better, worse = ("much better", "much worse") if abs(pair.difference) > LARGE else ("better", "worse")
    mark = "" if abs(pair.difference) < SMALL else better if pair.difference > 0 else worse
    return Cell(signed(pair.difference, 2, zero="±"), mark=mark)


def _budgets(columns: Sequence[Model]) -> list[list[str]]:
    """A row for each task and column."""
    return [
        [
            title,
            column.name,
            join_values(run.training["steps"] for run in runs),
            join_values(run.training["batch"] for run in runs),
            join_values(run.config.get("test_samples") for run in runs),
            str(len(runs)),
            join_values(run.training.get("seed") for run in runs),
            join_values(run.fold for run in runs) if task == "synthshape" else "-",
            join_values(commit_of(run.origin) + " (dirty)" * bool(run.origin.get("dirty")) for run in runs),
            join_values(run.origin.get("threads") for run in runs),
        ]
        for task, title in TASKS.items()
        for column in columns
        if (runs := column.of(task))
    ]


def _origin(run: Run) -> Text:
    """Folder, command, commit, seed, date and machine of a run, as far as they are known."""
    origin = run.origin
    words = [f"commit {commit_of(origin)}{' with uncommitted changes' if origin.get('dirty') else ''}"]
    words.append(f"seed {run.training.get('seed', NONE)}, fold {run.fold}")
    words += [str(origin[name]) for name in ("date", "cpu") if origin.get(name)]
    words += [f"{name} {origin[name]}" for name in ("threads", "torch") if origin.get(name)]
    command = Code(str(origin.get("command", "unknown command")))
    return (Code(run.folder.as_posix()), ": ", command, f", {', '.join(words)}")
