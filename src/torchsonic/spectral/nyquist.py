"""Bins at the Nyquist frequency of an even axis, which stand for both signs.

There, a response is the mean of its values at both signs. To compute it, the frequencies of the axis have one extra
entry at the end: the Nyquist frequency with the other sign.
"""

from __future__ import annotations

import torch
from torch import Tensor

from torchsonic.spectral.band import Band

__all__ = ["average_signs", "average_signs_backward", "field_power"]


def average_signs(response: Tensor, band: Band) -> Tensor:
    """Replace unsigned Nyquist bins of ``(G, M, ..)`` by the mean over both signs, in place; drop the extra entries."""
    for axis in band.unsigned_axes:
        dim, last = 2 + axis, response.shape[2 + axis] - 1
        response.narrow(dim, band.reach[axis], 1).add_(response.narrow(dim, last, 1)).mul_(0.5)
        response = response.narrow(dim, 0, last)
    return response


def average_signs_backward(grad: Tensor, band: Band) -> Tensor:
    """Adjoint of :func:`average_signs`; may overwrite ``grad``."""
    for axis in band.unsigned_axes:
        dim = 2 + axis
        half = grad.narrow(dim, band.reach[axis], 1).mul_(0.5)
        grad = torch.cat([grad, half], dim)
    return grad


def field_power(x: Tensor, num_axes: int) -> Tensor:
    r"""Mean square of the sampled field, ``(.., *size)`` to ``(.., 1 .. 1)``.

    .. math:: P = \frac1N\sum_n x_n^2 - \tfrac12 P_{\mathrm{Nyquist}}\quad\text{for each even axis}

    A wave at the Nyquist frequency is sampled at its crests only, so its samples have twice the power of the wave. With
    this correction the power is the same on every grid that can represent the field.

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
    share = 0.5 * (1 - sign.sum())  # a half if the axis is even; an exporter does not know whether it is
    power = field_power(x, num_axes - 1).mean(dim, keepdim=True)
    return power - share * field_power(alternating, num_axes - 1)
