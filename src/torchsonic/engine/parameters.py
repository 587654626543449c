"""From stored parameters to physical ones and their gain, in few operations, with a backward pass written by hand.

The result is that of :func:`torchsonic.spectral.parameters.physical` and
:func:`torchsonic.spectral.gain.reference_gain`. Tensors have only M numbers, so time is spent on the number of
operations, not on their size.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache

import torch
from torch import Tensor

from torchsonic.engine.accelerator import coupling_on
from torchsonic.spectral.constants import constant
from torchsonic.spectral.gain import least_power, reference_gain, transverse_quadrature
from torchsonic.spectral.parameters import physical, reference_length, shortest, smallest
from torchsonic.spectral.tracing import just_numbers

__all__ = ["physical_with_gain"]

ORDINARY = [Tensor, torch.nn.Parameter]  # not DTensors
Six = tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]


def physical_with_gain(raw: Sequence[Tensor], spacing: tuple[float, ...]) -> Six:
    """Direction, scale, damping, oscillation, transverse and gain of modes with a reference spacing.

    Parameters
    ----------
    raw
        Direction ``(M, D)``, scale, damping, oscillation, transverse ``(M,)`` and the limit of oscillation ``()``, as
        they are stored.
    """
    if not all(type(t) in ORDINARY for t in raw) or not just_numbers():
        return _plain(raw, spacing)
    if coupling_on(raw[0].device.type) == "triton":
        from torchsonic.engine.fused_parameters import FusedParameters

        return FusedParameters.apply(_plain, spacing, *raw)  # type: ignore[return-value]
    if len(spacing) == 1:
        return _plain(raw, spacing)
    return _PhysicalWithGain.apply(spacing, *raw)  # type: ignore[return-value]


def _plain(raw: Sequence[Tensor], spacing: tuple[float, ...]) -> Six:
    direction, scale, damping, oscillation, transverse = physical(raw, spacing)
    pole = torch.complex(-damping, oscillation)
    gain = reference_gain(direction, scale, pole, transverse, spacing)
    return direction, scale, damping, oscillation, transverse, gain


class _PhysicalWithGain(torch.autograd.Function):
    """``g^-2 = <A>`` over the quadrature, with ``A = atan2(h, w) / h``, ``h = 2 r p`` and ``w = p^2 + b^2 - r^2``.

    With ``R = 1 / (w + i h)``, backward needs only ``dA/dp = (Re R - A) / p + Im R / r`` and ``dA/db = b Im R / (r
    p)``. The derivative by the scale follows, since the gain doubles when scale, damping, oscillation and transverse
    do. The step along the mode enters the gain only as ``s / step`` and as ``tau step^2`` (3-D: ``tau step``).
    """

    @staticmethod
    def forward(ctx, spacing: tuple[float, ...], *raw: Tensor):  # type: ignore[override]
        raw_direction, raw_scale, raw_damping, raw_oscillation, raw_transverse, limit = raw
        num_axes, device, dtype = len(spacing), raw_direction.device, raw_direction.dtype
        raw_three = torch.stack([raw_scale, raw_damping, raw_transverse])
        offset, factor = (constant(a, device, dtype) for a in _affine(spacing))
        three = torch.addcmul(offset, torch.nn.functional.softplus(raw_three), factor)
        scale, damping, transverse = three.unbind(0)
        part = torch.tanh(raw_oscillation)
        oscillation = limit * part
        length = torch.linalg.vector_norm(raw_direction, dim=-1, keepdim=True)
        short = length < shortest()
        first = constant((1.0, *[0.0] * (num_axes - 1)), device, dtype)
        direction = torch.where(short, first, raw_direction / length)
        # Over pi, so that the highest frequency along a mode is one over it.
        step = torch.linalg.vector_norm(direction * constant(_steps(spacing), device, dtype), dim=-1)
        reach = scale / step
        nodes, weights = (constant(a, device, dtype) for a in _quadrature(spacing))
        # The squared radius of the cell across a mode, up to the factor that is in the nodes.
        radius = step if num_axes == 3 else step.square()
        p = torch.addcmul(damping[:, None], (transverse * radius)[:, None], nodes)
        height = (2 * reach)[:, None] * p
        width = torch.addcmul(((oscillation - reach) * (oscillation + reach))[:, None], p, p)
        share = torch.atan2(height, width) / height
        gain = (share * weights).sum(-1).clamp_min(least_power()).rsqrt()
        ctx.save_for_backward(
            *raw, raw_three, three, part, oscillation, direction, length, short, step, reach, radius, p, height, width,
            share, gain,
        )  # fmt: skip
        ctx.spacing = spacing
        return direction, scale, damping, oscillation, transverse, gain

    @staticmethod
    def backward(ctx, *grads):  # type: ignore[override]
        saved = ctx.saved_tensors  # once: checkpointing recomputes them at the first look and refuses a second
        raw, saved = saved[:6], saved[6:]
        if torch.is_grad_enabled():  # create_graph=True
            raw = [t.view_as(t) for t in raw]
            found = torch.autograd.grad(_plain(raw, ctx.spacing), raw, grads, create_graph=True, materialize_grads=True)
            return None, *found
        grad_direction, grad_scale, grad_damping, grad_oscillation, grad_transverse, grad_gain = grads
        raw_three, three, part, oscillation, direction, length, short, step, *rest = saved
        reach, radius, p, height, width, share, gain = rest
        spacing, device, dtype = ctx.spacing, step.device, step.dtype
        scale, damping, transverse = three.unbind(0)
        nodes, weights = (constant(a, device, dtype) for a in _quadrature(spacing))
        inverse = torch.complex(width, height).reciprocal()  # no square that could overflow
        tilt = inverse.imag / reach[:, None]
        by_p = (inverse.real - share) / p + tilt
        means = (torch.stack([by_p, by_p * nodes, tilt / p]) * weights).sum(-1)
        # The gradient of the mean power, zero where it is clamped.
        by_power = (grad_gain * gain.pow(3) * -0.5).masked_fill_(gain >= least_power() ** -0.5, 0.0)
        by_damping, by_radius, by_square = found = means * by_power
        # Parameters times their gradients; that of the scale is what homogeneity leaves.
        grown = found * torch.stack([damping, transverse * radius, oscillation.square()])
        stretch = torch.addcmul(-grown.sum(0), grad_gain, gain)
        by_step = (grown[1] * (4 - len(spacing)) - stretch) / step / step  # its square could underflow
        squares = constant(tuple(d**2 for d in _steps(spacing)), device, dtype)
        grad_direction = torch.addcmul(grad_direction, by_step[:, None], direction * squares)
        along = (direction * grad_direction).sum(-1, keepdim=True)
        turned = torch.addcmul(grad_direction, direction, along, value=-1).div_(length).masked_fill_(short, 0.0)
        grads_three = torch.stack([grad_scale, grad_damping, grad_transverse])
        grads_three.add_(torch.stack([stretch / scale, by_damping, by_radius * radius]))
        grads_three.mul_(constant(_affine(spacing)[1], device, dtype))
        stored = torch.ops.aten.softplus_backward(grads_three, raw_three, 1.0, 20.0).unbind(0)
        limit = raw[5]
        grad_oscillation = torch.addcmul(grad_oscillation, by_square, oscillation)
        by_part = torch.ops.aten.tanh_backward(grad_oscillation, part) * limit
        by_limit = (part * grad_oscillation).sum().reshape(limit.shape)  # sharded parameters have a vector
        return None, turned, stored[0], stored[1], by_part, stored[2], by_limit


def _affine(spacing: tuple[float, ...]) -> tuple[tuple, tuple]:
    """Offset and factor from softplus to scale, damping and transverse; see :mod:`torchsonic.spectral.parameters`."""
    unit = reference_length(spacing)
    return ((smallest() * unit,), (smallest(),), (0.0,)), ((unit,), (1.0,), (unit**2,))


@cache
def _steps(spacing: tuple[float, ...]) -> tuple[float, ...]:
    return tuple(d / math.pi for d in spacing)


@cache
def _quadrature(spacing: tuple[float, ...]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Nodes times the squared radius over ``step`` (3-D) or ``step`` squared (2-D), and weights."""
    nodes, weights = transverse_quadrature(len(spacing))
    volume = math.prod(spacing)
    factor = (math.pi**2 / volume) ** 2 if len(spacing) == 2 else 4 * math.pi**2 / volume
    return tuple(factor * n for n in nodes), weights
