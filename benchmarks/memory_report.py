"""Tables and figure of the memory benchmark, from its result."""

from __future__ import annotations

from benchmarks.figures import COLOURS, Figure, new_figure
from benchmarks.tables import Table, verdict

__all__ = ["draw_memory", "memory_tables"]

GOAL = 3e9
SHADES = ("sonic", "sonic_recompute", "conv3")


def _megabytes(count: float) -> str:
    return f"{count / 1e6:,.1f}"


def memory_tables(result: dict) -> list[Table]:
    case = result["case"]
    rows = [
        [row["setting"], str(row["modes"]), _megabytes(row["measured"]), _megabytes(row["estimated"])]
        for row in result["sweep"]
    ]
    cube = f"{case['channels']} channels, {case['size']} x {case['size']} x {case['size']} voxels, batch 1"
    note = f"{cube}; forward and backward, in addition to input, weights and the gradient of the output."
    return [
        Table(
            "Peak memory over the number of modes", ["setting", "modes", "measured, MB", "estimated, MB"], rows, [note]
        ),
        *_large_tables(result["large"], case),
    ]


def _large_tables(large: dict, case: dict) -> list[Table]:
    n = case["large_size"]
    name = f"{case['large_channels']} channels, {case['large_modes']} modes, {n} x {n} x {n} voxels, batch 1"
    met = large["process"] <= GOAL if n == 128 else None
    rows = [
        ["step, in addition to the following", _megabytes(large["peak"]), ""],
        ["input, weights and the gradient of the output", _megabytes(large["held"]), ""],
        ["total of both", _megabytes(large["peak"] + large["held"]), verdict(large["peak"] + large["held"] <= GOAL)],
        ["whole process, including PyTorch", _megabytes(large["process"]), verdict(met)],
    ]
    text = f"{name}, mode_chunk={large['mode_chunk']}; forward and backward took {large['seconds']:.0f} s."
    estimates = [[str(row["mode_chunk"]), _megabytes(row["estimated"])] for row in large["estimates"]]
    return [
        Table("A large layer", ["memory", "MB", f"goal {GOAL / 1e9:.0f} GB"], rows, [text]),
        Table("The same layer, estimated for each chunk", ["mode_chunk", "step, MB"], estimates, [name + "."]),
    ]


def draw_memory(result: dict) -> Figure:
    """Peaks over the number of modes: a straight line, a lower one, and none."""
    figure, (panel,) = new_figure(1, 1, width=7, height=4)
    settings = list(dict.fromkeys(row["setting"] for row in result["sweep"]))
    for setting, shade in zip(settings, SHADES, strict=True):
        rows = [row for row in result["sweep"] if row["setting"] == setting]
        modes = [row["modes"] for row in rows]
        panel.plot(modes, [row["measured"] / 1e6 for row in rows], "o-", color=COLOURS[shade], label=setting)
        panel.plot(modes, [row["estimated"] / 1e6 for row in rows], "--", color="0.3", linewidth=0.8)
    panel.plot([], [], "--", color="0.3", linewidth=0.8, label="estimated")
    panel.set_ylim(0, None)
    n = result["case"]["size"]
    panel.set(title=f"A training step on {n} x {n} x {n} voxels", xlabel="modes M", ylabel="peak memory, MB")
    panel.legend(frameon=False)
    return figure
