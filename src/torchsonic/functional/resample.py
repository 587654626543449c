"""Exact band-limited resizing.

A sampled field is taken as its trigonometric interpolant; resizing samples that interpolant on another grid of the
same extent. Frequencies above the new grid's Nyquist frequency are dropped, so shrinking does not alias.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from torchsonic.arguments import per_axis
from torchsonic.engine.call import without_autocast
from torchsonic.engine.lowering import lowering
from torchsonic.engine.resampling import centred_matrix, multiply_axes, resample_signals
from torchsonic.spectral.plain import plain_resample
from torchsonic.spectral.tracing import inside_function_transform


def resample(x: Tensor, size: int | Sequence[int], *, centred: bool = False) -> Tensor:
    """Sample the band-limited field of ``x`` on a grid of another size and the same extent.

    Parameters
    ----------
    x
        Real samples, ``(B, C, N_1 .. N_D)`` with D = 1, 2 or 3.
    size
        New size: one integer for all axes, or D of them.
    centred
        Whether old and new samples lie about the same centre, as in image libraries; sample ``j`` of ``m`` is then the
        field at ``(j + 1/2) n / m - 1/2`` instead of ``j n / m``. Such grids turn and flip onto themselves. Computed
        with a dense ``(m, n)`` matrix for each axis, which takes too much memory for very long signals.

    Returns
    -------
    Tensor
        ``(B, C, *size)``, dtype of ``x``. Half precision is computed in float32.

    Examples
    --------
    >>> coarse = torch.cos(2 * torch.pi * torch.arange(8.0) / 8)[None, None]
    >>> fine = torch.cos(2 * torch.pi * torch.arange(16.0) / 16)[None, None]
    >>> torch.allclose(resample(coarse, 16), fine, atol=1e-6)
    True
    """
    num_axes = x.dim() - 2
    if num_axes not in (1, 2, 3):
        raise ValueError(f"x must be (batch, channel, 1 to 3 axes), got shape {tuple(x.shape)}")
    if not x.is_floating_point():
        raise TypeError(f"x must be a real floating-point tensor, got {x.dtype}")
    target = per_axis(size, num_axes, "size")
    source = tuple(x.shape[2:])
    if any(n < 1 for n in source):
        raise ValueError(f"x has an empty axis: shape {tuple(x.shape)}")
    if source == target:
        return x.clone()
    work = x.to(torch.promote_types(x.dtype, torch.float32))
    active = lowering()
    if active is not None:
        return active.resample(work, target, centred=centred).to(x.dtype)
    if centred:
        with without_autocast(x.device):
            return multiply_axes(work, target, centred_matrix).to(x.dtype)
    transformed = inside_function_transform() and not torch.compiler.is_compiling()
    return (plain_resample if transformed else resample_signals)(work, target).to(x.dtype)
