"""The kernels of :mod:`torchsonic.engine.triton_parameters`, as an autograd function."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from torchsonic.engine.triton_kernels import INTERPRETED
from torchsonic.engine.triton_parameters import BLOCK, physical, physical_adjoint
from torchsonic.spectral.constants import constant
from torchsonic.spectral.gain import transverse_quadrature
from torchsonic.spectral.parameters import reference_length

__all__ = ["FusedParameters"]


def _launch(kernel: Any, tensors: Sequence[Tensor], spacing: Sequence[float]) -> None:
    num_modes, num_axes = tensors[0].shape
    volume = math.prod(spacing)
    # The squared radius of the cell across a mode over `step` (3-D) or `step` squared.
    factor = {1: 0.0, 2: (math.pi / volume) ** 2, 3: 4 * math.pi / volume}[num_axes]
    launched = kernel if INTERPRETED else torch.library.wrap_triton(kernel)
    nodes = (tensors[6].numel() - 3) // 2
    launched[(1,)](*tensors, num_modes, reference_length(spacing), factor, AXES=num_axes, NODES=nodes, BLOCK=BLOCK)


@torch.library.triton_op("torchsonic::physical", mutates_args=())
def _physical(
    raw_direction: Tensor, raw_scale: Tensor, raw_damping: Tensor, raw_oscillation: Tensor, raw_transverse: Tensor,
    limit: Tensor, table: Tensor, spacing: Sequence[float],
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    raw = raw_direction, raw_scale, raw_damping, raw_oscillation, raw_transverse
    made = [torch.empty_like(t) for t in (*raw, raw_scale)]
    _launch(physical, (*raw, limit, table, *made), spacing)
    return tuple(made)  # type: ignore[return-value]


@torch.library.triton_op("torchsonic::physical_adjoint", mutates_args=())
def _physical_adjoint(
    raw_direction: Tensor, raw_scale: Tensor, raw_damping: Tensor, raw_oscillation: Tensor, raw_transverse: Tensor,
    limit: Tensor, table: Tensor, grads: Tensor, spacing: Sequence[float],
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    raw = raw_direction, raw_scale, raw_damping, raw_oscillation, raw_transverse, limit
    made = [torch.empty_like(t) for t in raw]
    _launch(physical_adjoint, (*raw, table, grads, *made), spacing)
    return tuple(made)  # type: ignore[return-value]


class FusedParameters(torch.autograd.Function):
    """As :func:`torchsonic.engine.parameters.physical_with_gain`; ``plain`` is its definition."""

    @staticmethod
    def forward(ctx, plain: Callable, spacing: tuple[float, ...], *raw: Tensor):  # type: ignore[override]
        raw = tuple(t.contiguous() for t in raw)
        ctx.save_for_backward(*raw)
        ctx.plain, ctx.spacing = plain, spacing
        return torch.ops.torchsonic.physical(*raw, _table(spacing, raw[0]), spacing)

    @staticmethod
    def backward(ctx, *grads):  # type: ignore[override]
        raw = ctx.saved_tensors
        if torch.is_grad_enabled():  # create_graph=True
            raw = [t.view_as(t) for t in raw]
            physical = ctx.plain(raw, ctx.spacing)
            return None, None, *torch.autograd.grad(physical, raw, grads, create_graph=True, materialize_grads=True)
        row = torch.stack([*grads[0].unbind(-1), *grads[1:]], -1)
        table = _table(ctx.spacing, raw[0])
        return None, None, *torch.ops.torchsonic.physical_adjoint(*raw, table, row, ctx.spacing)


def _table(spacing: tuple[float, ...], like: Tensor) -> Tensor:
    """Three spacings, the nodes across a mode and their weights."""
    nodes, weights = transverse_quadrature(len(spacing)) if len(spacing) > 1 else ((0.0,), (1.0,))
    missing = (0.0,) * (3 - len(spacing))
    return constant((*spacing, *missing, *nodes, *weights), like.device, like.dtype)
