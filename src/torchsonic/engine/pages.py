"""Keeping freed memory in the process, on a CPU.

The C library returns freed blocks above a threshold to the system, and every page of the next block then costs a page
fault: on a virtual machine more than the transform that fills it. The threshold adapts to the largest block ever freed,
up to 32 MiB, so freeing one untouched block of that size raises it for the whole process. Larger blocks, as volumes
need, are returned at once unless glibc is told otherwise, which training does.
"""

from __future__ import annotations

import ctypes
import platform
from functools import lru_cache
from pathlib import Path
from typing import Literal

import torch

from torchsonic.engine.exhaustion import free_bytes

__all__ = ["keep_all_pages", "keep_pages", "keeps_all_pages"]

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


@lru_cache(maxsize=1)
def keep_pages() -> None:
    """Let the allocator keep up to 62 MiB of freed memory. This is free, since no page is touched."""
    torch.empty(LARGEST_ADAPTING_BLOCK, dtype=torch.uint8, device="cpu")


def keep_all_pages() -> bool:
    """Let the allocator keep all freed memory while there is plenty of it.

    Meant for programs that repeat the same step, such as training: the process does not shrink any more, and a training
    step on volumes takes about half the time. Call it at every step. Kept memory becomes fragmented, so once the
    process holds more than four times the free memory, it returns what it kept and keeps nothing from then on.

    Returns
    -------
    bool
        Whether memory is kept; only glibc supports it.
    """
    return _allocator.keep()


def keeps_all_pages() -> bool:
    """Whether freed memory of any size is kept."""
    return _allocator.state == "keeping"


class _Allocator:
    """The settings of this process's C library."""

    def __init__(self) -> None:
        self.state: Literal["usual", "keeping", "given back"] = "usual"

    def keep(self) -> bool:
        if self.state == "given back" or platform.libc_ver()[0] != "glibc":
            return False
        free = free_bytes(torch.device("cpu"))
        if free is not None and free < RESERVE * _resident_bytes():
            if self.state == "keeping":
                self._tell(USUAL)
                ctypes.CDLL(None).malloc_trim(0)
            self.state = "given back"
        elif self.state == "usual" and self._tell(KEEPING):
            self.state = "keeping"
        return self.state == "keeping"

    @staticmethod
    def _tell(settings: dict[int, int]) -> bool:
        return all(ctypes.CDLL(None).mallopt(name, value) for name, value in settings.items())


def _resident_bytes() -> int:
    import resource

    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


_allocator = _Allocator()
