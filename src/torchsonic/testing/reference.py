"""Independent references: the operator by dense matrices, and fields known at every point."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import torch
from torch import Tensor

from torchsonic.functional import Modes, ResponseLimits


def relative_error(actual: Tensor, expected: Tensor) -> float:
    """``max |actual - expected| / max |expected|``, in float64."""
    wide = torch.complex128 if expected.is_complex() or actual.is_complex() else torch.float64
    actual, expected = actual.detach().cpu().to(wide), expected.detach().cpu().to(wide)
    scale = expected.abs().max().item() if expected.numel() else 0.0
    difference = (actual - expected).abs().max().item() if expected.numel() else 0.0
    return difference / scale if scale > 0 else difference


def _dft(size: int) -> Tensor:
    n = torch.arange(size, dtype=torch.float64)
    return torch.exp(-2j * math.pi * torch.outer(n, n) / size)


def _signed_frequencies(size: Sequence[int], spacing: Sequence[float]) -> list[Tensor]:
    """Frequency grids ``(N, D)`` over all ways to sign the Nyquist bins of even axes."""
    grids = []
    for signs in itertools.product(*[(1, -1) if n % 2 == 0 else (1,) for n in size]):
        axes = []
        for n, step, sign in zip(size, spacing, signs, strict=True):
            k = torch.arange(n, dtype=torch.float64)
            k = torch.where(2 * k > n, k - n, k)
            if n % 2 == 0:
                k[n // 2] = sign * (n // 2)
            axes.append(2 * math.pi * k / (n * step))
        grids.append(torch.stack(torch.meshgrid(*axes, indexing="ij"), dim=-1).reshape(-1, len(size)))
    return grids


def _dense_limits(response: Tensor, omega: Tensor, cutoff: Tensor | None, limits: ResponseLimits) -> Tensor:
    """The limits of gained responses ``(N, M)`` as their definition says."""
    if cutoff is not None:
        response = response / (1 + (omega.norm(dim=-1)[:, None] / cutoff.double()) ** (2 * limits.band_order))
    if limits.magnitude > 0:
        size, most = response.abs(), limits.magnitude
        response = response / size * (most * torch.tanh(size / most) if limits.soft else size.clamp(max=most))
    return response


def dense_conv(
    x: Tensor,
    modes: Modes,
    bias: Tensor | None = None,
    *,
    spacing: Sequence[float],
    cutoff: Tensor | None = None,
    limits: ResponseLimits | None = None,
) -> Tensor:
    r"""The exact operator from dense matrices in float64, straight from its definition. Slow, but differentiable.

    .. math:: y = \operatorname{Re}\{C\, F^{-1} \operatorname{diag}(g_m T_m) F\, B x\} + \text{bias},
       \qquad T_m = \frac{1}{i s (\omega\cdot v) - a + \tau|\omega - (\omega\cdot v)v|^2}

    Parameters
    ----------
    x
        ``(B, C, N_1 .. N_D)``.
    modes
        For example ``layer.modes()``.
    cutoff, limits
        Limits of the responses, for example ``layer.cutoff()`` and ``layer.limits``.

    Returns
    -------
    Tensor
        ``(B, K, N_1 .. N_D)``, float64.
    """
    size, x = tuple(x.shape[2:]), x.cpu()
    modes, bias = Modes(*[t.cpu() for t in modes]), None if bias is None else bias.cpu()
    cutoff = None if cutoff is None else cutoff.cpu()
    direction, scale, transverse, gain = (
        t.double() for t in (modes.direction, modes.scale, modes.transverse, modes.gain)
    )
    pole, mix_in, mix_out = (t.to(torch.complex128) for t in (modes.pole, modes.mix_in, modes.mix_out))
    responses = []
    for omega in _signed_frequencies(size, spacing):
        along = omega @ direction.T
        across = (omega[:, None] - along[..., None] * direction).square().sum(-1)
        each = 1 / (1j * scale * along - pole + transverse * across)
        if limits is not None and limits.active:
            each = _dense_limits(gain * each, omega, cutoff, limits) / gain
        responses.append(each)
    response = gain * torch.stack(responses).mean(0)
    transform = torch.ones(1, 1, dtype=torch.complex128)
    for n in size:
        transform = torch.kron(transform, _dft(n))
    inverse = transform.conj() / math.prod(size)
    matrices = torch.einsum("in,nm,nj->mij", inverse, response, transform)
    z = torch.einsum("mc,bcj->bmj", mix_in, x.to(torch.complex128).flatten(2))
    y = torch.einsum("km,mij,bmj->bki", mix_out, matrices, z).real.reshape(x.shape[0], -1, *size)
    return y if bias is None else y + bias.double().reshape(-1, *[1] * len(size))


def band_limited_field(
    size: Sequence[int], max_wavenumber: int, channels: int, *, batch: int = 1, seed: int = 0, dtype=torch.float64
) -> Tensor:
    """Sample one fixed, random, band-limited field on a grid of any size over the unit extent.

    Returns
    -------
    Tensor
        ``(batch, channels, *size)``; grids that resolve ``max_wavenumber`` sample the same field.
    """
    generator = torch.Generator().manual_seed(seed)
    shape = (batch, channels, *[2 * max_wavenumber + 1] * len(size), 2)
    coefficients = torch.view_as_complex(torch.randn(shape, generator=generator, dtype=torch.float64))
    return along_axes(coefficients, [waves(n, max_wavenumber) for n in size]).real.to(dtype)


def waves(size: int, max_wavenumber: int) -> Tensor:
    """``exp(2 pi i k n / size)``, ``(size, 2 max_wavenumber + 1)``."""
    k = torch.arange(-max_wavenumber, max_wavenumber + 1, dtype=torch.float64)
    return torch.exp(2j * math.pi * torch.outer(torch.arange(size, dtype=torch.float64), k) / size)


def along_axes(field: Tensor, matrices: Sequence[Tensor]) -> Tensor:
    """Multiply each spatial axis by its matrix."""
    for axis, matrix in enumerate(matrices, start=2):
        field = torch.movedim(torch.movedim(field, axis, -1) @ matrix.T, -1, axis)
    return field
