"""Tables and figure of the scaling benchmark, from its result."""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.figures import COLOURS, Figure, new_figure, use_log_scale
from benchmarks.tables import Table, milliseconds, written

__all__ = ["draw_scaling", "scaling_tables"]

LABELS = {"sonic": "Sonic", "sonic_recompute": "Sonic, recompute", "conv3": "3x3 convolution", "vit": "ViT"}
PAPER_NAMES = {"sonic": "SONIC", "conv3": "Conv3x3", "vit": "ViT"}
MARKERS = {"sonic": "o", "sonic_recompute": "D", "conv3": "s", "vit": "^"}
QUANTITIES = {"best_s": "block_runtime_ms", "peak_bytes": "block_peak_memory_mb"}
# Of the stored value, its unit, and what the axis says.
UNITS = {"best_s": (1e3, "ms", "time per training step"), "peak_bytes": (1e-6, "MB", "peak memory")}
AXES = {"channels": "channels C", "modes": "modes M"}


COMPARED = ("sonic", "sonic_recompute", "vit")


def _sources(block: str) -> list[tuple[str, Callable[[dict, str, str], dict[int, float]]]]:
    """Our figures, and the paper's where it measured such a block."""
    return [("here", _own), *([("paper, GPU", _paper)] if block in PAPER_NAMES else [])]


def _own(result: dict, block: str, key: str) -> dict[int, float]:
    return {point["pixels"]: point[key] for point in result["resolution"]["blocks"][block]}


def _paper(result: dict, block: str, key: str) -> dict[int, float]:
    figures = result["paper"][QUANTITIES[key]]
    return dict(zip(figures["resolutions"], figures[PAPER_NAMES[block]], strict=True))


def _ratio(over: dict[int, float], under: dict[int, float]) -> dict[int, float]:
    return {px: value / under[px] for px, value in over.items() if px in under}


def _setting(result: dict) -> str:
    resolution = result["resolution"]
    return (
        f"Batch {resolution['batch']}, C = {resolution['channels']}, M = {resolution['modes']}. Sonic and convolution: "
        "operator, GroupNorm(8), + identity, ReLU. ViT: embedding of 4x4 patches, one block with 4 heads and MLP ratio "
        "4. Forward + backward, best time; peak of allocated bytes, including parameters and input."
    )


def scaling_tables(result: dict) -> list[Table]:
    stopped = [f"{LABELS[name]} stops {reason}." for name, reason in result["resolution"]["stopped"].items()]
    return [
        Table("Cost over the image size", *_resolution_rows(result), [_setting(result), *stopped]),
        _ratio_table(result),
        _fit_table(result),
    ]


def _resolution_rows(result: dict) -> tuple[list[str], list[list[str]]]:
    headers = ["pixels", *[f"{LABELS[b]}, ms" for b in LABELS], *[f"{LABELS[b]}, MB" for b in LABELS]]
    times, peaks = ({block: _own(result, block, key) for block in LABELS} for key in QUANTITIES)
    rows = [
        [
            str(px),
            *[milliseconds(times[block].get(px)) for block in LABELS],
            *[written(None if px not in peaks[block] else peaks[block][px] / 1e6, ".1f") for block in LABELS],
        ]
        for px in times["sonic"]
    ]
    return headers, rows


def _ratio_table(result: dict) -> Table:
    headers, columns = ["pixels"], []
    for key, what in (("best_s", "time"), ("peak_bytes", "memory")):
        for block in COMPARED:
            for source, read in _sources(block):
                headers.append(f"{what} {LABELS[block]} / conv, {source}")
                columns.append(_ratio(read(result, block, key), read(result, "conv3", key)))
    rows = [[str(px), *[written(column.get(px)) for column in columns]] for px in _own(result, "sonic", "best_s")]
    return Table("Ratios to the 3x3 convolution block", headers, rows, [])


