"""Pictures of a case: contours of truth and predictions on slices that show the structure, and on the worst one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from torchsonic.lab.report.files import to_webp
from torchsonic.lab.report.style import plain
from torchsonic.viz.style import new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = ("#56B4E9", "#F0E442", "#CC79A7", "#009E73", "#E69F00", "#0072B2", "#D55E00")
"""The Okabe-Ito palette, which is safe for colour-blind readers; further classes reuse it from the start."""
PLACES = (0.2, 0.5, 0.8)
NEARLY_EQUAL = 1.2
MARGIN = 0.25
LEAST_MARGIN = 8.0
PANEL = 2.3
DPI = 100

Volume = NDArray[np.integer]


def choose_axis(spacing: Sequence[float]) -> int:
    """The axis to cut across: that of the coarsest spacing, and the first where all are about the same."""
    return int(np.argmax(spacing)) if max(spacing) > NEARLY_EQUAL * min(spacing) else 0


def choose_slices(label: Volume, axis: int) -> list[int]:
    """Slices at a fifth, a half and four fifths of the largest structure; the middle one of an empty volume."""
    counts = np.bincount(label.ravel())[1:]
    if not counts.any():
        return [label.shape[axis] // 2]
    others = tuple(other for other in range(3) if other != axis)
    places = np.flatnonzero((label == 1 + int(counts.argmax())).any(axis=others))
    return sorted({int(places[round(share * (len(places) - 1))]) for share in PLACES})


def worst_slice(prediction: Volume, label: Volume, axis: int) -> tuple[int, int]:
    """The slice with most wrong voxels, and how many."""
    wrong = (prediction != label).sum(axis=tuple(other for other in range(3) if other != axis))
    place = int(wrong.argmax())
    return place, int(wrong[place])


def crop_box(labels: Sequence[Volume], axis: int, spacing: Sequence[float]) -> tuple[slice, slice]:
    """Rows and columns of a slice that hold every structure, with some room round them; all of an empty volume."""
    found = np.any([(label > 0).any(axis=axis) for label in labels], axis=0)
    steps = [step for place, step in enumerate(spacing) if place != axis]
    if not found.any():
        return slice(0, found.shape[0]), slice(0, found.shape[1])
    # The same room on all sides, so that a thin structure is not shown as a stripe.
    edges = [np.flatnonzero(found.any(axis=1 - side))[[0, -1]] for side in (0, 1)]
    extent = max((high - low + 1) * step for (low, high), step in zip(edges, steps, strict=True))
    room = max(MARGIN * extent, LEAST_MARGIN)
    low_high = [
        (max(0, int(low - room / step)), min(size, int(high + 1 + room / step)))
        for (low, high), step, size in zip(edges, steps, found.shape, strict=True)
    ]
    return slice(*low_high[0]), slice(*low_high[1])


def draw_case(
    image: NDArray[np.floating] | None,
    label: Volume,
    predictions: Mapping[str, Volume],
    spacing: Sequence[float],
    classes: Sequence[str],
) -> bytes:
    """Draw a row of slices for each model, as WebP.

    Parameters
    ----------
    image
        Background, ``(D, H, W)``; black without.
    label, predictions
        Classes, ``(D, H, W)``.
    spacing
        Millimetres along D, H and W: a pixel of the picture is as wide and high as a voxel.
    classes
        Names of the classes 1 to K - 1.
    """
    axis = choose_axis(spacing)
    steps = [step for place, step in enumerate(spacing) if place != axis]
    box = crop_box([label, *predictions.values()], axis, spacing)
    height, width = ((part.stop - part.start) * step for part, step in zip(box, steps, strict=True))
    slices = choose_slices(label if label.any() else next(iter(predictions.values())), axis)
    tall = min(2.0, max(0.5, height / width)) * PANEL
    figure = new_figure(PANEL * (len(slices) + 1) + 0.6, (tall + 0.1) * len(predictions) + 0.75)
    panels = figure.subplots(len(predictions), len(slices) + 1, squeeze=False)
    limits = (0.0, 1.0) if image is None else _window(image)
    count = label.shape[axis]
    for line, (name, prediction) in zip(panels, predictions.items(), strict=True):
        worst, wrong = worst_slice(prediction, label, axis)
        for panel, place in zip(line, [*slices, worst], strict=True):
            shown = [None if v is None else np.take(v, place, axis=axis)[box] for v in (image, label, prediction)]
            draw_slice(panel, shown, steps, limits)
        line[0].set_ylabel(plain(name), fontsize="small")
        words = f"{worst + 1}/{count}: {wrong} wrong voxels" if wrong else f"{worst + 1}/{count}: no wrong voxels"
        ground = {"facecolor": "black", "alpha": 0.6, "linewidth": 0, "pad": 2}
        look = {"va": "top", "color": "white", "fontsize": "small", "bbox": ground}
        line[-1].text(0.03, 0.97, words, transform=line[-1].transAxes, **look)
        for spine in line[-1].spines.values():
            spine.set(color="#D55E00", linewidth=1.5)
    for panel, place in zip(panels[0], slices, strict=False):
        panel.set_title(f"slice {place + 1}/{count}", fontsize="small")
    panels[0, -1].set_title("worst slice", fontsize="small")
    add_legend(figure, classes)
    return to_webp(figure, dpi=DPI)


def _window(image: NDArray[np.floating]) -> tuple[float, float]:
    """Grey values from dark to bright, without the few that are far from the others."""
    low, high = np.percentile(image, [1.0, 99.5])
    return float(low), float(max(high, low + 1e-6))


def draw_slice(
    panel: Axes, shown: Sequence[NDArray | None], steps: Sequence[float], limits: tuple[float, float]
) -> None:
    """Show an image, grey or in colours, under the contours of its label (dashed) and of a prediction."""
    image, label, prediction = shown
    assert label is not None
    assert prediction is not None
    rows, columns = label.shape
    extent = (0.0, columns * steps[1], rows * steps[0], 0.0)
    grey = np.zeros(label.shape) if image is None else image
    panel.imshow(grey, cmap="gray", vmin=limits[0], vmax=limits[1], extent=extent, interpolation="nearest")
    panel.set_facecolor("black")
    for number in range(1, int(max(label.max(), prediction.max())) + 1):
        colour = COLOURS[(number - 1) % len(COLOURS)]
        _draw_contour(panel, prediction == number, steps, colors=colour, linewidths=1.5)
        # White on a dark seam can be seen on any tissue.
        _draw_contour(panel, label == number, steps, colors="black", linewidths=1.8, alpha=0.5)
        _draw_contour(panel, label == number, steps, colors="white", linewidths=1.0, linestyles="dashed")
    panel.set(xticks=[], yticks=[], xlim=extent[:2], ylim=extent[2:])
    panel.set_aspect("equal")


def _draw_contour(panel: Axes, mask: NDArray[np.bool_], steps: Sequence[float], **look: Any) -> None:
    """Round the voxels of a mask, also those at the edge of the picture."""
    if not mask.any():
        return
    wide = np.pad(mask, 1).astype(float)
    y, x = ((np.arange(n) - 0.5) * step for n, step in zip(wide.shape, steps, strict=True))
    panel.contour(x, y, wide, levels=[0.5], **look)


def add_legend(figure: Figure, classes: Sequence[str]) -> None:
    """Which colour is which class, and what is dashed."""
    from matplotlib.lines import Line2D

    handles = [Line2D([], [], color=COLOURS[n % len(COLOURS)], linewidth=1.8) for n in range(len(classes))]
    handles.append(Line2D([], [], color="0.55", linestyle="dashed", linewidth=1.2))
    names = [*[plain(name) for name in classes], "ground truth (dashed)"]
    figure.legend(handles, names, loc="outside lower center", ncols=min(6, len(names)), frameon=False, fontsize="small")
