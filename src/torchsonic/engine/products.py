"""Products with the mixing matrices, of real signals and of spectra.

Layouts: ``mix_in (M, 2, C)`` holds ``Re B, Im B``; ``mix_out (K, M, 2)`` holds ``Re C, -Im C``. Chunks of modes are
then contiguous rows, and a product with either is one real matrix product.
"""

from __future__ import annotations

import torch
from torch import Tensor

from torchsonic.spectral.band import Band

__all__ = ["add_product", "add_spectrum", "correlate", "correlate_spectra", "mix", "mix_modes"]


def mix(matrix: Tensor, signals: Tensor) -> Tensor:
    """``(r, c)`` times ``(b, c, *size)``."""
    flat = signals.flatten(2)
    mixed = torch.bmm(matrix.expand(flat.shape[0], -1, -1), flat)
    return mixed.unflatten(-1, signals.shape[2:])


def _mix_spectrum(matrix: Tensor, spectrum: Tensor) -> Tensor:
    """A real matrix ``(r, c)`` times complex ``(b, c, *band)``, as one real product."""
    return torch.view_as_complex(mix(matrix, torch.view_as_real(spectrum)))


def mix_modes(matrix: Tensor, spectrum: Tensor) -> Tensor:
    """The spectra of modes' two signals, ``(b, m, 2, *band)``, from a matrix ``(2 m, c)`` and spectra of channels."""
    return _mix_spectrum(matrix, spectrum).unflatten(1, (-1, 2))


def add_product(y: Tensor, matrix: Tensor, signals: Tensor, *, first: bool, bias: Tensor | None = None) -> None:
    """``y (+)= matrix signals (+ bias)`` in place, for ``(b, k, *size)``."""
    flat, signals = y.flatten(2), signals.flatten(2)
    weights = matrix.expand(signals.shape[0], -1, -1)
    if not first:
        torch.baddbmm(flat, weights, signals, out=flat)
    elif bias is None:
        torch.bmm(weights, signals, out=flat)
    else:
        torch.baddbmm(bias[None, :, None], weights, signals, out=flat)


def add_spectrum(total: Tensor | None, matrix: Tensor, spectrum: Tensor) -> Tensor:
    """``matrix spectrum``, added in place to ``total`` if there is one."""
    if total is None:
        return _mix_spectrum(matrix, spectrum)
    add_product(torch.view_as_real(total), matrix, torch.view_as_real(spectrum), first=False)
    return total


def correlate(a: Tensor, b: Tensor) -> Tensor:
    """``sum_b a b^T``: ``(b, r, *size)`` and ``(b, c, *size)`` give ``(r, c)``."""
    return torch.bmm(a.flatten(2), b.flatten(2).mT).sum(0)


def correlate_spectra(a: Tensor, b: Tensor, band: Band) -> Tensor:
    """The same in the half spectrum's inner product."""
    left, right = (torch.view_as_real(s).flatten(-2) for s in (a, b))
    # Repeated for real and imaginary part: a broadcast over them would not vectorise.
    weight = band.multiplicity(device=b.device, dtype=right.dtype).repeat_interleave(2)
    if a.shape[1] < b.shape[1]:  # a copy of the fewer signals
        return correlate(left * weight, right)
    return correlate(left, right * weight)
