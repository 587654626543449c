"""Keeping freed memory at hand on a CPU.

The C library hands freed blocks back to the system once they exceed a threshold, and every page of the next block then
costs a fault: on a virtual machine more than the transform that fills it. The threshold follows the largest block that
was ever freed, up to 32 MiB, so freeing one untouched block of that size raises it for the whole process. Larger
blocks, which volumes consist of, are given back at once unless glibc is told otherwise: for processes that train.
"""

from __future__ import annotations

import ctypes
import platform
from functools import lru_cache

import torch

__all__ = ["keep_all_pages", "keep_pages"]

LARGEST_ADAPTING_BLOCK = 31 << 20
M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4  # glibc's malloc.h
NEVER = -1


@lru_cache(maxsize=1)
def keep_pages() -> None:
    """Let the allocator keep up to twice 31 MiB of freed memory; costs nothing, since no page is touched."""
    torch.empty(LARGEST_ADAPTING_BLOCK, dtype=torch.uint8, device="cpu")


@lru_cache(maxsize=1)
def keep_all_pages() -> bool:
    """Let the allocator keep all freed memory until the process ends.

    For programs that do one thing again and again, as training and benchmarks do: the process stays as large as it ever
    was, and a training step on volumes takes about half of the time.

    Returns
    -------
    bool
        Whether the C library is glibc, and takes it.
    """
    if platform.libc_ver()[0] != "glibc":
        return False
    library = ctypes.CDLL(None)
    return bool(library.mallopt(M_MMAP_MAX, 0)) and bool(library.mallopt(M_TRIM_THRESHOLD, NEVER))
