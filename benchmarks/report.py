"""Files made from a result: the JSON is the source, Markdown and PNG follow from it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from benchmarks.baseline import FORMAT
from benchmarks.compile_report import compile_tables, draw_compile
from benchmarks.data_bench import data_tables, draw_data
from benchmarks.explorer_bench import draw_explorer, explorer_tables
from benchmarks.init_bench import draw_init, init_tables
from benchmarks.memory_report import draw_memory, memory_tables
from benchmarks.models_report import draw_models, models_tables
from benchmarks.operator_figure import draw_operator
from benchmarks.operator_report import operator_tables
from benchmarks.precision_report import draw_precision, precision_tables
from benchmarks.scaling_report import draw_scaling, scaling_tables
from benchmarks.tables import Table, print_tables, to_markdown
from benchmarks.volumes_report import draw_volumes, volumes_tables
from torchsonic.lab.runs.provenance import summary_line

__all__ = ["KINDS", "print_result", "read_result", "write_result"]

KINDS: dict[str, tuple[str, Callable[[dict], list[Table]], Callable[[dict, Path], None]]] = {
    "operator": ("The operator against its rivals", operator_tables, draw_operator),
    "compile": ("Compiled layers and models", compile_tables, draw_compile),
    "data": ("How fast the synthetic images are made", data_tables, draw_data),
    "explorer": ("How fast the explorer answers", explorer_tables, draw_explorer),
    "init": ("What a freshly drawn bank of modes can see", init_tables, draw_init),
    "models": ("Whole models", models_tables, draw_models),
    "volumes": ("Networks for volumes: a training step", volumes_tables, draw_volumes),
    "scaling": ("How a Sonic block scales", scaling_tables, draw_scaling),
    "precision": ("Errors by number type", precision_tables, draw_precision),
    "memory": ("Memory of a training step", memory_tables, draw_memory),
}


def write_result(result: dict, folder: Path) -> list[Path]:
    """Write ``<kind>.json``, ``.md`` and ``.png`` into a folder; returns their paths."""
    kind = result["kind"]
    title, tables, draw = KINDS[kind]
    data, text, picture = (folder / f"{kind}.{ending}" for ending in ("json", "md", "png"))
    data.write_text(json.dumps(result, indent=1) + "\n")
    heading = f"# {title}\n\n{summary_line(result['run'])}\n\n![{title}]({picture.name})\n\n"
    text.write_text(heading + to_markdown(tables(result)))
    draw(result, picture)
    return [data, text, picture]


def print_result(result: dict) -> None:
    print_tables(KINDS[result["kind"]][1](result))


def read_result(path: Path) -> dict:
    result = json.loads(path.read_text())
    if not isinstance(result, dict) or result.get("kind") not in KINDS:
        raise ValueError(f"{path} is no benchmark result")
    if result["kind"] == "operator" and result.get("format") != FORMAT:
        raise ValueError(f"{path} was written by an earlier version; run: torchsonic bench operator")
    return result
