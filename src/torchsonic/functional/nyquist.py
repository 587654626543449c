"""Bins at the Nyquist frequency of an even axis: they stand for both signs.

There a response is the mean of its values at both signs. Frequencies come with one more entry for that, the Nyquist
frequency with the other sign, behind the others. Exporters may not know yet whether a size is even: ``two_sided_omega``
and ``blend_signs`` ask nothing, they give the other sign a share that is a half or zero.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from torchsonic.functional.frequency import Band
from torchsonic.functional.symbols import number

__all__ = [
    "average_signs",
    "average_signs_backward",
    "blend_signs",
    "field_power",
    "one_sided_omega",
    "other_sign_share",
    "two_sided_omega",
]


def average_signs(response: Tensor, band: Band) -> Tensor:
    """Replace an unsigned Nyquist bin of ``(G, M, ..)`` by the mean over both signs, and drop the appended bin."""
    for axis in band.unsigned_axes:
        dim, last = 2 + axis, response.shape[2 + axis] - 1
        mean = response.narrow(dim, band.reach[axis], 1).add(response.narrow(dim, last, 1)).mul_(0.5)
        response = response.narrow(dim, 0, last).clone()
        response.narrow(dim, band.reach[axis], 1).copy_(mean)
    return response.contiguous()


def average_signs_backward(grad: Tensor, band: Band) -> Tensor:
    """Adjoint of :func:`average_signs`; may overwrite ``grad``."""
    for axis in band.unsigned_axes:
        dim = 2 + axis
        half = grad.narrow(dim, band.reach[axis], 1).mul_(0.5)
        grad = torch.cat([grad, half], dim)
    return grad


def other_sign_share(band: Band, axis: int, dtype: torch.dtype, device=None) -> float | Tensor:
    """Share of the other sign in the bin at ``reach``: a half if the bin has no sign, else zero."""
    return 0.0 if band.resampled[axis] else 0.5 * number(1 - band.size_in[axis] % 2, dtype, device)


def _perhaps_unsigned(band: Band) -> list[int]:
    """Axes whose bin at ``reach`` has no sign, or may have none."""
    return [
        axis
        for axis, size in enumerate(band.size_in)
        if not band.resampled[axis] and (not isinstance(size, int) or size % 2 == 0)
    ]


def one_sided_omega(band: Band, spacing: Tensor, dtype: torch.dtype) -> list[Tensor]:
    """As ``band.omega(..)``, for sizes that may be symbols."""
    work, device = spacing.dtype, spacing.device
    axes = []
    for axis, size in enumerate(band.size_in):
        extent = number(size, work, device) * spacing[:, axis : axis + 1]
        axes.append((band.wavenumbers(axis, device=device, dtype=work) * (2 * math.pi) / extent).to(dtype))
    return axes


def two_sided_omega(band: Band, spacing: Tensor, dtype: torch.dtype) -> list[Tensor]:
    """As ``band.omega(.., both_signs=True)``; axes whose size is a symbol always get the additional entry."""
    axes = one_sided_omega(band, spacing, dtype)
    for axis in _perhaps_unsigned(band):
        axes[axis] = torch.cat([axes[axis], -axes[axis].narrow(-1, band.reach[axis], 1)], dim=-1)
    return axes


def blend_signs(response: Tensor, band: Band) -> Tensor:
    """As :func:`average_signs`, for frequencies from :func:`two_sided_omega`; nothing is written in place."""
    for axis in _perhaps_unsigned(band):
        dim, reach = 2 + axis, band.reach[axis]
        last = response.shape[dim] - 1
        share = other_sign_share(band, axis, response.dtype, response.device)
        kept, other = response.narrow(dim, reach, 1), response.narrow(dim, last, 1)
        parts = [response.narrow(dim, 0, reach), kept + (other - kept) * share]
        if axis < band.num_axes - 1:
            parts.append(response.narrow(dim, reach + 1, last - reach - 1))
        response = torch.cat(parts, dim)
    return response


def field_power(x: Tensor, num_axes: int) -> Tensor:
    r"""Mean square of the field that samples stand for, ``(.., *size)`` to ``(.., 1 .. 1)``.

    .. math:: P = \frac1N\sum_n x_n^2 - \tfrac12 P_{\mathrm{Nyquist}}\quad\text{for each even axis}

    A wave at the Nyquist frequency is met at its crests alone: its samples have twice the power of the wave. Counted
    like this, the power is the same on every grid that holds the field.

    Examples
    --------
    >>> crests = torch.tensor([[[1.0, -1.0, 1.0, -1.0]]])
    >>> torchsonic.functional.resample(crests, 32).square().mean(), field_power(crests, 1)
    (tensor(0.5000), tensor([[[0.5000]]]))
    """
    if num_axes == 0:
        return x.square()
    dim, size = x.dim() - num_axes, x.shape[-num_axes]
    sign = 1 - 2 * (torch.arange(size, device=x.device) % 2).to(x.dtype)
    alternating = (x * sign.view(-1, *[1] * (num_axes - 1))).mean(dim, keepdim=True)
    share = number(0.5 * (1 - size % 2), x.dtype, x.device)
    power = field_power(x, num_axes - 1).mean(dim, keepdim=True)
    return power - share * field_power(alternating, num_axes - 1)
