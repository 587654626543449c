r"""The whole definition of the operator.

    y = Re{ C F^-1[ g_m T_m(w) F[B x]_m ] } + bias                              symmetry "real": the exact operator
    y = F_half^-1[ Re_0{ C g_m T_m(w) B F_half[x] } ] + bias                    symmetry "half": the paper's notes

``F`` is the Fourier transform on a periodic grid, the image's own or a larger one (:mod:`boundary`), restricted to the
frequencies that input and output have in common (:mod:`band`); ``T`` is defined in :mod:`response`. The paper uses the
half spectrum of a real transform as it is and drops the imaginary part (``Re_0``) on its self-conjugate planes.

All operations are ordinary differentiable ones. Function transforms and higher derivatives run this code, and the
faster code in :mod:`torchsonic.engine` is tested against it.
"""

from __future__ import annotations

import torch
from torch import Tensor

from torchsonic.spectral.band import Band
from torchsonic.spectral.boundary import CIRCULAR, Boundary, extend
from torchsonic.spectral.limits import UNLIMITED, ResponseLimits
from torchsonic.spectral.response import ModeShape, Symmetry, responses_on_band
from torchsonic.spectral.transform import gather_band, scatter_band, split_nyquist, zero_imaginary

__all__ = ["plain_conv", "plain_resample"]


def plain_conv(
    x: Tensor,
    mix_in: Tensor,
    mix_out: Tensor,
    shape: ModeShape,
    bias: Tensor | None,
    *,
    spacing: Tensor,
    out_size: tuple[int, ...],
    boundary: Boundary = CIRCULAR,
    symmetry: Symmetry = "real",
    limits: ResponseLimits = UNLIMITED,
) -> Tensor:
    """Apply the operator.

    Parameters
    ----------
    x
        ``(B, C, *size)``, real.
    mix_in, mix_out
        ``(M, 2, C)`` with ``Re B, Im B`` and ``(K, M, 2)`` with ``Re C, -Im C``.
    shape
        Parameters of the responses, shared (G = 1) or one set per sample.
    bias
        ``(K,)`` or ``None``.
    spacing
        ``(1, D)`` or ``(B, D)``.

    Returns
    -------
    Tensor
        ``(B, K, *out_size)``.
    """
    size = tuple(x.shape[2:])
    b = torch.complex(mix_in[:, 0], mix_in[:, 1])
    c = torch.complex(mix_out[..., 0], -mix_out[..., 1])
    band = boundary.band(size, out_size, half=symmetry == "half")
    response = responses_on_band(shape, spacing, band, symmetry, limits)
    z = torch.einsum("mc,bc...->bm...", b, _analyse(extend(x, band, boundary), band))
    w = torch.einsum("km,bm...->bk...", c, response * z)
    y = _synthesise(zero_imaginary(w, band) if band.half else w, band)
    y = y[(..., *[slice(n) for n in out_size])]
    return y if bias is None else y + bias.reshape(-1, *[1] * len(size))


def plain_resample(x: Tensor, size: tuple[int, ...]) -> Tensor:
    """Sample the trigonometric interpolant of ``x (B, C, *)`` on another grid of the same extent."""
    band = Band(tuple(x.shape[2:]), size)
    return _synthesise(_analyse(x, band), band)


def _analyse(x: Tensor, band: Band) -> Tensor:
    """Coefficients of the trigonometric interpolant of real samples: ``(.., *size_in)`` to ``(.., *band.shape)``."""
    transform = torch.fft.rfftn if band.half else torch.fft.fftn
    spectrum = transform(x, s=band.size_in, dim=tuple(range(-band.num_axes, 0)), norm="forward")
    return split_nyquist(gather_band(spectrum, band), band)


def _synthesise(coefficients: Tensor, band: Band) -> Tensor:
    """Real part of the band's field on the output grid: ``(.., *band.shape)`` to ``(.., *size_out)``."""
    spectrum = scatter_band(coefficients, band, band.size_out)
    dims = tuple(range(-band.num_axes, 0))
    if band.half:
        return torch.fft.irfftn(spectrum, s=band.size_out, dim=dims, norm="forward")
    return torch.fft.ifftn(spectrum, dim=dims, norm="forward").real
