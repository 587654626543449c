"""Learning curves, as every report reads and draws them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from torchsonic.lab.training.loggers import read_log

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SMOOTHED = 0.04
"""Part of a run over which a curve is averaged."""


def read_losses(path: Path) -> tuple[tuple[int, float], ...]:
    """Step and loss, from a log that may be missing; what is not a positive number is left out."""
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
