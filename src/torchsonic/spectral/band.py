"""Physical frequency grids.

Conventions throughout the package:

* Arrays are ``(batch, channel, axis_1 .. axis_D)``; anything per axis is in that order.
* ``omega = 2 pi k / (size * spacing)`` is in radians per unit of physical length; ``k`` is an integer wavenumber.
* Coefficients are those of the trigonometric interpolant, ``x(r) = sum_k X_k exp(i omega_k r)``:
  the forward transform has the factor ``1/N``, the inverse has none. They do not depend on the sampling.
* Spectra of real fields may be stored as half spectra, with ``k >= 0`` only on the last axis.
* Grids are periodic; other boundaries extend the image before the transform.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from torchsonic.spectral.constants import made_once, pi
from torchsonic.spectral.spacing import Spacing, as_spacing

__all__ = ["Band", "frequency_axes", "frequency_grid"]


@dataclass(frozen=True)
class Band:
    """The frequencies that an input grid and an output grid of the same extent have in common.

    On an axis of equal sizes these are the ordinary FFT bins; if the size is even, the Nyquist bin stands for both
    signs. On an axis of different sizes the band is symmetric, ``|k| <= min(size_in, size_out) // 2``: it keeps both
    signs of the smaller grid's Nyquist frequency, since a response may differ between them.

    Parameters
    ----------
    size_in, size_out
        Number of samples on each axis, D integers each.
    half
        Whether the last axis holds ``k >= 0`` only, as spectra of real fields do.
    """

    size_in: tuple[int, ...]
    size_out: tuple[int, ...]
    half: bool = True

    @property
    def num_axes(self) -> int:
        return len(self.size_in)

    @property
    def resampled(self) -> tuple[bool, ...]:
        return tuple(a != b for a, b in zip(self.size_in, self.size_out, strict=True))

    @property
    def reach(self) -> tuple[int, ...]:
        """Largest wavenumber on each axis."""
        return tuple(min(a, b) // 2 for a, b in zip(self.size_in, self.size_out, strict=True))

    @property
    def halved_axis(self) -> int:
        """The axis that holds ``k >= 0`` only, or -1."""
        return self.num_axes - 1 if self.half else -1

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of stored coefficients on each axis."""
        full = [2 * h + 1 if moved else n for h, moved, n in zip(self.reach, self.resampled, self.size_in, strict=True)]
        return (*full[:-1], self.reach[-1] + 1) if self.half else tuple(full)

    @property
    def unsigned_axes(self) -> tuple[int, ...]:
        """Axes whose Nyquist bin (at index ``reach``) stands for both signs."""
        return tuple(d for d, n in enumerate(self.size_in) if not self.resampled[d] and n % 2 == 0)

    def wavenumbers(self, axis: int, *, device=None, dtype=torch.float64) -> Tensor:
        """Integer wavenumbers of one axis in storage order, ``(shape[axis],)``."""
        length = self.shape[axis]
        index = torch.arange(length, device=device)
        if axis != self.halved_axis:
            num_negative = self.reach[axis] if self.resampled[axis] else length // 2
            index = torch.where(index < length - num_negative, index, index - length)
        return index.to(dtype)

    def omega(self, spacing: Tensor, *, dtype=torch.float32, both_signs: bool = False) -> list[Tensor]:
        """Angular frequencies of each axis for spacings ``(G, D)``: D tensors ``(G, shape[axis])``.

        With ``both_signs``, every unsigned axis has one more entry at its end: its Nyquist frequency with the other
        sign.
        """
        return [
            (_unit_omega(self, axis, spacing.device, spacing.dtype, both_signs) / spacing[:, axis : axis + 1]).to(dtype)
            for axis in range(self.num_axes)
        ]

    def multiplicity(self, *, device=None, dtype=torch.float32) -> Tensor:
        """How many bins of the full spectrum each last-axis bin of the half spectrum stands for: 1 or 2.

        The tensor is shared between calls; do not modify it.
        """
        return _multiplicity(self, device, dtype)


@made_once
def _unit_omega(band: Band, axis: int, device, dtype, both_signs: bool) -> Tensor:
    """Angular frequencies of one axis at unit spacing."""
    omega = band.wavenumbers(axis, device=device, dtype=dtype) * (2 * pi() / band.size_in[axis])
    if both_signs and axis in band.unsigned_axes:
        omega = torch.cat([omega, -omega[band.reach[axis], None]])
    return omega


@made_once
def _multiplicity(band: Band, device, dtype) -> Tensor:
    count = torch.full((band.shape[-1],), 2.0, device=device, dtype=dtype)
    count[0] = 1.0
    if band.num_axes - 1 in band.unsigned_axes:
        count[band.reach[-1]] = 1.0
    return count


def frequency_axes(
    size: Sequence[int], spacing: Spacing = 1.0, *, half: bool = False, dtype=torch.float32, device=None
) -> list[Tensor]:
    r"""Angular frequency of every FFT bin, one vector per axis.

    .. math:: \omega_d = 2\pi k_d / (N_d \Delta_d)

    Parameters
    ----------
    size
        Samples on each axis, D integers.
    spacing
        Physical step, a number or one per axis.
    half
        Keep only the non-negative bins of the last axis, as ``rfftn`` does.

    Returns
    -------
    list of Tensor
        D vectors in FFT order; lengths ``N_d``, or ``N_D // 2 + 1`` for the last one when ``half``.

    Examples
    --------
    >>> frequency_axes((4,), spacing=2.0)[0] / torch.pi
    tensor([ 0.0000,  0.2500, -0.5000, -0.2500])
    """
    size = tuple(int(n) for n in size)
    if not size or min(size) < 1:
        raise ValueError(f"size must be positive integers, got {size}")
    steps = as_spacing(spacing, len(size), device=device)
    return [axis[0] for axis in Band(size, size, half).omega(steps, dtype=dtype)]


def frequency_grid(
    size: Sequence[int], spacing: Spacing = 1.0, *, half: bool = False, dtype=torch.float32, device=None
) -> Tensor:
    """The dense grid of :func:`frequency_axes`: ``(N_1 .. N_D, D)`` vectors ``omega``."""
    axes = frequency_axes(size, spacing, half=half, dtype=dtype, device=device)
    return torch.stack(torch.meshgrid(*axes, indexing="ij"), dim=-1)
