"""Exact byte counts: what autograd keeps between forward and backward, and the peak of a whole step."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn

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


def peak_bytes(step: Callable[[], object], device: torch.device) -> int:
    """Largest number of bytes allocated at any time during ``step``, above those allocated at its beginning.

    On a CPU from the events of PyTorch's allocator, which include the temporaries inside operators; what oneDNN and MKL
    allocate for themselves is not seen. Call ``step`` once before, so that caches are filled.
    """
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        before = torch.cuda.memory_allocated(device)
        torch.cuda.reset_peak_memory_stats(device)
        step()
        torch.cuda.synchronize(device)
        return torch.cuda.max_memory_allocated(device) - before
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # or every profile writes to stderr, through the progress bar
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        step()
    profiler = profile.profiler
    assert profiler is not None
    assert profiler.kineto_results is not None
    events = [event for event in profiler.kineto_results.events() if event.name() == "[memory]"]
    live = peak = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        live += event.nbytes()  # pyright: ignore[reportAttributeAccessIssue]
        peak = max(peak, live)
    return peak
