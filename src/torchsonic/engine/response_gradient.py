"""The derivative of the responses, by per-mode sums over the band.

Autograd could do it (:func:`torchsonic.spectral.response.respond` is all it needs), with three times the passes over
arrays of (modes x frequencies).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from torchsonic.spectral.limits import ResponseLimits, limit_backward
from torchsonic.spectral.response import ModeShape, column, components_across

__all__ = ["response_gradient"]

# What a gradient may be at most: the units of length that the chain rule still multiplies it by leave float32 finite.
LARGEST_GRADIENT = 1e24


def response_gradient(
    grad: Tensor, response: Tensor, omega: Sequence[Tensor], shape: ModeShape, limits: ResponseLimits
) -> ModeShape:
    r"""Gradients of the modes' parameters from the *conjugate* gradient of the limited responses.

    .. math:: dT = \frac{T}{g}\,dg - \frac{T^2}{g}\,(dp + i\,dq), \qquad
       p = \text{damping} + \tau \sum_{i<j} (w_i v_j - w_j v_i)^2, \qquad q = s\,(w\cdot v) - b

    Parameters
    ----------
    grad, response
        ``(G, M, n_1 .. n_D)``, the response before its limits.
    omega
        D frequencies as they were for the response.
    """
    num_axes = len(omega)
    grid = tuple(range(2, 2 + num_axes))
    grad_cutoff = None
    if limits.active:
        grad, grad_cutoff = limit_backward(grad, response, omega, shape.cutoff, limits)
    # A dropped mode has gain zero: it gets no gradient, and its responses cannot be divided by the gain.
    inverse_gain = torch.where(shape.gain == 0, 0.0, shape.gain.reciprocal())
    # First: squares of large responses times large gradients would overflow.
    change = grad * column(inverse_gain, num_axes) * response
    grad_gain = change.real.sum(grid)
    change = change * response  # dL = -Re(change) dp + Im(change) dq
    moments = [_moment(change, omega, axis) for axis in range(num_axes)]
    moment = torch.stack([m.imag for m in moments], dim=-1)
    grad_direction = shape.scale[..., None] * moment
    grad_transverse = torch.zeros_like(moment[..., 0])
    for (i, j), component in components_across(omega, shape.direction).items():
        # Of an image this is the whole array; of a volume a projection onto two axes.
        others = tuple(d for d in grid if d - 2 not in (i, j))
        weighted = (change.real.sum(others, keepdim=True) if others else change.real) * component
        slope_i, slope_j = _moment(weighted, omega, j), _moment(weighted, omega, i)
        grad_transverse += shape.direction[..., i] * slope_i - shape.direction[..., j] * slope_j
        grad_direction[..., i] += 2 * shape.transverse * slope_i
        grad_direction[..., j] -= 2 * shape.transverse * slope_j
    total = change.sum(grid)
    scale = (shape.direction * moment).sum(-1)
    numbers = _bounded(torch.stack([scale, -total.real, -total.imag, grad_transverse, grad_gain])).unbind(0)
    return ModeShape(_bounded(grad_direction), *numbers, cutoff=None if grad_cutoff is None else _bounded(grad_cutoff))


def _bounded(grad: Tensor) -> Tensor:
    return grad.clamp_(-LARGEST_GRADIENT, LARGEST_GRADIENT)


def _moment(values: Tensor, omega: Sequence[Tensor], axis: int) -> Tensor:
    """``sum w_axis values`` over the grid, ``(G, M)``: projected onto the axis first, which leaves little to multiply.

    Not by einsum: a matrix product adds all terms in one run and loses digits on large grids; ``sum`` adds pairwise.
    """
    others = tuple(d for d in range(2, values.dim()) if d != 2 + axis)
    projected = values.sum(others) if others else values
    return (projected * omega[axis].flatten(1)[:, None]).sum(-1)
