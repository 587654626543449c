"""Peak memory of a piece of work, in bytes."""

from __future__ import annotations

import os
from collections.abc import Callable

import torch


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
