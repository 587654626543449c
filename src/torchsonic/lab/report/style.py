"""Common style of figures: the Okabe-Ito palette, which is safe for colour-blind readers; learning curves."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from torchsonic.lab.data.synthetic.shapes import KINDS
from torchsonic.lab.training.loggers import read_log

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure


CLASSES = ("#15181c", "#56B4E9", "#F0E442", "#009E73", "#D55E00", "#CC79A7")
ANSWERS = {0: ("other", "#D55E00"), 1: ("one pair", "#0072B2")}
# Colour and marker of an operator, the same in all reports; a longer name stands before one that it holds.
OPERATORS = {
    "gfnet": ("#56B4E9", "P"),
    "niff": ("#009E73", "v"),
    "s4nd": ("#E69F00", "D"),
    "vit": ("#CC79A7", "^"),
    "replk": ("#000000", "X"),
    "dilated": ("#777777", "*"),
    "resnet50_sonic": ("#332288", "h"),
    "sonicnet": ("#0072B2", "o"),
    "sonic": ("#0072B2", "o"),
    "resnet50": ("#D55E00", "s"),
    "convnet": ("#D55E00", "s"),
}


def label_colours(label: Tensor) -> NDArray[np.float64]:
    """Classes ``(H, W)`` as colours ``(H, W, 3)``."""
    return np.array([_rgb(colour) for colour in CLASSES])[label.numpy()]


def _rgb(colour: str) -> list[float]:
    return [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]


def show_image(panel: Axes, picture: Tensor | NDArray[np.float64]) -> None:
    """Show an image ``(3, H, W)`` or colours ``(H, W, 3)``, each pixel a square."""
    shown = picture.movedim(0, -1).clamp(0, 1).numpy() if isinstance(picture, Tensor) else picture
    panel.imshow(shown, interpolation="nearest")
    panel.set(xticks=[], yticks=[])
    for spine in panel.spines.values():
        spine.set(linewidth=0.4, color="0.5")


def show_colour(panel: Axes, colour: str, *, edge: str) -> None:
    """Fill a panel with one colour and frame it in another."""
    show_image(panel, np.array([[_rgb(colour)]]))
    panel.set_aspect("auto")
    for spine in panel.spines.values():
        spine.set(color=edge, linewidth=1.2)


def class_legend(figure: Figure | SubFigure, **place: Any) -> None:
    """Which colour is which class."""
    from matplotlib.patches import Patch

    handles = [Patch(facecolor=colour, edgecolor="0.5") for colour in CLASSES]
    width = figure.bbox.width / figure.figure.dpi  # of a part, too; a name and its patch take about 1.2 inches
    figure.legend(handles, KINDS, ncols=min(len(KINDS), max(2, int(width / 1.2))), frameon=False, **place)


def mark_patch(panel: Axes) -> None:
    """Frame the two central pixels of an image of 64, with a little room round them."""
    from matplotlib.patches import Rectangle

    panel.add_patch(Rectangle((29.5, 29.5), 4, 4, fill=False, edgecolor="#F0E442", linewidth=1.1))


def plain(text: str) -> str:
    """A text with escaped dollar signs, so that matplotlib sees no formula."""
    return text.replace("$", r"\$")


SMOOTHED = 0.04
"""Fraction of a run over which a curve is averaged."""


def read_losses(path: Path) -> tuple[tuple[int, float], ...]:
    """Steps and losses from a log, which may be missing; losses that are not positive numbers are left out."""
    lines = read_log(path) if path.exists() else []
    found = [(line.get("step"), line.get("loss")) for line in lines if isinstance(line, dict)]
    return tuple(
        (step, loss)
        for step, loss in found
        if isinstance(step, int) and isinstance(loss, float) and math.isfinite(loss) and loss > 0
    )


def smooth(losses: Sequence[tuple[int, float]]) -> dict[int, float]:
    """A running mean, over fewer lines at the ends."""
    steps, values = zip(*losses, strict=True)
    window = np.ones(2 * int(SMOOTHED * len(values) / 2) + 1)
    means = np.convolve(values, window, "same") / np.convolve(np.ones(len(values)), window, "same")
    return dict(zip(steps, means.tolist(), strict=True))


def draw_band(panel: Axes, curves: Sequence[dict[int, float]], style: dict[str, Any]) -> Any:
    """The mean of curves over steps, and the band from the lowest to the highest."""
    steps = sorted({step for curve in curves for step in curve})
    values = [[curve[step] for curve in curves if step in curve] for step in steps]
    colour, means = style["color"], [sum(each) / len(each) for each in values]
    (line,) = panel.plot(steps, means, linewidth=1.6, color=colour, linestyle=style["linestyle"])
    if len(curves) > 1:
        low, high = [min(each) for each in values], [max(each) for each in values]
        panel.fill_between(steps, low, high, color=colour, alpha=0.18, linewidth=0)
    return line


def log_scale(panel: Axes) -> None:
    """A logarithmic vertical axis labelled in plain numbers, at least three of them."""
    from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

    low, high = panel.get_ylim()
    panel.set_yscale("log")
    fine = (1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0) if high < 10 * max(low, 1e-9) else (1.0, 2.0, 5.0)
    panel.yaxis.set_major_locator(LogLocator(subs=fine))
    panel.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    panel.yaxis.set_minor_formatter(NullFormatter())
