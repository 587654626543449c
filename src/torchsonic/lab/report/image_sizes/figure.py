"""Accuracy and its loss over image sizes, with the paper's curve."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from textwrap import fill
from typing import TYPE_CHECKING, Any

from torchsonic.lab.report.image_sizes.results import PAPER_TRAIN_SIZE, SizeReport, paper_curves
from torchsonic.lab.report.style import OPERATORS, plain
from torchsonic.viz.style import new_figure, thin_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PAPER = {"ResNet-50": "resnet50", "NIFF": "niff", "GFNet": "gfnet", "SONIC": "sonic"}
DASHES = ("-", "--", "-.")
WIDTH, LINE = 12.0, 0.18
"""Inches of the figure, and of a line of its legend."""
ACROSS, LONGEST = 190, 80
"""Letters that a line of the legend has room for, and the most of one name before it is broken."""


def draw_sizes(report: SizeReport) -> Figure:
    """Left: top-1 over pixels. Right: percent lost over the ratio to the training size; faint lines are the paper's.

    Only squares have a place on these axes.
    """
    names = [fill(plain(curve.name), LONGEST) for curve in report.curves]
    columns, lines = _legend_shape([*names, *map(_paper_name, paper_curves())])
    figure = new_figure(WIDTH, 4.8 + LINE * lines)
    left, right = figure.subplots(1, 2)
    styles = _styles(report)
    for curve, name in zip(report.curves, names, strict=True):
        look = {"elinewidth": 0.7, "capsize": 2, **styles[curve.name]}
        points = [(point.size, point) for point in curve.points if isinstance(point.size, int)]
        sizes, shares, bars = _bars([(n, 100 * p.top1, [100 * x for x in p.top1_interval]) for n, p in points])
        left.errorbar(sizes, shares, bars, label=name, **look)
        known = [(n / curve.train_size, p.loss, p.loss_interval) for n, p in points if not math.isnan(p.loss)]
        ratios, losses, bars = _bars(known)
        right.errorbar(ratios, losses, bars, **look)
    for size in sorted({curve.train_size for curve in report.curves}):
        left.axvline(size, color="0.8", linewidth=1, zorder=0)
    _draw_paper(right)
    right.axvline(1.0, color="0.8", linewidth=1, zorder=0)
    right.axhline(0.0, color="0.6", linewidth=0.8, zorder=0)
    left.set(xlabel="test image size, px", ylabel="top-1, percent", title="Accuracy")
    squares = [size for size in report.sizes if isinstance(size, int)]
    _set_sizes(left, squares, {curve.train_size for curve in report.curves})
    right.set(xlabel="test size / training size", ylabel="loss of top-1, percent", title="Relative degradation")
    if _is_wide(squares):
        right.set_xscale("log", base=2)
        right.xaxis.set_major_formatter("{x:g}")
    for panel in (left, right):
        thin_axes(panel)
    entries = [panel.get_legend_handles_labels() for panel in (left, right)]
    handles, names = ([*first, *second] for first, second in zip(*entries, strict=True))
    figure.legend(handles, names, loc="outside lower center", ncols=columns, frameon=False, fontsize="small")
    return figure


def _bars(points: Sequence[tuple[float, float, Sequence[float]]]) -> tuple[list[float], list[float], list[list[float]]]:
    """Places, values, and how far their intervals reach below and above."""
    places, values = [place for place, _, _ in points], [value for _, value, _ in points]
    low = [max(0.0, value - interval[0]) for _, value, interval in points]
    high = [max(0.0, interval[1] - value) for _, value, interval in points]
    return places, values, [low, high]


def _legend_shape(names: Sequence[str]) -> tuple[int, int]:
    """As many columns as fit beside each other, at most three, and the lines of text in the longest of them."""
    widest = max(len(line) for name in names for line in name.splitlines())
    columns = max(1, min(3, ACROSS // (widest + 9)))  # nine for the marker
    rows = math.ceil(len(names) / columns)
    parts = [names[start : start + rows] for start in range(0, len(names), rows)]
    return columns, max(sum(name.count("\n") + 1 for name in part) for part in parts)


def _is_wide(sizes: Sequence[int]) -> bool:
    """Whether small sizes would be crowded on a linear axis."""
    return max(sizes) > 4 * min(sizes)


def _set_sizes(panel: Axes, sizes: Sequence[int], trained: Collection[int]) -> None:
    """Ticks at the tested sizes, with numbers where these have room, at the training sizes first."""
    scale = math.log if _is_wide(sizes) else float
    if scale is math.log:
        panel.set_xscale("log", base=2)
    room = (scale(max(sizes)) - scale(min(sizes))) / 15
    named: list[int] = []
    for size in sorted(sizes, key=lambda size: size not in trained):
        if all(abs(scale(size) - scale(other)) >= room for other in named):
            named.append(size)
    panel.set_xticks(sizes, [str(size) if size in named else "" for size in sizes])
    panel.set_xticks([], minor=True)


def _paper_name(name: str) -> str:
    return f"paper, {name} ({PAPER_TRAIN_SIZE} px)"


def _draw_paper(panel: Axes) -> None:
    for name, losses in paper_curves().items():
        colour, marker = OPERATORS[PAPER[name]]
        ratios = [size / PAPER_TRAIN_SIZE for size in losses]
        look = {"color": colour, "marker": marker, "alpha": 0.35, "linestyle": (0, (5, 2)), "markersize": 6}
        panel.plot(ratios, list(losses.values()), linewidth=1.4, label=_paper_name(name), **look)


def _styles(report: SizeReport) -> dict[str, dict[str, Any]]:
    """Colour by operator, line style by network; hollow for networks without the spacing and for controls."""
    seen: dict[str, list[str]] = {}
    styles = {}
    for curve in report.curves:
        full = curve.runs[0].config.model or curve.model
        operator = next((operator for operator in OPERATORS if operator in full), "sonic")
        names = seen.setdefault(operator, [])
        if curve.model not in names:
            names.append(curve.model)
        colour, marker = OPERATORS[operator]
        hollow = curve.told is False or curve.resized
        styles[curve.name] = {
            "color": colour,
            "marker": marker,
            "linestyle": ":" if hollow else DASHES[names.index(curve.model) % len(DASHES)],
            "markerfacecolor": "white" if hollow else colour,
            "markersize": 5.5,
            "linewidth": 2.0 if curve.told else 1.4,
        }
    return styles
