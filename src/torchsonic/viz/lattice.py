"""The grids on which pictures are sampled, and what modes look like on them.

Pictures have the origin in the middle, in frequency and in space, and odd sizes, so that every frequency has its
opposite. Numbers are float64 on the CPU, whatever the layer's dtype and device.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from torchsonic.nn import SonicConvNd, sonic_layers
from torchsonic.spectral.operator import SAMPLES, ModeOperator
from torchsonic.spectral.response import Modes

PLANES = {2: ((0, 1),), 3: ((1, 2), (0, 2), (0, 1))}
"""Pairs of array axes that are shown, by the number of axes: y-x, and in volumes z-x and z-y, too."""


@dataclass(frozen=True)
class Lattice:
    """A centred grid of odd size and given spacing."""

    size: tuple[int, ...]
    spacing: tuple[float, ...]

    def __post_init__(self) -> None:
        if len(self.size) != len(self.spacing):
            raise ValueError(f"size {self.size} and spacing {self.spacing} must have the same number of axes")
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
        """Distance of each point from the origin, ``(*size)``."""
        return torch.stack(torch.meshgrid(*self.places, indexing="ij"), dim=-1).norm(dim=-1)


def _centred(count: int) -> Tensor:
    return torch.arange(count, dtype=torch.float64) - count // 2


def reference_lattice(layer: SonicConvNd, samples: int | None = None) -> Lattice:
    """A lattice at the layer's reference spacing whose extent is about the same on all axes.

    Parameters
    ----------
    samples
        Samples on an axis of mean spacing; by default 257, 65 and 33 in 1-D, 2-D and 3-D.
    """
    count = SAMPLES[layer.num_axes] if samples is None else samples
    if count < 3:
        raise ValueError(f"samples must be at least 3, got {count}")
    steps = layer.reference_spacing
    extent = count * math.prod(steps) ** (1 / len(steps))
    return Lattice(tuple(max(3, 2 * round((extent / step - 1) / 2) + 1) for step in steps), steps)


def physical_operator(layer: SonicConvNd) -> ModeOperator:
    """What the layer does at its reference spacing, without gradient, in float64; NaN and infinity are refused."""
    with torch.no_grad():
        return layer.reference_operator().to(torch.float64).check_finite(type(layer).__name__)


def physical_modes(layer: SonicConvNd) -> Modes:
    """The layer's physical parameters without gradient, in float64; limits of the responses are not included."""
    return physical_operator(layer).modes


def mode_spectra(operator: ModeOperator, lattice: Lattice) -> Tensor:
    """Responses of the modes with gain and limits, ``(M, *size)``, complex: the spectra of :func:`mode_beams`.

    In the paper's variant they are zero at negative frequencies of the last axis, which it never uses, and twice as
    large at the others; see :mod:`torchsonic.spectral.operator`.
    """
    return operator.responses(lattice.omega)


def mode_beams(operator: ModeOperator, lattice: Lattice) -> Tensor:
    """The modes in space: complex kernels ``k_1 + i k_2`` for a unit impulse at the origin, ``(M, *size)``."""
    axes = tuple(range(1, 1 + len(lattice.size)))
    spectra = torch.fft.ifftshift(mode_spectra(operator, lattice), dim=axes)
    return torch.fft.fftshift(torch.fft.ifftn(spectra, dim=axes), dim=axes)


def central_slice(values: Tensor, plane: tuple[int, int] | None = None, place: Sequence[int] | None = None) -> Tensor:
    """A slice ``(n_i, n_j)`` of an image or volume through its centre or another point; by default of the last axes."""
    plane = plane or (values.dim() - 2, values.dim() - 1)
    for axis in reversed(range(values.dim())):
        if axis not in plane:
            values = values.select(axis, values.shape[axis] // 2 if place is None else place[axis])
    return values


def named_sonic_layers(model: nn.Module) -> dict[str, SonicConvNd]:
    """The Sonic layers of a model by name; models without one, or with NaN or infinity, are refused."""
    layers = {name or type(layer).__name__: layer for name, layer in sonic_layers(model)}
    if not layers:
        raise ValueError(f"{type(model).__name__} has no Sonic layer, so there are no modes to show")
    with torch.no_grad():
        for name, layer in layers.items():
            layer.reference_operator().check_finite(name)
    return layers
