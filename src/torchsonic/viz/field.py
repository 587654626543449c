"""Receptive fields of networks, side by side."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch

from torchsonic.viz.receptive_field import ReceptiveField
from torchsonic.viz.slices import PLANES
from torchsonic.viz.style import (
    AXIS_NAMES,
    PALETTE,
    frame_axes,
    new_figure,
    show_map,
    styled,
    thin_axes,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["draw_receptive_fields"]

DECADES = 4.0
LINES = ("-", "--", ":", "-.")


@styled
def draw_receptive_fields(fields: Mapping[str, ReceptiveField], *, unit: str = "px") -> Figure:
    """What the middle output pixel of each network looks at, and how much of it lies how far away.

    Pictures show the sensitivity over its highest value, on a logarithmic scale of four decades; volumes are cut
    through the pixel's place, one network in each row. The curve is the part of the squared sensitivity that lies
    beyond a distance.

    Examples
    --------
    >>> conv = torch.nn.Conv2d(1, 4, 3, padding=1)
    >>> field = torchsonic.viz.receptive_field(conv, torch.randn(1, 1, 17, 17))
    >>> figure = torchsonic.viz.draw_receptive_fields({"a 3x3 convolution": field})
    """
    if not fields:
        raise ValueError("fields must hold at least one receptive field, got none")
    shown = list(fields.items())
    dimensions = {field.values.dim() for _, field in shown}
    if len(dimensions) > 1:
        raise ValueError(f"fields must all have the same number of dimensions, got {sorted(dimensions)}")
    (axes,) = dimensions
    rows, columns = (len(shown), 3) if axes == 3 else (1, len(shown))
    width = (2.1 if axes == 1 else 2.75) * columns
    figure = new_figure(width + 4.3, max(3.5, 2.5 * rows + 0.4))
    widths = [width, 4.0]
    left, right = figure.subfigures(1, 2, squeeze=False, width_ratios=widths)[0]
    left.suptitle("Sensitivity" + ("" if axes == 1 else r", $\log_{10}$"))
    panels = left.subplots(rows, columns, squeeze=False).ravel().tolist()
    image = None
    for place, (name, field) in enumerate(shown):
        if axes == 1:
            panels[place].semilogy(field.axes[0], _relative(field), color=PALETTE[place % len(PALETTE)])
            panels[place].set(ylim=(10**-DECADES, 1.5), xlabel=f"$x$ ({unit})")
            thin_axes(panels[place])
            panels[place].set_title(name, pad=4)
            continue
        planes = ((0, 1),) if axes == 2 else PLANES
        for turn, plane in enumerate(planes):
            panel = panels[place * len(planes) + turn]
            image = _draw_plane(panel, field, plane, unit)
            panel.set_title(name if turn == 0 else "", pad=4, loc="left")
    if image is not None:
        left.colorbar(image, ax=panels, fraction=0.03, pad=0.02, shrink=0.8)
    _draw_distances(right.subplots(), dict(shown), unit)
    return figure


def _relative(field: ReceptiveField) -> torch.Tensor:
    values = field.values.double()
    return values / values.max().clamp_min(torch.finfo(torch.float64).tiny)


def _draw_plane(panel: Axes, field: ReceptiveField, plane: tuple[int, int], unit: str):
    values = _relative(field)
    for axis in range(values.dim()):
        if axis not in plane:
            values = values.select(axis, field.place[axis])
    axes = [field.axes[axis] for axis in plane]
    names = [AXIS_NAMES[field.values.dim()][axis] for axis in plane]
    # Zero sensitivity is below every scale: it gets the lowest colour, not a hole.
    shown = values.clamp_min(10 ** (-DECADES - 1)).log10()
    image = show_map(panel, shown, axes, lowest=-DECADES, highest=0.0)
    frame_axes(panel, axes, names, unit, frequency=False)
    return image


def _draw_distances(panel: Axes, fields: Mapping[str, ReceptiveField], unit: str) -> None:
    farthest = max(float(field.distances.max()) for field in fields.values())
    radii = torch.linspace(0, farthest, 200, dtype=torch.float64)
    for place, (name, field) in enumerate(fields.items()):
        label = f"{name}: 90 % within {field.reach(0.9):.3g} {unit}"
        style = LINES[place % len(LINES)]
        share = field.share_beyond(radii)
        panel.semilogy(radii, share.clamp_min(1e-12), style, color=PALETTE[place % len(PALETTE)], label=label)
    panel.set(xlabel=f"distance $r$ ({unit})", ylim=(1e-6, 1.5), xlim=(0, farthest))
    panel.set_ylabel("part of the squared sensitivity beyond $r$")
    thin_axes(panel)
    panel.legend(frameon=False, loc="upper right", fontsize=7.5)
