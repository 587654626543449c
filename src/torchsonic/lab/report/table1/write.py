"""From a folder of runs to the files of the report."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torchsonic import __version__
from torchsonic.lab.report.table1.budget import BUDGET_HEADERS, budget_rows, find_warnings
from torchsonic.lab.report.table1.collect import Column, Run, find_runs, make_columns
from torchsonic.lab.report.table1.examples import answer_halligalli, load_models, segment_synthshape
from torchsonic.lab.report.table1.figures import draw_curves, draw_levels
from torchsonic.lab.report.table1.gallery import draw_answers, draw_segmentations
from torchsonic.lab.report.table1.table import Table, as_data, make_table, rank_line

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Picture", "Report", "make_report", "write_report"]

DPI = 130


@dataclass(frozen=True)
class Picture:
    """A figure as PNG, with the words that stand in for it and those under it."""

    name: str
    title: str
    caption: str
    png: bytes


@dataclass(frozen=True)
class Report:
    """Everything the files show."""

    table: Table
    rank: str | None
    warnings: Sequence[str]
    pictures: Sequence[Picture]
    runs: Sequence[Run]
    skipped: Sequence[tuple[Path, str]]
    date: str
    version: str

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns of the table."""
        return self.table.columns

    @property
    def num_left_out(self) -> int:
        """Folders of which nothing is shown; a run may also be without a picture only."""
        return len({folder for folder, _ in self.skipped} - {run.folder for run in self.runs})


def make_report(root: Path) -> Report:
    """Read all runs under a folder and draw the pictures.

    Raises
    ------
    ValueError
        If there is no finished run.
    """
    if not root.is_dir():
        raise ValueError(f"there is no folder {root}")
    runs, skipped = find_runs(root)
    if not runs:
        broken = "".join(f"; {folder}: {reason}" for folder, reason in skipped[:3])
        raise ValueError(f"no finished run of SynthShape or HalliGalli under {root}, {len(skipped)} others{broken}")
    columns = make_columns(runs)
    table = make_table(columns)
    pictures, left_out = _draw(table, root)
    return Report(
        table,
        rank_line(table),
        find_warnings(columns),
        pictures,
        runs,
        [*skipped, *left_out],
        datetime.now(UTC).isoformat(timespec="seconds"),
        __version__,
    )


def _draw(table: Table, root: Path) -> tuple[list[Picture], list[tuple[Path, str]]]:
    shapes, fold, no_shapes = load_models(table.columns, "synthshape", root)
    corners, _, no_corners = load_models(table.columns, "halligalli", root)
    drawn: list[tuple[str, str, str, Figure | None]] = [
        (
            "levels",
            "Dice over the strength of each perturbation",
            "Lines and small markers are our means, bars their standard deviation over runs; large faint markers are "
            "the paper's numbers. Models are drawn a little beside each other.",
            draw_levels(table),
        ),
        (
            "curves",
            "Training loss",
            "Running mean over 4 % of each run; where there are several runs, the line is their mean and the band "
            "reaches from the lowest to the highest.",
            draw_curves(table.columns),
        ),
        (
            "examples_synthshape",
            "Example predictions on SynthShape",
            "One held-out scene at the middle level of each perturbation (rescaling at its strongest, for its middle "
            "level changes nothing). Numbers are the Dice of that one image.",
            draw_segmentations(segment_synthshape(shapes, fold) if shapes else []),
        ),
        (
            "examples_halligalli",
            "Example answers on HalliGalli",
            "Does exactly one pair of the corner shapes match? Each model's answer at the framed centre; a wrong "
            "answer is hollow and says so.",
            draw_answers(answer_halligalli(corners) if corners else []),
        ),
    ]
    pictures = [Picture(name, title, caption, _png(f)) for name, title, caption, f in drawn if f is not None]
    return pictures, no_shapes + no_corners


def _png(figure: Figure) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=DPI)
    return buffer.getvalue()


def write_report(report: Report, folder: Path) -> list[Path]:
    """Write ``report.html``, ``report.md``, ``report.json`` and the PNG files into a folder; returns their paths."""
    from torchsonic.lab.report.table1.markdown import to_markdown
    from torchsonic.lab.report.table1.page import to_html

    folder.mkdir(parents=True, exist_ok=True)
    texts = {
        "report.html": to_html(report),
        "report.md": to_markdown(report),
        "report.json": json.dumps(_data(report), indent=1, allow_nan=False, default=str) + "\n",
    }
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
    for picture in report.pictures:
        (folder / f"{picture.name}.png").write_bytes(picture.png)
    return [folder / name for name in (*texts, *[f"{picture.name}.png" for picture in report.pictures])]


def _data(report: Report) -> dict[str, Any]:
    return {
        "date": report.date,
        "torchsonic": report.version,
        "table": as_data(report.table),
        "rank": report.rank,
        "warnings": list(report.warnings),
        "budgets": [dict(zip(BUDGET_HEADERS, row, strict=True)) for row in budget_rows(report.columns)],
        "runs": [
            {
                "folder": run.folder.as_posix(),
                "task": run.task,
                "model": run.model,
                "config": run.config,
                "costs": run.costs,
                "scores": [
                    {"test": test, "level": level, "told": told, "dice": dice}
                    for (test, level, told), dice in run.scores.items()
                ],
                "run": run.origin,
            }
            for run in report.runs
        ],
        "skipped": [{"folder": folder.as_posix(), "reason": reason} for folder, reason in report.skipped],
    }