def _fit_table(result: dict) -> Table:
    rows = []
    for name, sweep in result["sweeps"].items():
        fixed = ", ".join(f"{key} {value}" for key, value in sweep["fixed"].items())
        for key, fit in sweep["fits"].items():
            scale, unit, _ = UNITS[key]
            span = f"{sweep['values'][0]} .. {sweep['values'][-1]}"
            slope = f"{scale * fit['slope']:.4g} {unit} per {name.removesuffix('s')}"
            rows.append([f"{name} {span}", fixed, slope, f"{fit['r2']:.4f}"])
    return Table("Linear fits to the cost of the Sonic block", ["over", "at", "slope", "R^2"], rows, left=2)


def draw_scaling(result: dict) -> Figure:
    """Upper row: time and memory over pixels, and their ratios to convolution beside the paper's. Lower row: fits."""
    figure, panels = new_figure(2, 4, width=17.0, height=8.0)
    for panel, key in zip((panels[0], panels[1]), QUANTITIES, strict=True):
        _draw_resolution(panel, result, key)
    for panel, key in zip((panels[2], panels[3]), QUANTITIES, strict=True):
        _draw_ratios(panel, result, key)
    places = [(name, key) for name in AXES for key in QUANTITIES]
    for panel, (name, key) in zip(panels[4:], places, strict=True):
        _draw_fit(panel, result["sweeps"][name], name, key)
    return figure


def _pixel_axis(panel) -> None:
    panel.set_xscale("log", base=2)
    ticks = (64, 128, 256, 512)
    panel.set_xlim(58, 565)
    panel.set_xticks(ticks, [str(px) for px in ticks])
    panel.set_xlabel("image size, pixels per side")


def _draw_resolution(panel, result: dict, key: str) -> None:
    scale, unit, what = UNITS[key]
    for block, label in LABELS.items():
        points = _own(result, block, key)
        values = [scale * value for value in points.values()]
        panel.plot(list(points), values, marker=MARKERS[block], color=COLOURS[block], label=label)
    use_log_scale(panel)
    _pixel_axis(panel)
    panel.set_ylabel(f"{what}, {unit}")
    panel.set_title(f"{what[0].upper()}{what[1:]}")
    panel.legend(frameon=False)


def _draw_ratios(panel, result: dict, key: str) -> None:
    _, _, what = UNITS[key]
    for block in COMPARED:
        for source, read in _sources(block):
            points = _ratio(read(result, block, key), read(result, "conv3", key))
            style, marker = ("-", MARKERS[block]) if source == "here" else ("--", None)
            label = f"{LABELS[block]}, {source}"
            panel.plot(list(points), list(points.values()), style, marker=marker, color=COLOURS[block], label=label)
    panel.axhline(1.0, color=COLOURS["conv3"], linewidth=1.0, label="3x3 convolution")
    if key == "best_s":
        use_log_scale(panel)
    else:  # the legend serves the panel beside it as well, which has no room
        panel.set_ylim(0, None)
        panel.legend(frameon=False, fontsize="small", loc="lower left")
    _pixel_axis(panel)
    panel.set_ylabel("ratio to 3x3 convolution")
    panel.set_title(f"{what[0].upper()}{what[1:]}, ratio to convolution")


def _draw_fit(panel, sweep: dict, name: str, key: str) -> None:
    scale, unit, what = UNITS[key]
    values, fit = sweep["values"], sweep["fits"][key]
    panel.plot(values, [scale * value for value in sweep[key]], "o", color=COLOURS["sonic"])
    line = [scale * (fit["intercept"] + fit["slope"] * value) for value in values]
    slope = f"{scale * fit['slope']:.3g} {unit} per {name.removesuffix('s')}, R² = {fit['r2']:.3f}"
    panel.plot(values, line, color="black", linewidth=1.0, label=slope)
    panel.set_ylim(0, 1.08 * scale * max(sweep[key]))
    panel.set_xlabel(AXES[name])
    panel.set_ylabel(f"{what}, {unit}")
    fixed = ", ".join(
        f"{value} {key}" if key == "pixels" else f"{key} {value}" for key, value in sweep["fixed"].items()
    )
    panel.set_title(f"Sonic block, {fixed}", fontsize="medium")
    panel.legend(frameon=False, loc="lower right")
