"""Tables and figure of the errors by number type, from their result."""

from __future__ import annotations

from benchmarks.accuracy import geometric_mean
from benchmarks.figures import COLOURS, Figure, draw_bars, new_figure
from benchmarks.tables import Table

__all__ = ["draw_precision", "precision_tables"]

COLUMNS = (
    ("sonic", "output"),
    ("sonic", "grad x"),
    ("sonic", "grad weights"),
    ("sonic", "grad modes"),
    ("conv", "output"),
    ("conv", "grad x"),
    ("conv", "grad weights"),
)
LABELS = {"sonic": "Sonic", "conv": "convolution"}
PARTS = {"total": "Total error", "arithmetic": "Error of the arithmetic only"}
NOTE = {
    "total": "max|a - b| / max|b| relative to float64 with unrounded weights and input; largest tensor of a kind.",
    "arithmetic": "The same, relative to float64 with rounded weights and input.",
}


def precision_tables(result: dict) -> list[Table]:
    rows = result["rows"]
    settings = list(dict.fromkeys(row["setting"] for row in rows))
    sizes = list(dict.fromkeys(tuple(row["size"]) for row in rows))
    headers = [f"{LABELS[module]}: {kind}" for module, kind in COLUMNS]
    tables = []
    for part, title in PARTS.items():
        cells = [[setting, *[_cell(_mean(rows, part, setting, *c)) for c in COLUMNS]] for setting in settings]
        note = f"{NOTE[part]} Geometric mean over {len(sizes)} sizes and {result['draws']} draws."
        tables.append(Table(f"{title}, over all sizes", ["numbers", *headers], cells, [note]))
    cells = []
    for size in sizes:
        own = [row for row in rows if tuple(row["size"]) == size]
        name = " x ".join(map(str, size))
        cells += [[name, setting, *[_cell(_mean(own, "total", setting, *c)) for c in COLUMNS]] for setting in settings]
    shape = (
        f"{result['channels']} channels, {result['modes']} modes, batch {result['batch']}; 3-wide circular convolution."
    )
    tables.append(Table(f"{PARTS['total']} at each size", ["size", "numbers", *headers], cells, [shape], left=2))
    return [*tables, *_skipped(rows)]


def _mean(rows: list[dict], part: str, setting: str, module: str, kind: str) -> float | None:
    chosen = [row for row in rows if (row["setting"], row["module"]) == (setting, module) and part in row]
    errors = [row[part][kind] for row in chosen if kind in row[part]]
    return geometric_mean(errors) if errors else None


def _cell(error: float | None) -> str:
    return "-" if error is None else f"{error:.1e}"


def _skipped(rows: list[dict]) -> list[Table]:
    found = [
        [" x ".join(map(str, row["size"])), row["setting"], LABELS[row["module"]], row["skipped"]]
        for row in rows
        if "skipped" in row
    ]
    return [Table("Not measured", ["size", "numbers", "layer", "reason"], found, left=4)] if found else []


def draw_precision(result: dict) -> Figure:
    """Total errors as bars, one cluster for each setting."""
    rows = result["rows"]
    settings = list(dict.fromkeys(row["setting"] for row in rows))
    shown = {f"{LABELS[module]}: {kind}": (module, kind) for module, kind in COLUMNS}
    colours = dict(zip(shown, COLOURS.values(), strict=False))
    bars = {label: [_mean(rows, "total", setting, *key) for setting in settings] for label, key in shown.items()}
    figure, (panel,) = new_figure(1, 1, width=10, height=4.4)
    draw_bars(panel, settings, bars, colours)
    panel.set_yscale("log")
    panel.set(title="Error relative to float64, including rounding of weights and input", ylabel="max|a - b| / max|b|")
    panel.legend(frameon=False, loc="center left", bbox_to_anchor=(1.01, 0.5))
    return figure
