"""Between the spectrum of a grid and the coefficients of a band.

If the *input* grid is the smaller one and even, its Nyquist bin stands for both signs and is split between them. If the
*output* grid is the smaller one and even, both signs of its Nyquist frequency fall on one bin and are summed.
"""

from __future__ import annotations

import torch
from torch import Tensor

from torchsonic.spectral.band import Band

__all__ = ["gather_band", "scatter_band", "split_nyquist", "zero_imaginary"]


def gather_band(spectrum: Tensor, band: Band) -> Tensor:
    """Pick the band out of the spectrum of either grid, as a copy that does not hold the rest in memory."""
    if not any(band.resampled):
        return spectrum
    for axis in reversed(range(band.num_axes)):  # last axis first, so that the others have less to copy
        dim, reach = axis - band.num_axes, band.reach[axis]
        if not band.resampled[axis]:
            continue
        positive = spectrum.narrow(dim, 0, reach + 1)
        if axis == band.halved_axis:
            spectrum = positive
        else:
            spectrum = torch.cat([positive, spectrum.narrow(dim, spectrum.shape[dim] - reach, reach)], dim)
    return spectrum.contiguous()


def scatter_band(coefficients: Tensor, band: Band, size: tuple[int, ...]) -> Tensor:
    """Put the band into the spectrum of the grid ``size``; signs that fall on one bin are summed."""
    for axis, n in enumerate(size):
        dim, reach = axis - band.num_axes, band.reach[axis]
        if not band.resampled[axis]:
            continue
        if axis == band.halved_axis:
            if n == 2 * reach and reach > 0:
                # The missing sign is the conjugate, which the real inverse transform supplies.
                coefficients = coefficients.clone()
                coefficients.narrow(dim, reach, 1).mul_(2)
            continue  # the real inverse transform appends the zeros
        shape = [*coefficients.shape[:dim], n, *coefficients.shape[coefficients.dim() + dim + 1 :]]
        laid = coefficients.new_zeros(shape)
        laid.narrow(dim, 0, reach + 1).copy_(coefficients.narrow(dim, 0, reach + 1))
        laid.narrow(dim, n - reach, reach).add_(coefficients.narrow(dim, reach + 1, reach))
        coefficients = laid
    return coefficients


def split_nyquist(coefficients: Tensor, band: Band) -> Tensor:
    """Halve both signs of an input Nyquist frequency that the output grid distinguishes; in place."""
    for axis, (n, m) in enumerate(zip(band.size_in, band.size_out, strict=True)):
        dim, reach = axis - band.num_axes, band.reach[axis]
        if n < m and n % 2 == 0:
            coefficients.narrow(dim, reach, 1).mul_(0.5)
            if axis != band.halved_axis:
                coefficients.narrow(dim, reach + 1, 1).mul_(0.5)
    return coefficients


def zero_imaginary(spectrum: Tensor, band: Band) -> Tensor:
    """Drop imaginary parts on the self-conjugate planes of the halved axis, as the paper does; in place."""
    spectrum[..., 0].imag.zero_()
    if band.num_axes - 1 in band.unsigned_axes:
        spectrum[..., band.reach[-1]].imag.zero_()
    return spectrum
