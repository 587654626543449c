"""Exact byte counts: what autograd keeps between forward and backward, and the peak of a whole step."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from torchsonic.lab.metrics.cost import peak_bytes

__all__ = ["peak_bytes", "saved_bytes", "storage_bytes"]


def _storages(tensors: Iterable[Tensor]) -> dict[int, int]:
    storages = (tensor.untyped_storage() for tensor in tensors)
    return {storage.data_ptr(): storage.nbytes() for storage in storages}


def storage_bytes(tensors: Iterable[Tensor]) -> int:
    """Bytes of the storages behind some tensors, each counted once."""
    return sum(_storages(tensors).values())


def saved_bytes(module: nn.Module, x: Tensor) -> int:
    """Bytes that a forward pass keeps for its backward pass: distinct storages, without parameters and buffers."""
    own = _storages([*module.parameters(), *module.buffers()])
    found: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        found.update({pointer: size for pointer, size in _storages([tensor]).items() if pointer not in own})
        return tensor.detach()  # the output itself would make a cycle

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        y = module(x)  # holds the graph, so that no counted storage is freed and its address used again
    assert y.requires_grad
    return sum(found.values())
