"""Tables and figure of the predicted times, from their result."""

from __future__ import annotations

from benchmarks.figures import COLOURS, Figure, draw_bars, new_figure
from benchmarks.tables import Table, milliseconds, written

__all__ = ["draw_roofline", "roofline_tables"]

LABELS = {"sonic": "Sonic", "paper_order": "paper's order", "conv3": "3x3 convolution", "attention": "attention"}
ASSUMED = (
    "Predicted, not measured. Each operation takes the longest of three times: moving its bytes at the published "
    "bandwidth, computing its FLOPs at the published float32 peak without tensor cores, and being launched. Operations "
    "and bytes were counted on a simulated CUDA device; attention by formula, without storing the pixel-by-pixel "
    "matrix. Libraries do not reach these rates, so real times are longer. Convolutions can be faster, since cuDNN may "
    "use tensor cores at lower precision (TF32)."
)


def roofline_tables(result: dict) -> list[Table]:
    rows = result["rows"]
    devices = [name for name in result["devices"] if name != "this CPU"]
    cells = [
        [row["size"], LABELS[row["contender"]], *[milliseconds(row["predicted"][name]) for name in devices]]
        for row in rows
    ]
    counted = [
        [row["size"], LABELS[row["contender"]], str(row["operations"]), f"{row['bytes'] / 1e6:,.0f}",
         f"{row['flops'] / 1e9:,.1f}"]
        for row in rows
    ]  # fmt: skip
    rates = [
        [name, f"{d['bandwidth'] / 1e9:,.0f}", f"{d['peak'] / 1e12:,.2f}", f"{1e6 * d['launch']:.0f}"]
        for name, d in result["devices"].items()
    ]
    sizes = "Sizes are named dimensions-channels-modes-samples; batch 8 in 2-D, 4 in 3-D."
    return [
        Table("Predicted training step, ms", ["size", "contender", *devices], cells, [ASSUMED, sizes], left=2),
        _trust(rows),
        Table("Counted on CUDA", ["size", "contender", "operations", "MB moved", "GFLOP"], counted, left=2),
        Table(
            "Rates", ["device", "GB/s", "TFLOP/s", "launch, us"], rates,
            ["Published values; those of this CPU are measured by a copy, a matrix product and a convolution."],
        ),
    ]  # fmt: skip


def _trust(rows: list[dict]) -> Table:
    """Prediction and measurement on this CPU."""
    cells = [
        [row["size"], LABELS[row["contender"]], milliseconds(row["cpu_predicted"]), milliseconds(row["cpu_measured"]),
         written(row["cpu_measured"] / row["cpu_predicted"], ".1f", "x")]
        for row in rows if row["cpu_measured"] is not None
    ]  # fmt: skip
    headers = ["size", "contender", "predicted, ms", "measured, ms", "ratio"]
    note = "A check of the method: prediction and measurement on this CPU."
    return Table("This CPU, predicted and measured", headers, cells, [note], left=2)


def draw_roofline(result: dict) -> Figure:
    """Predicted times relative to the convolution, one panel for each device."""
    rows = result["rows"]
    devices = [name for name in result["devices"] if name != "this CPU"]
    sizes = list(dict.fromkeys(row["size"] for row in rows))
    found = {(row["size"], row["contender"]): row["predicted"] for row in rows}
    figure, panels = new_figure(len(devices), 1, width=9, height=2.4 * len(devices))
    colours = {label: COLOURS.get(name, COLOURS["vit"]) for name, label in LABELS.items()}
    for panel, device in zip(panels, devices, strict=True):
        bars = {
            label: [found[size, name][device] / found[size, "conv3"][device] for size in sizes]
            for name, label in LABELS.items()
        }
        draw_bars(panel, sizes, bars, colours, baseline=1.0)
        panel.set_yscale("log")
        panel.set(title=f"{device}, predicted", ylabel="relative to convolution")
    panels[0].legend(frameon=False, ncols=4, fontsize="small")
    return figure
