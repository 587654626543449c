"""Accuracy and its loss over image sizes, with the paper's curve."""

from __future__ import annotations

import math
from collections.abc import Sequence
from textwrap import fill
from typing import TYPE_CHECKING, Any

from torchsonic.lab.report.image_sizes.results import Curve, SizeReport
from torchsonic.lab.report.image_sizes.verdicts import PAPER_TRAIN_SIZE, paper_curves
from torchsonic.lab.report.style import new_figure, plain, thin_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["draw_sizes"]

# Okabe-Ito; operators have the colours they have in the other reports.
OPERATORS = {
    "gfnet": ("#56B4E9", "P"),
    "niff": ("#009E73", "v"),
    "s4nd": ("#E69F00", "D"),
    "vit": ("#CC79A7", "^"),
    "replk": ("#000000", "X"),
    "dilated": ("#777777", "*"),
    "resnet50_sonic": ("#332288", "h"),
    "sonic": ("#0072B2", "o"),
    "resnet50": ("#D55E00", "s"),
}
PAPER = {"ResNet-50": "resnet50", "NIFF": "niff", "GFNet": "gfnet", "SONIC": "sonic"}
DASHES = ("-", "--", "-.")
WIDTH, LINE = 12.0, 0.18
"""Inches of the figure, and of a line of its legend."""
ACROSS, LONGEST = 190, 80
"""Letters that a line of the legend has room for, and the most of one name before it is broken."""


def draw_sizes(report: SizeReport) -> Figure:
    """Left: top-1 over pixels. Right: percent lost over the ratio to the training size; faint lines are the paper's."""
    names = [fill(plain(curve.name), LONGEST) for curve in report.curves]
    columns, lines = _legend_shape([*names, *map(_paper_name, paper_curves())])
    figure = new_figure(WIDTH, 4.8 + LINE * lines)
    left, right = figure.subplots(1, 2)
    styles = _styles(report)
    for curve, name in zip(report.curves, names, strict=True):
        look = styles[curve.name]
        low = [100 * (point.top1 - point.top1_interval[0]) for point in curve.points]
        high = [100 * (point.top1_interval[1] - point.top1) for point in curve.points]
        sizes, shares = [point.size for point in curve.points], [100 * point.top1 for point in curve.points]
        left.errorbar(sizes, shares, [low, high], elinewidth=0.7, capsize=2, label=name, **look)
        known = [point for point in curve.points if not math.isnan(point.loss)]
        bars = [
            [max(0.0, point.loss - point.loss_interval[0]) for point in known],
            [max(0.0, point.loss_interval[1] - point.loss) for point in known],
        ]
        ratios, losses = [point.size / curve.train_size for point in known], [point.loss for point in known]
        right.errorbar(ratios, losses, bars, elinewidth=0.7, capsize=2, **look)
    for size in sorted({curve.train_size for curve in report.curves}):
        left.axvline(size, color="0.8", linewidth=1, zorder=0)
    _draw_paper(right)
    right.axvline(1.0, color="0.8", linewidth=1, zorder=0)
    right.axhline(0.0, color="0.6", linewidth=0.8, zorder=0)
    left.set(xlabel="image size in the test, px", ylabel="top-1, percent", title="Accuracy")
    _set_sizes(left, report)
    right.set(xlabel="test size / training size", ylabel="top-1 lost, percent", title="Relative degradation")
    if _is_wide(report.sizes):
        right.set_xscale("log", base=2)
        right.xaxis.set_major_formatter("{x:g}")
    for panel in (left, right):
        thin_axes(panel)
    handles, names = left.get_legend_handles_labels()
    faint = right.get_legend_handles_labels()
    figure.legend(
        [*handles, *faint[0]],
        [*names, *faint[1]],
        loc="outside lower center",
        ncols=columns,
        frameon=False,
        fontsize="small",
    )
    return figure


def _legend_shape(names: Sequence[str]) -> tuple[int, int]:
    """As many columns as fit beside each other, at most three, and the lines of text in the longest of them."""
    widest = max(len(line) for name in names for line in name.splitlines())
    columns = max(1, min(3, ACROSS // (widest + 9)))  # nine for the marker
    rows = math.ceil(len(names) / columns)
    parts = [names[start : start + rows] for start in range(0, len(names), rows)]
    return columns, max(sum(name.count("\n") + 1 for name in part) for part in parts)


def _is_wide(sizes: Sequence[int]) -> bool:
    """Whether small sizes would lie on a heap on an even axis."""
    return max(sizes) > 4 * min(sizes)


def _set_sizes(panel: Axes, report: SizeReport) -> None:
    """Ticks at the tested sizes, with numbers where these have room, at the training sizes first."""
    sizes, scale = report.sizes, math.log if _is_wide(report.sizes) else float
    if scale is math.log:
        panel.set_xscale("log", base=2)
    room = (scale(max(sizes)) - scale(min(sizes))) / 15
    named: list[int] = []
    trained = {curve.train_size for curve in report.curves}
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


def _operator(curve: Curve) -> str:
    name = curve.runs[0].config.model or curve.model
    if name.startswith("resnet50_sonic"):
        return "resnet50_sonic"
    return next((operator for operator in OPERATORS if operator in name), "sonic")


def _styles(report: SizeReport) -> dict[str, dict[str, Any]]:
    """Colour by operator, another line for each further network of it; hollow: what is not told, and controls."""
    seen: dict[str, list[str]] = {}
    styles = {}
    for curve in report.curves:
        operator = _operator(curve)
        names = seen.setdefault(operator, [])
        if curve.model not in names:
            names.append(curve.model)
        colour, marker = OPERATORS[operator]
        hollow = curve.told is False or curve.resized
        line = ":" if hollow else DASHES[names.index(curve.model) % len(DASHES)]
        face = "white" if hollow else colour
        styles[curve.name] = {
            "color": colour,
            "marker": marker,
            "linestyle": line,
            "markerfacecolor": face,
            "markersize": 5.5,
            "linewidth": 2.0 if curve.told else 1.4,
        }
    return styles
