"""Where pictures are sampled, and what modes look like there.

Pictures have the origin in the middle, in frequency and in space, and odd sizes, so that no frequency lacks its
opposite. Numbers are float64 on the CPU, whatever the layer's.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from torchsonic.functional.transfer import Modes, mode_response
from torchsonic.nn import SonicConvNd

__all__ = ["Lattice", "mode_beams", "mode_spectra", "physical_modes", "reference_lattice", "select_modes"]

SAMPLES = {1: 257, 2: 65, 3: 33}


@dataclass(frozen=True)
class Lattice:
    """A centred grid of odd size and given spacing."""

    size: tuple[int, ...]
    spacing: tuple[float, ...]

    def __post_init__(self) -> None:
        if len(self.size) != len(self.spacing):
            raise ValueError(f"size {self.size} and spacing {self.spacing} must have equally many axes")
        if any(n < 1 or n % 2 == 0 for n in self.size):
            raise ValueError(f"size must be odd on every axis, got {self.size}")

    @property
    def places(self) -> list[Tensor]:
        """Coordinates along each axis, origin in the middle."""
        return [_centred(n) * step for n, step in zip(self.size, self.spacing, strict=True)]

    @property
    def frequencies(self) -> list[Tensor]:
        """Frequencies along each axis in radians per length, zero in the middle."""
        return [_centred(n) * (2 * math.pi / (n * step)) for n, step in zip(self.size, self.spacing, strict=True)]

    @property
    def omega(self) -> Tensor:
        """All frequencies, ``(*size, D)``."""
        return torch.stack(torch.meshgrid(*self.frequencies, indexing="ij"), dim=-1)

    @property
    def distances(self) -> Tensor:
        """Distance of each place from the origin, ``(*size)``."""
        return torch.stack(torch.meshgrid(*self.places, indexing="ij"), dim=-1).norm(dim=-1)


def _centred(count: int) -> Tensor:
    return torch.arange(count, dtype=torch.float64) - count // 2


def reference_lattice(layer: SonicConvNd, samples: int | None = None) -> Lattice:
    """A lattice at the layer's reference spacing whose extent is about the same on all axes.

    Parameters
    ----------
    samples
        Samples on an axis of mean spacing; by default 257, 65 and 33 in one, two and three dimensions.
    """
    count = SAMPLES[layer.num_axes] if samples is None else samples
    if count < 3:
        raise ValueError(f"samples must be at least 3, got {count}")
    steps = layer.reference_spacing
    extent = count * math.prod(steps) ** (1 / len(steps))
    return Lattice(tuple(max(3, 2 * round((extent / step - 1) / 2) + 1) for step in steps), steps)


def physical_modes(layer: SonicConvNd) -> Modes:
    """The layer's physical parameters without gradient, in float64."""
    with torch.no_grad():
        modes = layer.modes()
    return Modes(*[t.detach().cpu().to(torch.complex128 if t.is_complex() else torch.float64) for t in modes])


def select_modes(modes: Modes, index: Tensor | Sequence[int]) -> Modes:
    """Some of the modes, in the given order."""
    places = torch.as_tensor(index)
    first = {name: getattr(modes, name)[places] for name in Modes._fields if name != "mix_out"}
    return Modes(**first, mix_out=modes.mix_out[:, places])


def mode_spectra(modes: Modes, lattice: Lattice) -> Tensor:
    """Responses with their gains, ``g_m T_m(w)``: ``(M, *size)``, complex."""
    response = mode_response(lattice.omega, modes.direction, modes.scale, modes.pole, modes.transverse)
    return response * modes.gain.reshape(-1, *[1] * len(lattice.size))


def mode_beams(modes: Modes, lattice: Lattice) -> Tensor:
    """The modes in space: complex kernels ``k_1 + i k_2`` for a unit impulse at the origin, ``(M, *size)``."""
    axes = tuple(range(1, 1 + len(lattice.size)))
    spectra = torch.fft.ifftshift(mode_spectra(modes, lattice), dim=axes)
    return torch.fft.fftshift(torch.fft.ifftn(spectra, dim=axes), dim=axes)
