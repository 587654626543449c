"""Memory of the process and its devices: how much is free, whether it ran out, and keeping what was freed.

The C library returns freed blocks above a threshold to the system, and every page of the next block then costs a page
fault: on a virtual machine more than the transform that fills it. The threshold adapts to the largest block ever freed,
up to 32 MiB, so freeing one untouched block of that size raises it for the whole process. Larger blocks, as volumes
need, are returned at once unless glibc is told otherwise, which training does.
"""

from __future__ import annotations

import ctypes
import platform
import sys
from functools import lru_cache
from pathlib import Path
from typing import Literal

import torch

__all__ = ["free_bytes", "is_exhaustion", "keep_all_pages", "keep_pages", "keeps_all_pages"]

# Messages of PyTorch's allocators for CPUs and Apple GPUs, and of cuFFT and cuBLAS; CUDA has its own exception.
WORDS = ("can't allocate memory", "not enough memory", "out of memory", "ALLOC_FAILED")
LARGEST_ADAPTING_BLOCK = 31 << 20
RESERVE = 0.25
"""If free memory is less than this fraction of what the process holds, nothing is kept."""
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_MMAP_MAX = -1, -3, -4  # glibc's malloc.h
KEEPING = {M_MMAP_MAX: 0, M_TRIM_THRESHOLD: -1}
# What `keep_pages` leads to. It must be set explicitly, since glibc stops adapting once a threshold was set.
USUAL = {
    M_MMAP_MAX: 65536,
    M_MMAP_THRESHOLD: LARGEST_ADAPTING_BLOCK,
    M_TRIM_THRESHOLD: 2 * LARGEST_ADAPTING_BLOCK,
}

_state: Literal["usual", "keeping", "given back"] = "usual"


def is_exhaustion(error: BaseException) -> bool:
    """Whether an error means that memory ran out."""
    if isinstance(error, (torch.OutOfMemoryError, MemoryError)):
        return True
    return isinstance(error, RuntimeError) and any(words in str(error) for words in WORDS)


def free_bytes(device: torch.device) -> int | None:
    """Bytes that can still be allocated on a device, or ``None`` if that is not known."""
    if device.type == "cpu":
        return _free_on_host()
    if device.type == "cuda":
        unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return torch.cuda.mem_get_info(device)[0] + unused
    if device.type == "mps":
        return max(0, torch.mps.recommended_max_memory() - torch.mps.driver_allocated_memory())
    return None


def _free_on_host() -> int | None:
    """What the system, the container and the limit of the process leave, whichever is least; ``None`` if unknown."""
    found = []
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        found += [1024 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable:")]
    except OSError:
        pass
    try:
        limit, used = (int(Path(f"/sys/fs/cgroup/memory.{name}").read_text()) for name in ("max", "current"))
        found.append(limit - used)
    except (OSError, ValueError):  # not there, or "max"
        pass
    if sys.platform != "win32":
        import resource

        most = resource.getrlimit(resource.RLIMIT_AS)[0]
        if most != resource.RLIM_INFINITY and Path("/proc/self/statm").exists():
            found.append(most - _process_bytes(0))
    return max(0, min(found)) if found else None


def _process_bytes(column: int) -> int:
    """What the process holds: addresses (column 0) or memory (column 1)."""
    import resource

    return int(Path("/proc/self/statm").read_text().split()[column]) * resource.getpagesize()


@lru_cache(maxsize=1)
def keep_pages() -> None:
    """Let the allocator keep up to 62 MiB of freed memory. This is free, since no page is touched."""
    torch.empty(LARGEST_ADAPTING_BLOCK, dtype=torch.uint8, device="cpu")


def keep_all_pages() -> bool:
    """Let the allocator keep all freed memory while there is plenty of it.

    This is for programs that repeat the same step, such as training: the process no longer shrinks, and a training step
    on volumes takes about half the time. Call it at every step. Kept memory becomes fragmented, so once the process
    holds more than four times the free memory, it returns what it kept and keeps nothing from then on.

    Returns
    -------
    bool
        Whether memory is kept; only glibc supports it.
    """
    global _state
    if _state == "given back" or platform.libc_ver()[0] != "glibc":
        return False
    free = free_bytes(torch.device("cpu"))
    if free is not None and free < RESERVE * _process_bytes(1):
        if _state == "keeping":
            _tell_allocator(USUAL)
            ctypes.CDLL(None).malloc_trim(0)
        _state = "given back"
    elif _state == "usual" and _tell_allocator(KEEPING):
        _state = "keeping"
    return keeps_all_pages()


def keeps_all_pages() -> bool:
    """Whether freed memory of any size is kept."""
    return _state == "keeping"


def _tell_allocator(settings: dict[int, int]) -> bool:
    return all(ctypes.CDLL(None).mallopt(name, value) for name, value in settings.items())
