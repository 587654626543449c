"""Continuous images that operators are tested on, sampled on any grid, in float64.

A local field is zero near the border, so that no boundary is seen. A lattice field is a sum of waves that fit the
periodic image before *and* after a turn by 53.13 degrees, the angle of the triangle 3-4-5, which so interpolates
nothing.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

SWAP = torch.tensor([[0.0, 1.0], [1.0, 0.0]], dtype=torch.float64)
TURN = torch.tensor([[3.0, -4.0], [4.0, 3.0]], dtype=torch.float64) / 5
WIDTH = 0.06
"""Standard deviation of the window of a local field, in widths of the image: 1e-10 of its peak near the border."""
HIGHEST = 5
"""Largest wavenumber of a local field within its window, in periods per image."""
LATTICE_HIGHEST = 5
NUM_WAVES = 12


def local_field(size: int, channels: int, *, seed: int = 0) -> Tensor:
    """Random waves under a Gaussian window in the middle, ``(1, C, size, size)``; the same field for every size."""
    generator = torch.Generator().manual_seed(seed)
    waves = (2 * torch.rand(channels, NUM_WAVES, 2, generator=generator, dtype=torch.float64) - 1) * HIGHEST
    phases = 2 * math.pi * torch.rand(channels, NUM_WAVES, generator=generator, dtype=torch.float64)
    line = torch.arange(size, dtype=torch.float64) / size - 0.5
    grid = torch.stack(torch.meshgrid(line, line, indexing="ij"))
    angle = 2 * math.pi * torch.einsum("cwd,dij->cwij", waves, grid) + phases[..., None, None]
    window = torch.exp(-grid.square().sum(0) / (2 * WIDTH**2))
    return (angle.cos().sum(1) * (2 / NUM_WAVES) ** 0.5 * window)[None]


def _turned_wavenumbers(size: int) -> tuple[Tensor, Tensor]:
    """Wavenumbers ``(P, 2)`` below Nyquist that a turn takes to whole ones below Nyquist, and where it takes them."""
    most = (size - 1) // 2
    line = torch.arange(-most, most + 1)
    before = torch.cartesian_prod(line, line)
    before = before[(before[:, 0] - 3 * before[:, 1]) % 5 == 0]
    after = (before.double() @ TURN.T).round().long()
    inside = after.abs().amax(1) <= most
    return before[inside], after[inside]


def turn_field(x: Tensor) -> Tensor:
    """A lattice field, ``(.., size, size)``, turned by ``TURN`` about the origin; ``size`` is a multiple of 5."""
    before, after = _turned_wavenumbers(x.shape[-1])
    spectrum = torch.fft.fft2(x)
    turned = torch.zeros_like(spectrum)
    turned[..., after[:, 0], after[:, 1]] = spectrum[..., before[:, 0], before[:, 1]]
    return torch.fft.ifft2(turned).real


def lattice_field(size: int, channels: int, *, seed: int = 0) -> Tensor:
    """A periodic field of waves that can be turned, ``(1, C, size, size)``."""
    if size % 5 != 0 or size <= 2 * LATTICE_HIGHEST:
        raise ValueError(f"size must be a multiple of 5 above {2 * LATTICE_HIGHEST}, got {size}")
    before, _ = _turned_wavenumbers(size)
    before = before[before.double().norm(dim=1) <= LATTICE_HIGHEST]
    noise = torch.randn(1, channels, size, size, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    spectrum = torch.fft.fft2(noise)
    kept = torch.zeros_like(spectrum)
    kept[..., before[:, 0], before[:, 1]] = spectrum[..., before[:, 0], before[:, 1]]
    x = torch.fft.ifft2(kept).real
    return x / (2 * x.std())
