"""The page on accuracy over image sizes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from torchsonic import __version__
from torchsonic.lab.report import Cell, Document, Figure, Prose, Section, Table
from torchsonic.lab.report.files import to_png
from torchsonic.lab.report.image_sizes.figure import draw_sizes
from torchsonic.lab.report.image_sizes.results import (
    PAPER_TRAIN_SIZE,
    Curve,
    Point,
    RunFacts,
    SizeReport,
    paper_curves,
    settings_of,
    verdict_lines,
)
from torchsonic.lab.report.runs import Compared, count, find_warnings, origin_text

NETWORK = {"model", "model_options"}
BUDGET = ("network", "parameters, M", "GFLOPs", "steps", "batch", "seeds", "training, min", "waiting for data")
CAPTION = (
    "Filled markers: given the spacing, or unable to use it. Hollow markers on dotted lines: the same network without "
    "the spacing, or on images resized back. Faint dashed lines: the paper. Grey line: the training size. Tests with "
    "different numbers of rows and columns are in the tables only."
)
EXPLANATIONS = (
    "Every size shows the same square crop of each photograph, resized from the file with antialiasing. 64x128 has 64 "
    "rows and 128 columns. The spacing given to a network is the training size divided by the test size, on each axis.",
    "Percent lost is (top-1 at the training size - top-1) / top-1 at the training size. Intervals are 95 %, over "
    "images: Wilson's for accuracy, and for losses a bootstrap that keeps the answers for an image at both sizes and "
    "with all seeds together. They do not include the variation between seeds, which is given after ±.",
    "The paper's networks were trained on ImageNet at 224 px for 200,000 steps, ours with the budget below. Only the "
    "shapes of the curves can be compared, over sizes relative to the training size.",
)


def make_page(report: SizeReport) -> Document:
    """The page on runs tested at several sizes."""
    control = ", with images resized back as a control" if any(curve.resized for curve in report.curves) else ""
    trained = ", ".join(f"{size} px" for size in sorted({run.config.image_size for run in report.runs}))
    tested = f"tested on {report.images} images at {', '.join(map(str, report.sizes))} px."
    warnings, verdicts = size_warnings(report), verdict_lines(report)
    title = "Top-1 over image sizes, and its loss compared with the paper"
    figure = Figure("sizes", title, CAPTION, to_png(draw_sizes(report)))
    notes = Section("What is counted", EXPLANATIONS, folded=True)
    losses, top1, top5 = (
        loss_table(report),
        accuracy_table(report),
        _table(report, "Top-5, percent", lambda _, point: f"{100 * point.top5:.1f}"),
    )
    return Document(
        title=f"Accuracy over image sizes{control}",
        about=f"{count(len(report.runs), 'run')} trained at {trained}, {tested}",
        warnings=warnings,
        sections=[
            Section("Findings", [*[Prose(line, "finding") for line in verdicts], figure, notes]),
            *[Section(table.title, [table]) for table in (losses, top1, top5, _budget(report))],
        ],
        origins=[
            origin_text(report.run),
            *[origin_text(r.results["run"], f"{r.config.label}, seed {r.config.training.seed}") for r in report.runs],
        ],
        left_out=[(path, text.removeprefix(f"{path}: ")) for path, text in report.left_out.items()],
        data={**_as_data(report), "warnings": warnings, "verdicts": verdicts},
    )


def size_warnings(report: SizeReport) -> list[str]:
    """Warnings to read before comparing."""
    own = [curve for curve in report.curves if not curve.told and not curve.resized]
    runs = [(curve.model, run, settings_of(run)) for curve in own for run in curve.runs]
    found = find_warnings(
        [
            Compared(
                name=name,
                settings={name: value for name, value in settings.items() if name not in NETWORK},
                repeat=run.config.training.seed,
            )
            for name, run, settings in runs
        ]
    )
    counts = {run.num_images for run in report.runs}
    if len(counts) > 1:
        found.append(f"The runs were tested on {' and '.join(map(str, sorted(counts)))} images.")
    for curve in own:
        point, chance = curve.at(curve.train_size), 1 / curve.runs[0].num_classes
        if point is not None and not curve.has_learnt:
            found.append(
                f"{curve.model} has learned little: its top-1 is {100 * point.top1:.1f} percent, that of guessing "
                f"{100 * chance:.1f}; its losses mean nothing."
            )
    if left := len(report.left_out):
        found.append(f"{count(left, 'unreadable image')} {'was' if left == 1 else 'were'} left out.")
    return found


def _table(report: SizeReport, title: str, show: Callable[[Curve, Point], str | Cell]) -> Table:
    """A row for each curve, a column for each size."""
    rows = []
    for curve in report.curves:
        points = [curve.at(size) for size in report.sizes]
        rows.append([curve.name, *["" if point is None else show(curve, point) for point in points]])
    return Table(title, ["network", *[f"{size} px" for size in report.sizes]], rows)


def accuracy_table(report: SizeReport) -> Table:
    """Top-1 with 95 % intervals."""
    return _table(report, "Top-1, percent", _top1)


def _top1(_: Curve, point: Point) -> Cell:
    low, high = (f"{100 * bound:.1f}" for bound in point.top1_interval)
    note = f"{low} to {high}" if point.spread is None else f"± {100 * point.spread:.1f} ({low} to {high})"
    return Cell(f"{100 * point.top1:.1f}", note)


def loss_table(report: SizeReport) -> Table:
    """Percent of top-1 lost relative to the training size, with 95 % intervals; then the paper's.

    The paper's are left out if any network was trained at another size; the figure, over ratios, still shows them.
    """
    table = _table(report, "Loss of top-1 relative to the training size, percent", _loss)
    rows = list(table.rows)
    comparable = all(curve.train_size == PAPER_TRAIN_SIZE for curve in report.curves)
    for name, losses in paper_curves().items() if comparable else ():
        cells = [f"{losses[size]:.1f}" if size in losses else "" for size in report.sizes]
        rows.append([f"paper, {name}, trained at {PAPER_TRAIN_SIZE} px", *cells])
    return Table(table.title, table.headers, rows)


def _loss(curve: Curve, point: Point) -> str | Cell:
    if point.size == curve.train_size:
        return "0"
    if math.isnan(point.loss):
        return "-"
    low, high = point.loss_interval
    return Cell(f"{point.loss:.1f}", f"{low:.1f} to {high:.1f}")


def _budget(report: SizeReport) -> Table:
    """What each network costs and was trained with."""
    rows = []
    for curve in report.curves:
        if curve.told or curve.resized:  # the same network as the line before
            continue
        facts, training = [run.results for run in curve.runs], curve.runs[0].config.training
        minutes, wait = (sum(fact[name] for fact in facts) / len(facts) for name in ("seconds", "data_wait"))
        costs = [f"{facts[0]['parameters'] / 1e6:.3f}", f"{facts[0]['flops'] / 1e9:.3g}"]
        seeds = ", ".join(str(run.config.training.seed) for run in curve.runs)
        budget = [f"{training.steps:,}", str(training.batch), seeds, f"{minutes / 60:.1f}", f"{100 * wait:.1f} %"]
        rows.append([curve.model, *costs, *budget])
    return Table("Budget", BUDGET, rows)


def _as_data(report: SizeReport) -> dict[str, Any]:
    """Everything for programs; hits of single images are bits, packed and written in hexadecimal digits."""

    def run_data(run: RunFacts) -> dict[str, Any]:
        bits = {key: [np.packbits(found).tobytes().hex() for found in pair] for key, pair in run.hits.items()}
        hits = [{"size": s, "told": t, "top1": top1, "top5": top5} for (s, t), (top1, top5) in bits.items()]
        return {"folder": run.folder.as_posix(), "results": dict(run.results), "hits": hits}

    def curve_data(curve: Curve) -> dict[str, Any]:
        facts = {name: getattr(curve, name) for name in ("model", "told", "resized", "train_size")}
        points = [vars(point) for point in curve.points]
        return {**facts, "points": points, "runs": [run.folder.as_posix() for run in curve.runs]}

    return {
        "torchsonic": __version__,
        "run": dict(report.run),
        "images": report.images,
        "curves": [curve_data(curve) for curve in report.curves],
        "paper": paper_curves(),
        "runs": [run_data(run) for run in report.runs],
        "left_out": dict(report.left_out),
    }
