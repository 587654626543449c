"""The parameters' own mathematics in few operations: from stored numbers to physical ones and their gain, and back.

It is :func:`torchsonic.spectral.parameters.physical` followed by :func:`torchsonic.spectral.gain.reference_gain`, on
tensors of M numbers: what counts is the number of operations, forward and backward, not their size.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from torchsonic.spectral.constants import constant
from torchsonic.spectral.gain import least_power, reference_gain, transverse_quadrature
from torchsonic.spectral.parameters import physical, reference_length, shortest, smallest
from torchsonic.spectral.tracing import just_numbers

__all__ = ["physical_with_gain"]

Six = tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]


def physical_with_gain(raw: Sequence[Tensor], spacing: tuple[float, ...]) -> Six:
    """Direction, scale, damping, oscillation, transverse and gain of modes with a reference spacing.

    Parameters
    ----------
    raw
        Direction ``(M, D)``, scale, damping, oscillation, transverse ``(M,)`` and the limit of oscillation ``()``, as
        they are stored.
    """
    ordinary = all(type(t) in (Tensor, torch.nn.Parameter) for t in raw)  # not shared out over processes
    if len(spacing) == 1 or not ordinary or not just_numbers():
        return _plain(raw, spacing)
    return _PhysicalWithGain.apply(spacing, *raw)  # type: ignore[return-value]


def _plain(raw: Sequence[Tensor], spacing: tuple[float, ...]) -> Six:
    direction, scale, damping, oscillation, transverse = physical(raw, spacing)
    pole = torch.complex(-damping, oscillation)
    gain = reference_gain(direction, scale, pole, transverse, spacing)
    return direction, scale, damping, oscillation, transverse, gain


class _PhysicalWithGain(torch.autograd.Function):
    @staticmethod
    def forward(ctx, spacing: tuple[float, ...], *raw: Tensor):  # type: ignore[override]
        raw_direction, raw_scale, raw_damping, raw_oscillation, raw_transverse, limit = raw
        num_axes, device, dtype = len(spacing), raw_direction.device, raw_direction.dtype
        unit = reference_length(spacing)
        raw_three = torch.stack([raw_scale, raw_damping, raw_transverse])
        offset = constant(((smallest() * unit,), (smallest(),), (0.0,)), device, dtype)
        factor = constant(((unit,), (1.0,), (unit**2,)), device, dtype)
        three = torch.addcmul(offset, torch.nn.functional.softplus(raw_three), factor)
        scale, damping, transverse = three.unbind(0)
        part = torch.tanh(raw_oscillation)
        oscillation = limit * part
        length = torch.linalg.vector_norm(raw_direction, dim=-1, keepdim=True)
        first = constant((1.0, *[0.0] * (num_axes - 1)), device, dtype)
        direction = torch.where(length < shortest(), first, raw_direction / length)
        steps = constant(spacing, device, dtype)
        step = torch.linalg.vector_norm(direction * steps, dim=-1)
        reach = scale * (math.pi / step)
        nodes, weights = (constant(a, device, dtype) for a in transverse_quadrature(num_axes))
        # The squared radius of the cell across a mode, whose volume is that of the reference Nyquist box.
        power = 2 / (num_axes - 1)
        radius = (step if num_axes == 3 else step.square()) * _radius_factor(spacing)
        p = torch.addcmul(damping[:, None], (transverse * radius)[:, None], nodes)
        height = (2 * reach)[:, None] * p
        width = torch.addcmul(((oscillation - reach) * (oscillation + reach))[:, None], p, p)
        size = torch.maximum(height, width.abs())
        share = torch.atan2(height / size, width / size) / height
        gain = (share * weights).sum(-1).clamp_min(least_power()).rsqrt()
        ctx.save_for_backward(
            *raw, raw_three, three, part, oscillation, direction, length, step, reach, radius, p, height, width, size,
            share, gain,
        )  # fmt: skip
        ctx.spacing, ctx.power = spacing, power
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
        (raw_three, three, part, oscillation, direction, length, step, reach, radius, p, height, width, size, share,
         gain) = saved  # fmt: skip
        transverse = three[2]
        spacing, device, dtype = ctx.spacing, step.device, step.dtype
        nodes, weights = (constant(a, device, dtype) for a in transverse_quadrature(len(spacing)))
        # Of the mean power, where it is not at its least.
        outer = grad_gain * gain.pow(3) * -0.5 * (gain < least_power() ** -0.5)
        weighted = outer[:, None] * weights
        height_part, width_part = height / size, width / size
        inverse = weighted / (height_part.square() + width_part.square()) / size
        by_height = (width_part * inverse - weighted * share) / height
        by_width = inverse / size
        twice = (2 * reach)[:, None]
        by_p = by_height * twice - 2 * p * by_width
        by_reach = 2 * (by_height * p).sum(-1) + 2 * reach * by_width.sum(-1)
        grad_damping = grad_damping + by_p.sum(-1)
        by_spread = (by_p * nodes).sum(-1)
        grad_transverse = grad_transverse + by_spread * radius
        grad_oscillation = grad_oscillation - 2 * oscillation * by_width.sum(-1)
        grad_scale = grad_scale + by_reach * (math.pi / step)
        by_step = (by_spread * transverse * radius * ctx.power - by_reach * reach) / step
        squares = constant(tuple(s**2 for s in spacing), device, dtype)
        grad_direction = torch.addcmul(grad_direction, (by_step / step)[:, None], direction * squares)
        along = (direction * grad_direction).sum(-1, keepdim=True)
        across = torch.addcmul(grad_direction, direction, along, value=-1)
        turned = torch.where(length < shortest(), 0.0, across / length)
        unit = reference_length(spacing)
        factor = constant(((unit,), (1.0,), (unit**2,)), device, dtype)
        stored = torch.stack([grad_scale, grad_damping, grad_transverse]) * factor * torch.sigmoid(raw_three)
        limit = raw[5]
        by_part = limit * (1 - part.square()) * grad_oscillation
        by_limit = (part * grad_oscillation).sum().reshape(limit.shape)  # a vector where parameters are shared out
        return None, turned, stored[0], stored[1], by_part, stored[2], by_limit


def _radius_factor(spacing: tuple[float, ...]) -> float:
    """The squared radius over ``step`` (3-D) or ``step`` squared (2-D)."""
    volume = math.prod(spacing)
    return (math.pi / volume) ** 2 if len(spacing) == 2 else 4 * math.pi / volume
