"""Between samples and band coefficients, and back; each map with its adjoint.

``analyse`` gives the coefficients of the trigonometric interpolant on a :class:`Band`; ``synthesise`` samples a band
of coefficients on the output grid. Adjoints are taken in the inner product ``sum mult * Re(conj(a) b)`` over half
spectra, ``mult`` being :meth:`Band.multiplicity`: there a response's adjoint is simply its conjugate.

Resizing keeps signs where they belong. A bin at the Nyquist frequency of an even, smaller *input* grid stands for
both signs and is split between them; the two signs at the Nyquist frequency of an even, smaller *output* grid
fall on one bin and are summed.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from torchsonic.functional.fft import irfftn, rfftn
from torchsonic.functional.frequency import Band

__all__ = [
    "PaddingMode",
    "analyse",
    "analyse_adjoint",
    "extend",
    "fast_size",
    "padded_sizes",
    "synthesise",
    "synthesise_adjoint",
]

PaddingMode = Literal["circular", "zeros", "reflect"]


def fast_size(minimum: int) -> int:
    """Smallest size >= ``minimum`` with no prime factor above 7, which every FFT library handles well."""
    size = minimum
    while True:
        rest = size
        for factor in (2, 3, 5, 7):
            while rest % factor == 0:
                rest //= factor
        if rest == 1:
            return size
        size += 1


def padded_sizes(size: tuple[int, ...], out_size: tuple[int, ...], padding: PaddingMode) -> Band:
    """Grids on which a padded operator is circular.

    Non-circular boundaries double the extent, so that nothing wraps into the window of the output. A grid that keeps
    its number of samples is free to round up to a fast size; one that is resampled doubles both sides alike.
    """
    if padding == "circular":
        return Band(size, out_size)
    pairs = []
    for n, m in zip(size, out_size, strict=True):
        if padding == "zeros" and n == m:
            pairs.append((fast_size(2 * n - 1),) * 2)
        else:
            pairs.append((2 * n, 2 * m))
    return Band(tuple(a for a, _ in pairs), tuple(b for _, b in pairs))


def _reflected_indices(size: int, device) -> Tensor:
    """Source sample of each of ``2 * size`` samples: the image, then its mirror images from both ends.

    As in ``nn.ConvNd``, the edge sample is not repeated. The two mirror images meet opposite the image.
    """
    index = torch.arange(2 * size, device=device)
    from_right = 2 * (size - 1) - index
    from_left = 2 * size - index
    mirrored = torch.where(index < size + (size + 1) // 2, from_right, from_left)
    return torch.where(index < size, index, mirrored).clamp_(0, size - 1)


def extend(x: Tensor, band: Band, padding: PaddingMode) -> Tensor:
    """Continue samples across their boundary; zeros are left to the transform."""
    if padding == "reflect":
        for axis in range(-band.num_axes, 0):
            x = x.index_select(axis, _reflected_indices(x.shape[axis], x.device))
    return x


def _extend_adjoint(g: Tensor, size: tuple[int, ...], padding: PaddingMode) -> Tensor:
    for axis, n in enumerate(size, start=-len(size)):
        if padding == "reflect":
            folded = g.new_zeros([*g.shape[:axis], n, *g.shape[g.dim() + axis + 1 :]])
            g = folded.index_add_(axis, _reflected_indices(n, g.device), g)
        else:
            g = g.narrow(axis, 0, n)
    return g


def _gather(spectrum: Tensor, band: Band) -> Tensor:
    """Pick the band out of the half spectrum of either grid; what is kept of it does not hold the rest in memory."""
    if not any(band.resampled):
        return spectrum
    for axis in reversed(range(band.num_axes)):  # the last first: it leaves the others less to copy
        dim, reach = axis - band.num_axes, band.reach[axis]
        if not band.resampled[axis]:
            continue
        positive = spectrum.narrow(dim, 0, reach + 1)
        if axis == band.num_axes - 1:
            spectrum = positive
        else:
            spectrum = torch.cat([positive, spectrum.narrow(dim, spectrum.shape[dim] - reach, reach)], dim)
    return spectrum.contiguous()


def _scatter(coefficients: Tensor, band: Band, size: tuple[int, ...]) -> Tensor:
    """Lay the band into the half spectrum of the grid ``size``; signs that fall on one bin are summed."""
    for axis, n in enumerate(size):
        dim, reach = axis - band.num_axes, band.reach[axis]
        if not band.resampled[axis]:
            continue
        if axis == band.num_axes - 1:
            if n == 2 * reach and reach > 0:
                # The missing sign is the conjugate, which the real inverse transform supplies.
                coefficients = coefficients.clone()
                coefficients.narrow(dim, reach, 1).mul_(2)
            continue  # irfftn appends the zeros
        laid = coefficients.new_zeros(
            [*coefficients.shape[:dim], n, *coefficients.shape[coefficients.dim() + dim + 1 :]]
        )
        laid.narrow(dim, 0, reach + 1).copy_(coefficients.narrow(dim, 0, reach + 1))
        laid.narrow(dim, n - reach, reach).add_(coefficients.narrow(dim, reach + 1, reach))
        coefficients = laid
    return coefficients


def _split_nyquist(coefficients: Tensor, band: Band) -> Tensor:
    """Halve both signs of an input Nyquist frequency that the output grid tells apart."""
    for axis, (n, m) in enumerate(zip(band.size_in, band.size_out, strict=True)):
        dim, reach = axis - band.num_axes, band.reach[axis]
        if n < m and n % 2 == 0:
            coefficients.narrow(dim, reach, 1).mul_(0.5)
            if axis < band.num_axes - 1:
                coefficients.narrow(dim, reach + 1, 1).mul_(0.5)
    return coefficients


def analyse(x: Tensor, band: Band, padding: PaddingMode = "circular") -> Tensor:
    """Coefficients of real samples on a band: ``(..., *size)`` to ``(..., *band.shape)``, complex."""
    extended = extend(x, band, padding)
    spectrum = rfftn(extended, band.size_in, scaled=True)
    return _split_nyquist(_gather(spectrum, band), band)


def analyse_adjoint(g: Tensor, band: Band, size: tuple[int, ...], padding: PaddingMode = "circular") -> Tensor:
    """Adjoint of :func:`analyse` times the number of samples ``prod(band.size_in)``; may overwrite ``g``.

    The factor is left to the caller, who has a smaller array to put it into.
    """
    spectrum = _scatter(_split_nyquist(g, band), band, band.size_in)
    samples = irfftn(spectrum, band.size_in)
    return _extend_adjoint(samples, size, padding)


def synthesise(coefficients: Tensor, band: Band, out_size: tuple[int, ...]) -> Tensor:
    """Samples of a band on the output grid: ``(..., *band.shape)`` to ``(..., *out_size)``, real."""
    spectrum = _scatter(coefficients, band, band.size_out)
    y = irfftn(spectrum, band.size_out)
    return _extend_adjoint(y, out_size, "circular")


def synthesise_adjoint(g: Tensor, band: Band) -> Tensor:
    """Adjoint of :func:`synthesise`."""
    return _gather(rfftn(g, band.size_out), band)
