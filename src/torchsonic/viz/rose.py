"""Where the modes of a network point."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import nn

from torchsonic.arguments import choice
from torchsonic.nn import SonicConvNd
from torchsonic.viz.energy import mode_energies, peak_gains
from torchsonic.viz.lattice import physical_modes
from torchsonic.viz.orientation import Weight, layer_orientation
from torchsonic.viz.slices import PLANES
from torchsonic.viz.stages import named_sonic_layers
from torchsonic.viz.style import AXIS_NAMES, MINUS, new_figure, shades, styled, thin_axes

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["draw_rose"]

WORDS = {"gain": "highest gain", "energy": "energy"}
MOST_NAMES = 8
BINS = 24


@styled
def draw_rose(model: nn.Module, *, weight: Weight = "gain", bins: int | None = None) -> Figure:
    """Directions of all modes of a network, layers stacked; a mode looks along its direction only.

    Images have y downwards, as the rose has. In volumes there is a rose for each plane; a mode counts by the square of
    its part in the plane. Signals have two directions.

    Parameters
    ----------
    weight
        ``gain``: the most that a mode amplifies any wave. ``energy``: the power of white noise it lets through.
    bins
        Sectors of the circle, 24 by default; signals have none.

    Examples
    --------
    >>> figure = torchsonic.viz.draw_rose(torchsonic.create_model("synthshape_sonicnet"), weight="energy")
    """
    choice(weight, tuple(WORDS), "weight")
    layers = named_sonic_layers(model)
    axes = next(iter(layers.values())).num_axes
    if axes == 1:
        if bins is not None:
            raise ValueError(f"bins are sectors of a circle, which signals do not have; leave them out, got {bins}")
        return _draw_signs(layers, weight)
    bins = BINS if bins is None else bins
    planes = ((0, 1),) if axes == 2 else PLANES
    figure = new_figure(3.7 * len(planes) + 0.9, 4.6)
    figure.suptitle(f"Directions of the modes, by {WORDS[weight]}")
    for place, plane in enumerate(planes):
        panel: Any = figure.add_subplot(1, len(planes), place + 1, projection="polar")
        y, x = (AXIS_NAMES[axes][axis] for axis in plane)
        below = np.zeros(bins)
        for (name, layer), colour in zip(layers.items(), shades(len(layers)), strict=True):
            angles, weights = layer_orientation(layer, plane, weight=weight, bins=bins)
            width = 2 * math.pi / bins
            panel.bar(angles, weights, width, bottom=below, color=colour, edgecolor="white", linewidth=0.3, label=name)
            below += weights.numpy()
        panel.set_theta_direction(-1)
        panel.set_thetagrids([0, 90, 180, 270], [f"+{x}", f"+{y}", f"{MINUS}{x}", f"{MINUS}{y}"])
        panel.set_yticklabels([])
        panel.tick_params(axis="x", pad=1)
        panel.grid(linewidth=0.4, alpha=0.6)
        panel.set_axisbelow(True)
        panel.spines["polar"].set_linewidth(0.5)
    if 1 < len(layers) <= MOST_NAMES:
        handles, names = figure.axes[0].get_legend_handles_labels()
        figure.legend(handles, names, loc="outside lower center", frameon=False, ncols=2 * len(planes))
    elif len(layers) > MOST_NAMES:
        handles, names = figure.axes[0].get_legend_handles_labels()
        first, last = (handles[0], f"first: {names[0]}"), (handles[-1], f"last: {names[-1]}")
        figure.legend(*zip(first, last, strict=True), loc="outside lower center", frameon=False, ncols=2)
    return figure


def _draw_signs(layers: dict[str, SonicConvNd], weight: Weight) -> Figure:
    figure = new_figure(6.2, 0.32 * len(layers) + 1.4)
    figure.suptitle(f"Directions of the modes, by {WORDS[weight]}")
    panel = figure.subplots()
    names = list(layers)
    for place, (layer, colour) in enumerate(zip(layers.values(), shades(len(layers)), strict=True)):
        strength = peak_gains(layer) if weight == "gain" else mode_energies(layer)
        sign = physical_modes(layer).direction[:, 0].sign()
        for side in (-1, 1):
            panel.barh(place, side * float(strength[sign == side].sum()), color=colour)
    panel.set_yticks(range(len(names)), names)
    panel.invert_yaxis()
    panel.axvline(0, color="black", linewidth=0.6)
    panel.set_xlabel(f"towards {MINUS}x        sum of {WORDS[weight]}        towards +x")
    thin_axes(panel)
    bound = max(abs(edge) for edge in panel.get_xlim())
    panel.set_xlim(-bound, bound)
    return figure
