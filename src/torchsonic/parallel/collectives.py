"""Sums over the processes of a group, as autograd sees them.

Each process holds some modes and the whole of ``x`` and ``y``. The output is the sum of all shares, and so is the
gradient of what all processes have read:

    y = sum_r y_r      what flows back into each y_r is the gradient of y as it is
    x read by all      what flows back is the sum of all gradients of x
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.distributed.tensor import DTensor

__all__ = ["agree", "read_by_all", "sum_over_processes"]


def read_by_all(x: Tensor, group: dist.ProcessGroup) -> Tensor:
    """``x`` as it is, the same on all processes; its gradient is the sum over them."""
    if not (torch.is_grad_enabled() and x.requires_grad):
        return x  # the very object, by which the evaluation cache knows a parameter
    return _ReadByAll.apply(x, group)  # type: ignore[return-value]


def sum_over_processes(share: Tensor, group: dist.ProcessGroup) -> Tensor:
    """The sum over processes, on each of them, in place of this process's share."""
    return _SumOverProcesses.apply(share.contiguous(), group)  # type: ignore[return-value]


class _ReadByAll(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, group: dist.ProcessGroup) -> Tensor:
        ctx.group = group
        return x.view_as(x)

    # A second derivative would need the sum of its own gradients, too; it is refused instead of wrong.
    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:  # type: ignore[override]
        total = grads[0].clone(memory_format=torch.contiguous_format)
        dist.all_reduce(total, group=ctx.group)
        return total, None


class _SumOverProcesses(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, share: Tensor, group: dist.ProcessGroup) -> Tensor:
        ctx.mark_dirty(share)
        dist.all_reduce(share, group=group)
        return share

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:  # type: ignore[override]
        return grads[0], None


@torch.no_grad()
def agree(module: nn.Module, group: dist.ProcessGroup) -> None:
    """Give every process of a group the parameters and buffers of its first one."""
    for tensor in (*module.parameters(), *module.buffers()):
        own = tensor.to_local() if isinstance(tensor, DTensor) else tensor
        dist.broadcast(own.detach(), group=group, group_src=0)
