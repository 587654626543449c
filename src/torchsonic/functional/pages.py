"""Keeping freed memory at hand on a CPU.

The C library hands freed blocks back to the system once they exceed a threshold, and every page of the next block then
costs a fault: on a virtual machine more than the transform that fills it. The threshold follows the largest block that
was ever freed, up to 32 MiB, so freeing one untouched block of that size raises it for the whole process.
"""

from __future__ import annotations

from functools import lru_cache

import torch

__all__ = ["keep_pages"]

LARGEST_ADAPTING_BLOCK = 31 << 20


@lru_cache(maxsize=1)
def keep_pages() -> None:
    """Let the allocator keep up to twice 31 MiB of freed memory; costs nothing, since no page is touched."""
    torch.empty(LARGEST_ADAPTING_BLOCK, dtype=torch.uint8, device="cpu")
