r"""Measures whether an operator prefers directions, and how far it sees.

Waves :math:`\cos(k \cdot r)` of one length and all directions pass through, in one channel after the other. With
``p(k)`` the power that reaches an output channel, and ``a(k)`` the angle of ``k``,

.. math:: \text{selectivity} = \frac{\sum |\sum_k p\,e^{2 i a}|}{\sum \sum_k p}, \qquad
   \text{diagonals} = \frac{\sum \sum_k |p(k_1, k_2) - p(k_1, -k_2)|}{\sum \sum_k p(k_1, k_2) + p(k_1, -k_2)}

where the outer sums run over pairs of channels. The first is 0 if no direction is preferred and 1 if only one passes;
the second is 0 for separable kernels, which cannot distinguish the two diagonals.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from torchsonic.lab.report.operators.contenders import Contender
from torchsonic.lab.report.operators.laws import CHANNELS, SIZE, build_exactly
from torchsonic.viz import receptive_field

RADIUS = 6
"""Periods per image of the waves, 6.7 pixels each: within what truncated operators keep."""
FIELD = 64
"""Pixels of the images that fields are measured on."""


def _ring() -> Tensor:
    """Whole wavenumbers ``(P, 2)`` of about one length, one of each pair of opposite ones; symmetric in all axes."""
    line = torch.arange(-RADIUS - 1, RADIUS + 2)
    k = torch.cartesian_prod(line, line)
    k = k[(k.double().norm(dim=1) - RADIUS).abs() <= 0.5]
    return k[(k[:, 0] > 0) | ((k[:, 0] == 0) & (k[:, 1] > 0))]


def _powers(layer: nn.Module, k: Tensor) -> Tensor:
    """Power from each channel to each, ``(C, K, P)``."""
    line = torch.arange(SIZE, dtype=torch.float64) / SIZE
    grid = torch.stack(torch.meshgrid(line, line, indexing="ij"))
    waves = torch.cos(2 * math.pi * torch.einsum("pd,dij->pij", k.double(), grid))
    powers = []
    for channel in range(CHANNELS):
        x = torch.zeros(len(k), CHANNELS, SIZE, SIZE, dtype=torch.float64)
        x[:, channel] = waves
        y = layer(x)
        powers.append((y - y.mean((2, 3), keepdim=True)).square().mean((2, 3)).T)
    return torch.stack(powers)


def selectivity(layer: nn.Module) -> tuple[float, float]:
    """Selectivity for directions, and for diagonals."""
    k = _ring()
    powers = _powers(layer, k)
    angles = torch.atan2(k[:, 1].double(), k[:, 0].double())
    preferred = (powers * torch.polar(torch.ones_like(angles), 2 * angles)).sum(-1).abs().sum()
    # The mirror image of a wave is another of the ring, or its opposite, which has the same power.
    places = {tuple(v.tolist()): i for i, v in enumerate(k)}
    mirror = [places.get((a, -b), places.get((-a, b), -1)) for a, b in k.tolist()]
    oblique = [i for i, (a, b) in enumerate(k.tolist()) if a * b != 0]
    here, there = powers[..., oblique], powers[..., [mirror[i] for i in oblique]]
    total = powers.sum()
    if not total > 0:
        return 0.0, 0.0
    return float(preferred / total), float((here - there).abs().sum() / (here + there).sum())


def directions(contender: Contender, *, seed: int = 0) -> tuple[float, float]:
    """``selectivity`` of a freshly drawn operator."""
    return selectivity(build_exactly(contender, seed))


def reach(contender: Contender, *, seed: int = 0) -> float:
    """Radius in pixels within which 90 % of the squared sensitivity of an output pixel lies, on images of noise."""
    torch.manual_seed(seed)
    layer = contender.build(CHANNELS, FIELD).eval()
    noise = torch.randn(2, CHANNELS, FIELD, FIELD, generator=torch.Generator().manual_seed(seed))
    return receptive_field(layer, noise).reach(0.9)
