"""Common look of the figures: the Okabe-Ito palette, which colour-blind readers can tell apart."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torchsonic.viz import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
else:  # matplotlib is loaded when something is drawn
    Figure = Any

__all__ = ["COLOURS", "Figure", "draw_bars", "new_figure", "sign_figure", "use_log_scale"]

COLOURS = {
    "sonic": "#0072B2",
    "sonic_recompute": "#56B4E9",
    "sonic_cached": "#009E73",
    "paper_order": "#E69F00",
    "conv3": "#D55E00",
    "depthwise31": "#CC79A7",
    "neuralop": "#F0E442",
    "vit": "#CC79A7",
}


def new_figure(rows: int, columns: int, *, width: float, height: float) -> tuple[Figure, list[Axes]]:
    """A figure that no window shows, and its panels in reading order."""
    figure = style.new_figure(width, height)
    panels = figure.subplots(rows, columns, squeeze=False).ravel().tolist()
    for panel in panels:
        style.thin_axes(panel)
    return figure, panels


def draw_bars(
    panel: Axes,
    names: list[str],
    bars: dict[str, list[float | None]],
    colours: dict[str, str],
    *,
    baseline: float | None = None,
) -> None:
    """One cluster of bars for each name; a missing value leaves its place empty."""
    width = 0.8 / len(bars)
    for number, (label, values) in enumerate(bars.items()):
        found = [(index, value) for index, value in enumerate(values) if value is not None]
        positions = [index + (number - (len(bars) - 1) / 2) * width for index, _ in found]
        heights = [value for _, value in found]
        panel.bar(positions, heights, width, label=label, color=colours[label], edgecolor="black", linewidth=0.4)
    if baseline is not None:
        panel.axhline(baseline, color="0.3", linewidth=1.0, zorder=0.5)
    panel.set_xticks(range(len(names)), names)
    panel.set_xlim(-0.6, len(names) - 0.4)


def use_log_scale(panel: Axes) -> None:
    """A logarithmic vertical axis labelled in plain numbers."""
    from matplotlib.ticker import LogLocator, NullLocator, StrMethodFormatter

    panel.set_yscale("log")
    panel.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    panel.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    panel.yaxis.set_minor_locator(NullLocator())


def sign_figure(figure: Figure, run: dict) -> Figure:
    """Put the origin underneath."""
    commit = (run["commit"] or "unknown")[:10] + (" (dirty)" if run["dirty"] else "")
    machine = run["cpu"] if run["device"] == "cpu" else run["device"]
    text = f"{machine}, {run['threads']} threads, torch {run['torch']}, commit {commit}"
    figure.supxlabel(text, fontsize="small", color="0.4")
    return figure
