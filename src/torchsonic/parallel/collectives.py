"""Meshes of processes, differentiable sums over them, and clipping of gradients that are sharded or replicated.

Each process has some of the modes and the whole of ``x`` and ``y``. The output is the sum over processes, and so is
the gradient of what all processes read:

    y = sum_r y_r      what flows back into each y_r is the gradient of y as it is
    x read by all      what flows back is the sum of all gradients of x
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor
from torch.nn.utils import clip_grads_with_norm_, get_total_norm


def check_mesh(mesh: DeviceMesh) -> None:
    """Refuse anything but a one-dimensional mesh, before any process waits for another."""
    if not isinstance(mesh, DeviceMesh):
        raise TypeError(f"mesh must be a DeviceMesh, for example from init_device_mesh, got {mesh!r}")
    if mesh.ndim != 1:
        names = ", ".join(mesh.mesh_dim_names or ()) or "none: pass mesh_dim_names to init_device_mesh"
        raise ValueError(f"mesh must have one dimension, got {mesh.ndim}; select one of them by name ({names})")


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


@torch.no_grad()
def clip_gradients(parameters: Iterable[Tensor], max_norm: float) -> Tensor:
    """Clip the norm of all gradients, over all modes on all processes, to at most ``max_norm``.

    This does what ``torch.nn.utils.clip_grad_norm_`` does, which refuses models in which only some parameters are
    DTensors, as with mode parallelism. All processes must call it.

    Returns
    -------
    Tensor
        The norm before clipping, a scalar.
    """
    parameters = [p for p in parameters if p.grad is not None]
    by_mesh: dict[object, list[Tensor]] = {}
    for parameter in parameters:
        assert parameter.grad is not None
        by_mesh.setdefault(getattr(parameter, "device_mesh", None), []).append(parameter)
    found = [get_total_norm([p.grad for p in group]) for group in by_mesh.values()]  # type: ignore[misc]
    norms = [norm.full_tensor() if isinstance(norm, DTensor) else norm for norm in found]
    if not norms:
        return torch.zeros(())
    total = torch.stack(norms).square().sum().sqrt()
    for group in by_mesh.values():
        clip_grads_with_norm_(group, max_norm, total)
    return total
