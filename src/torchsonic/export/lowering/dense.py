"""Fourier transforms as matrix products, for runtimes whose own are slow, inexact or absent.

Each axis is one product with cosines and sines; a complex number is two rows. Layouts are chosen so that no step has to
transpose: an analysis takes ``[sample, part]`` to ``[part, wavenumber]`` on one axis after the other from the last,

    (.., n_1, n_2) -> (.., n_1, part, k_2) -> (.., part, k_1, k_2),

and a synthesis goes back the same way. Between grids of different sizes the matrices are simply not square, by the
rules of :mod:`torchsonic.spectral.transform`. Sizes may be symbols: nothing here asks whether one is even.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from torchsonic.engine.lowering import is_symbolic, number
from torchsonic.export.lowering.symbolic import other_sign_share
from torchsonic.spectral.band import Band


def _work_dtype(band: Band, dtype: torch.dtype) -> torch.dtype:
    """What matrices are computed in: float64 before an export, the model's dtype within the exported graph."""
    return dtype if is_symbolic((*band.size_in, *band.size_out)) else torch.float64


def _waves(band: Band, axis: int, samples: int, period: int, work: torch.dtype, device) -> tuple[Tensor, Tensor]:
    """Cosines and sines of ``2 pi k j / period``, ``(k, j)``.

    Turns are counted in integers and whole ones dropped, so that large sizes lose no digits.
    """
    wavenumbers = band.wavenumbers(axis, device=device, dtype=torch.int64)
    places = torch.arange(samples, device=device)
    whole = number(period, torch.int64, device)
    turns = torch.remainder(wavenumbers[:, None] * places, whole)
    turns = torch.where(2 * turns > whole, turns - whole, turns)
    angles = turns.to(work) * (2 * math.pi) / number(period, work, device)
    return angles.cos(), angles.sin()


def _at_reach(band: Band, axis: int, work: torch.dtype, device) -> Tensor:
    """Ones at the largest wavenumber, of both signs, zeros elsewhere: ``(k,)``."""
    wavenumbers = band.wavenumbers(axis, device=device, dtype=torch.int64)
    return (wavenumbers.abs() == band.reach[axis]).to(work)


def _analysis_weight(band: Band, axis: int, work: torch.dtype, device) -> Tensor | float:
    """Halves both signs of an input Nyquist frequency that the output grid tells apart; divides by the samples."""
    size, finer = band.size_in[axis], band.size_out[axis]
    samples = number(size, work, device)
    if not band.resampled[axis] or size > finer or (isinstance(size, int) and size % 2 == 1):
        return 1 / samples
    even = number(1 - size % 2, work, device)
    return (1 - _at_reach(band, axis, work, device) * 0.5 * even)[:, None] / samples


def last_multiplicity(band: Band, dtype: torch.dtype, device=None) -> Tensor:
    """As :meth:`Band.multiplicity`."""
    axis = band.num_axes - 1
    zero = (band.wavenumbers(axis, device=device, dtype=torch.int64) == 0).to(dtype)
    share = other_sign_share(band, axis, dtype, device)
    return 2 - zero - _at_reach(band, axis, dtype, device) * 2 * share


def analysis_matrices(band: Band, size: tuple[int, ...], dtype: torch.dtype, device=None) -> list[Tensor]:
    """One matrix per axis, from ``size`` samples to the band; beyond them the field is zero.

    The last is ``(n_D, 2 k_D)`` and multiplies from the right; the others are ``(2 k, 2 n)``, from the left.
    """
    matrices, work = [], _work_dtype(band, dtype)
    for axis, samples in enumerate(size):
        cosine, sine = _waves(band, axis, samples, band.size_in[axis], work, device)
        weight = _analysis_weight(band, axis, work, device)
        cosine, sine = cosine * weight, sine * weight
        if axis == band.num_axes - 1:
            matrix = torch.cat([cosine, -sine]).mT
        else:
            rows = [torch.stack(parts, dim=2).flatten(1) for parts in ((cosine, sine), (-sine, cosine))]
            matrix = torch.cat(rows)
        matrices.append(matrix.to(dtype).contiguous())
    return matrices


def synthesis_matrices(band: Band, out_size: tuple[int, ...], dtype: torch.dtype, device=None) -> list[Tensor]:
    """One matrix per axis, from the band to the first ``out_size`` samples of the output grid.

    The last is ``(2 k_D, m_D)`` and multiplies from the right; the others are ``(2 m, 2 k)``, from the left.
    """
    matrices, work = [], _work_dtype(band, dtype)
    for axis, samples in enumerate(out_size):
        cosine, sine = _waves(band, axis, samples, band.size_out[axis], work, device)
        if axis == band.num_axes - 1:
            count = last_multiplicity(band, work, device)[:, None]
            matrix = torch.cat([cosine * count, -sine * count])
        else:
            cosine, sine = cosine.mT, sine.mT
            rows = [torch.cat(parts, dim=1) for parts in ((cosine, -sine), (sine, cosine))]
            matrix = torch.stack(rows, dim=1).flatten(0, 1)
        matrices.append(matrix.to(dtype).contiguous())
    return matrices


def dense_analyse(x: Tensor, matrices: list[Tensor], band: Band, *, first: int = 0) -> Tensor:
    """Coefficients of real samples: ``(B, S, n_1 .. n_D)`` to ``(B, S, 2, k_1 .. k_D)``.

    With ``first=1`` the first axis is left as it is: ``(B, S, 2 n_1, k_2 .. k_D)`` with rows ``[sample, part]``.
    """
    lead, samples, shape = x.shape[:2], x.shape[2:], band.shape
    z = x @ matrices[-1]
    for axis in range(band.num_axes - 2, first - 1, -1):
        rows = z.reshape(*lead, *samples[:axis], 2 * samples[axis], math.prod(shape[axis + 1 :]))
        z = matrices[axis] @ rows
    return z.reshape(*lead, *([2, shape[0]] if first == 0 else [2 * samples[0]]), *shape[1:])


def dense_synthesise(
    z: Tensor, matrices: list[Tensor], band: Band, out_size: tuple[int, ...], *, first: int = 0
) -> Tensor:
    """Real samples of coefficients, all the way back: to ``(B, S, m_1 .. m_D)``."""
    lead, shape = z.shape[:2], band.shape
    for axis in range(first, band.num_axes - 1):
        rows = z.reshape(*lead, *out_size[:axis], 2 * shape[axis], math.prod(shape[axis + 1 :]))
        z = matrices[axis] @ rows
    return z.reshape(*lead, *out_size[:-1], 2 * shape[-1]) @ matrices[-1]


def resampling_matrix(size: int, out_size: int, dtype: torch.dtype, device=None) -> Tensor:
    """Trigonometric interpolation of one axis, ``(out_size, size)``: band-limited resizing is real and separable."""
    band = Band((size,), (out_size,))
    work = _work_dtype(band, dtype)
    weight = last_multiplicity(band, work, device)[:, None] * _analysis_weight(band, 0, work, device)
    waves_in, waves_out = (_waves(band, 0, n, n, work, device) for n in (size, out_size))
    cosine, sine = (there.mT @ (here * weight) for here, there in zip(waves_in, waves_out, strict=True))
    return (cosine + sine).to(dtype)
