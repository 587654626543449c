"""Where modes point, and how strongly."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor

from torchsonic.arguments import choice
from torchsonic.nn import SonicConvNd
from torchsonic.viz.energy import mode_energies, peak_gains
from torchsonic.viz.lattice import physical_modes

__all__ = ["Weight", "layer_orientation", "orientation_histogram"]

Weight = Literal["gain", "energy"]
_WEIGHTS: dict[str, Callable[[SonicConvNd], Tensor]] = {"gain": peak_gains, "energy": mode_energies}


def orientation_histogram(directions: Tensor, weights: Tensor, bins: int = 24) -> tuple[Tensor, Tensor]:
    """Weight of the directions in each sector of the circle; the middle of the first sector is the last axis.

    A mode looks along its direction only, so opposite directions are not the same.

    Parameters
    ----------
    directions
        ``(M, 2)`` in array-axis order; of any length, which scales nothing.
    weights
        ``(M,)``.

    Returns
    -------
    tuple
        Angles of the sectors' middles, from the last axis (x) towards the first (y), and weights, each ``(bins,)``.
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
    """Histogram of a layer's modes in a plane of two axes; a mode counts by the part of it that lies in the plane.

    Parameters
    ----------
    weight
        ``gain``: the most that a mode amplifies any wave. ``energy``: the power of white noise it lets through.
    """
    strength = _WEIGHTS[choice(weight, tuple(_WEIGHTS), "weight")](layer)
    directions = physical_modes(layer).direction[:, list(plane)]
    return orientation_histogram(directions, strength * directions.square().sum(1), bins)
