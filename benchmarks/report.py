"""Pages made from results: the JSON is the source, everything else follows from it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks.baseline import FORMAT
from benchmarks.compile_report import compile_tables, draw_compile
from benchmarks.data_bench import data_tables, draw_data
from benchmarks.explorer_bench import draw_explorer, explorer_tables
from benchmarks.figures import Figure, sign_figure
from benchmarks.init_bench import draw_init, init_tables
from benchmarks.memory_report import draw_memory, memory_tables
from benchmarks.models_report import draw_models, models_tables
from benchmarks.operator_figure import draw_operator
from benchmarks.operator_report import operator_tables, operator_warnings
from benchmarks.precision_report import draw_precision, precision_tables
from benchmarks.roofline_report import draw_roofline, roofline_tables
from benchmarks.scaling_report import draw_scaling, scaling_tables
from benchmarks.volumes_report import draw_volumes, volumes_tables
from torchsonic.lab import report
from torchsonic.lab.report.files import to_png
from torchsonic.lab.report.runs import origin_text

__all__ = ["KINDS", "make_page", "read_result"]


@dataclass(frozen=True)
class Kind:
    title: str
    tables: Callable[[dict], list[report.Table]]
    draw: Callable[[dict], Figure]
    warnings: Callable[[dict], list[str]] = lambda result: []


KINDS = {
    "operator": Kind("The operator compared with others", operator_tables, draw_operator, operator_warnings),
    "compile": Kind("Compiled layers and models", compile_tables, draw_compile),
    "data": Kind("Speed of making synthetic images", data_tables, draw_data),
    "explorer": Kind("Response time of the explorer", explorer_tables, draw_explorer),
    "init": Kind("What an untrained bank of modes can see", init_tables, draw_init),
    "models": Kind("Whole models", models_tables, draw_models),
    "volumes": Kind("Networks for volumes: a training step", volumes_tables, draw_volumes),
    "scaling": Kind("How a Sonic block scales", scaling_tables, draw_scaling),
    "precision": Kind("Errors by number type", precision_tables, draw_precision),
    "roofline": Kind("Predicted times on GPUs", roofline_tables, draw_roofline),
    "memory": Kind("Memory of a training step", memory_tables, draw_memory),
}


def make_page(result: dict) -> report.Document:
    """The page on a result."""
    kind = KINDS[result["kind"]]
    picture = to_png(sign_figure(kind.draw(result), result["run"]))
    figure = report.Figure(result["kind"], kind.title, "", picture)
    return report.Document(
        title=kind.title,
        about=origin_text(result["run"]),
        warnings=kind.warnings(result),
        sections=[
            report.Section("Figure", [figure]),
            *[report.Section(table.title, [table]) for table in kind.tables(result)],
        ],
        data=result,
    )


def read_result(path: Path) -> dict:
    result = json.loads(path.read_text())
    if not isinstance(result, dict) or result.get("kind") not in KINDS:
        raise ValueError(f"{path} is not a benchmark result")
    if result["kind"] == "operator" and result.get("format") != FORMAT:
        raise ValueError(f"{path} was written by an earlier version; run: torchsonic bench operator")
    return result
