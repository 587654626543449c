"""Fourier transforms of signals onto a band and back, each with its adjoint; not differentiable.

Real signals ``(b, c, *size)`` have half spectra. Their adjoints use the inner product ``sum mult * Re(conj(a) b)`` with
``mult`` from :meth:`Band.multiplicity`, so that the adjoint of a response is its conjugate.

The two real signals ``P`` and ``Q`` of a mode, in ``(b, 2 m, *size)``, can also be transformed as one complex signal
``P + iQ`` with a full spectrum. This takes half as many transforms, and coupling is one multiplication. Adjoints then
work on *conjugates*, ``P - iQ``, so that only the sign of ``Q`` changes and no spectrum has to be conjugated. GPUs use
a band of half spectra instead, ``(b, m, 2, *band)``, and transform the two signals as they lie in memory.
"""

from __future__ import annotations

import torch
from torch import Tensor

from torchsonic.engine.fft import complex_fftn, irfftn, rfftn
from torchsonic.spectral.band import Band
from torchsonic.spectral.boundary import CIRCULAR, Boundary, extend, extend_adjoint
from torchsonic.spectral.transform import gather_band, scatter_band, split_nyquist

__all__ = ["analyse", "analyse_adjoint", "analyse_modes", "analyse_modes_adjoint"]
__all__ += ["synthesise", "synthesise_adjoint", "synthesise_modes", "synthesise_modes_adjoint"]


def analyse(x: Tensor, band: Band, boundary: Boundary = CIRCULAR) -> Tensor:
    """Coefficients of real samples on a band: ``(.., *size)`` to ``(.., *band.shape)``, complex."""
    spectrum = rfftn(extend(x, band, boundary), band.size_in, scaled=True)
    return split_nyquist(gather_band(spectrum, band), band)


def analyse_adjoint(g: Tensor, band: Band, size: tuple[int, ...], boundary: Boundary = CIRCULAR) -> Tensor:
    """Adjoint of :func:`analyse` times the number of samples ``prod(band.size_in)``; may overwrite ``g``.

    The caller puts the factor into a smaller array.
    """
    samples = irfftn(scatter_band(split_nyquist(g, band), band, band.size_in), band.size_in)
    return extend_adjoint(samples, size, boundary)


def synthesise(coefficients: Tensor, band: Band, out_size: tuple[int, ...]) -> Tensor:
    """Samples of a band on the output grid: ``(.., *band.shape)`` to ``(.., *out_size)``, real."""
    y = irfftn(scatter_band(coefficients, band, band.size_out), band.size_out)
    return extend_adjoint(y, out_size, CIRCULAR)


def synthesise_adjoint(g: Tensor, band: Band) -> Tensor:
    """Adjoint of :func:`synthesise`."""
    return gather_band(rfftn(g, band.size_out), band)


def analyse_modes(u: Tensor, band: Band, boundary: Boundary) -> Tensor:
    """Coefficients of modes: ``(b, 2 m, *size)`` to ``(b, m, *band)``, or ``(b, m, 2, *band)``."""
    if band.half:
        return analyse(u, band, boundary).unflatten(1, (-1, 2))
    z = _join(extend(u, band, boundary), band.size_in)
    spectrum = complex_fftn(z, band.num_axes, scaled=True)
    return split_nyquist(gather_band(spectrum, band), band)


def analyse_modes_adjoint(g: Tensor, band: Band, size: tuple[int, ...], boundary: Boundary) -> Tensor:
    """Adjoint of :func:`analyse_modes`, on conjugates, or as :func:`analyse_adjoint`; may overwrite ``g``."""
    if band.half:
        return analyse_adjoint(g.flatten(1, 2), band, size, boundary)
    spectrum = scatter_band(split_nyquist(g, band), band, band.size_in)
    z = complex_fftn(spectrum, band.num_axes, scaled=True)
    if boundary.mode == "reflect":
        return extend_adjoint(_split(z, band.size_in), size, boundary)
    return _split(z, size)


def synthesise_modes(coefficients: Tensor, band: Band, out_size: tuple[int, ...]) -> Tensor:
    """Both signals of modes on the output grid, ``(b, 2 m, *out_size)``."""
    if band.half:
        return synthesise(coefficients.flatten(1, 2), band, out_size)
    spectrum = scatter_band(coefficients, band, band.size_out)
    return _split(complex_fftn(spectrum, band.num_axes, inverse=True), out_size)


def synthesise_modes_adjoint(g: Tensor, band: Band) -> Tensor:
    """Adjoint of :func:`synthesise_modes`, on conjugates unless there are half spectra."""
    if band.half:
        return synthesise_adjoint(g, band).unflatten(1, (-1, 2))
    z = _join(g, band.size_out)
    return gather_band(complex_fftn(z, band.num_axes, inverse=True), band)


def _join(u: Tensor, total: tuple[int, ...]) -> Tensor:
    """Pairs of real signals ``(b, 2 m, *size)`` as complex ones ``(b, m, *total)``, padded with zeros."""
    size = tuple(u.shape[2:])
    p, q = u.unflatten(1, (-1, 2)).unbind(2)
    if size == tuple(total):
        return torch.complex(p, q)
    z = u.new_zeros(*p.shape[:2], *total, 2)
    inside = z[(..., *[slice(n) for n in size], slice(None))]
    inside[..., 0] = p
    inside[..., 1] = q
    return torch.view_as_complex(z)


def _split(z: Tensor, size: tuple[int, ...]) -> Tensor:
    """The first samples of complex signals ``(b, m, *total)`` as pairs of real ones ``(b, 2 m, *size)``."""
    parts = torch.view_as_real(z[(..., *[slice(n) for n in size])]).movedim(-1, 2)
    return parts.reshape(z.shape[0], -1, *size)
