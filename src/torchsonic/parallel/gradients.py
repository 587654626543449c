"""Gradients that lie whole on some processes and in parts on others."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor
from torch.nn.utils import clip_grads_with_norm_, get_total_norm

__all__ = ["clip_gradients"]


@torch.no_grad()
def clip_gradients(parameters: Iterable[Tensor], max_norm: float) -> Tensor:
    """Scale gradients down to a largest norm, that of all modes on all processes together.

    What ``torch.nn.utils.clip_grad_norm_`` does, which refuses models of which only some parameters are DTensors, as
    those with mode parallelism are. All processes have to call it.

    Returns
    -------
    Tensor
        The norm before, a scalar.
    """
    parameters = [p for p in parameters if p.grad is not None]
    by_mesh: dict[object, list[Tensor]] = {}
    for parameter in parameters:
        assert parameter.grad is not None
        by_mesh.setdefault(getattr(parameter, "device_mesh", None), []).append(parameter)
    norms = [_whole(get_total_norm([p.grad for p in group])) for group in by_mesh.values()]  # type: ignore[misc]
    if not norms:
        return torch.zeros(())
    total = torch.stack(norms).square().sum().sqrt()
    for group in by_mesh.values():
        clip_grads_with_norm_(group, max_norm, total)
    return total


def _whole(norm: Tensor) -> Tensor:
    return norm.full_tensor() if isinstance(norm, DTensor) else norm
