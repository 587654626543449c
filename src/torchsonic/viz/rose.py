"""Directions of modes, weighted by their strength."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from torchsonic.arguments import choice
from torchsonic.nn import SonicConvNd
from torchsonic.viz import style
from torchsonic.viz.energy import mode_energies, peak_gains
from torchsonic.viz.lattice import PLANES, named_sonic_layers, physical_modes

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Weight = Literal["gain", "energy"]
WEIGHTS: dict[str, Callable[[SonicConvNd], Tensor]] = {"gain": peak_gains, "energy": mode_energies}
WORDS = {"gain": "highest gain", "energy": "energy"}
MOST_NAMES = 8
BINS = 24


def orientation_histogram(directions: Tensor, weights: Tensor, bins: int = 24) -> tuple[Tensor, Tensor]:
    """Weight of the directions in each sector of the circle; the first sector is centred on the last axis.

    A mode looks only along its direction, so opposite directions are not the same.

    Parameters
    ----------
    directions
        ``(M, 2)`` in array-axis order; their lengths do not matter.
    weights
        ``(M,)``.

    Returns
    -------
    tuple
        Angles of the sectors' centres, from the last axis (x) towards the first (y), and weights, each ``(bins,)``.
    """
    if bins < 4:
        raise ValueError(f"bins must be at least 4, got {bins}")
    angle = torch.atan2(directions[:, 0], directions[:, 1])
    sector = torch.round(angle / (2 * math.pi) * bins).long() % bins
    total = torch.bincount(sector, weights=weights.double(), minlength=bins)
    return torch.arange(bins, dtype=torch.float64) * (2 * math.pi / bins), total


def layer_orientation(
    layer: SonicConvNd, plane: tuple[int, int] = (0, 1), *, weight: Weight = "gain", bins: int = 24
) -> tuple[Tensor, Tensor]:
    """Histogram of a layer's modes in the plane of two axes; each mode is weighted by its component in the plane.

    Parameters
    ----------
    weight
        ``gain``: the largest factor by which a mode amplifies a wave. ``energy``: the power of white noise it passes.
    """
    strength = WEIGHTS[choice(weight, tuple(WEIGHTS), "weight")](layer)
    directions = physical_modes(layer).direction[:, list(plane)]
    return orientation_histogram(directions, strength * directions.square().sum(1), bins)


@style.styled
def draw_rose(model: nn.Module, *, weight: Weight = "gain", bins: int | None = None) -> Figure:
    """Draw the directions of all modes of a network, with layers stacked; a mode looks only along its direction.

    As in images, y points down. Volumes have one rose for each plane; each mode is weighted by the square of its
    component in the plane. Signals have two directions.

    Parameters
    ----------
    weight
        ``gain``: the largest factor by which a mode amplifies a wave. ``energy``: the power of white noise it passes.
    bins
        Sectors of the circle; signals have none. By default 24, or the next number that the orders of all orbit groups
        divide: with another, modes in equal directions would fall into unequal sectors.

    Examples
    --------
    >>> figure = torchsonic.viz.draw_rose(torchsonic.create_model("synthshape_sonicnet"), weight="energy")
    """
    words = WORDS[choice(weight, tuple(WORDS), "weight")]
    layers = named_sonic_layers(model)
    axes = next(iter(layers.values())).num_axes
    if axes == 1:
        if bins is not None:
            raise ValueError(f"bins are sectors of a circle, which signals do not have; omit bins, got {bins}")
        return _draw_signs(layers, weight, words)
    if bins is None:
        order = math.lcm(*(layer.orbit_size for layer in layers.values()))
        bins = order * math.ceil(BINS / order)
    planes = PLANES[axes]
    figure = style.new_figure(3.7 * len(planes) + 0.9, 4.6)
    figure.suptitle(f"Directions of the modes, by {words}")
    for place, plane in enumerate(planes):
        panel: Any = figure.add_subplot(1, len(planes), place + 1, projection="polar")
        y, x = (style.AXIS_NAMES[axes][axis] for axis in plane)
        below = np.zeros(bins)
        for (name, layer), colour in zip(layers.items(), style.shades(len(layers)), strict=True):
            angles, weights = layer_orientation(layer, plane, weight=weight, bins=bins)
            width = 2 * math.pi / bins
            panel.bar(angles, weights, width, bottom=below, color=colour, edgecolor="white", linewidth=0.3, label=name)
            below += weights.numpy()
        style.turn_clockwise(panel, y, x)
        panel.set_yticklabels([])
        panel.tick_params(axis="x", pad=1)
        panel.set_axisbelow(True)
        panel.spines["polar"].set_linewidth(0.5)
    handles, names = figure.axes[0].get_legend_handles_labels()
    columns = 2 * len(planes)
    if len(layers) > MOST_NAMES:
        handles, names, columns = [handles[0], handles[-1]], [f"first: {names[0]}", f"last: {names[-1]}"], 2
    if len(layers) > 1:
        fitting = int(figure.get_figwidth() / (0.6 + 0.066 * max(map(len, names))))  # inches of a handle and a letter
        columns = max(1, min(columns, fitting))
        figure.legend(handles, names, loc="outside lower center", frameon=False, ncols=columns)
    return figure


def _draw_signs(layers: dict[str, SonicConvNd], weight: Weight, words: str) -> Figure:
    figure = style.new_figure(6.2, 0.32 * len(layers) + 1.4)
    figure.suptitle(f"Directions of the modes, by {words}")
    panel = figure.subplots()
    names = list(layers)
    for place, (layer, colour) in enumerate(zip(layers.values(), style.shades(len(layers)), strict=True)):
        strength = WEIGHTS[weight](layer)
        sign = physical_modes(layer).direction[:, 0].sign()
        for side in (-1, 1):
            panel.barh(place, side * float(strength[sign == side].sum()), color=colour)
    panel.set_yticks(range(len(names)), names)
    panel.invert_yaxis()
    panel.axvline(0, color="black", linewidth=0.6)
    panel.set_xlabel(f"towards {style.MINUS}x        sum of {words}        towards +x")
    style.thin_axes(panel)
    bound = max(abs(edge) for edge in panel.get_xlim())
    panel.set_xlim(-bound, bound)
    return figure
