"""Sizes that are no numbers yet: the symbols of an exporter.

Runtimes hold them as integers and convert nothing by themselves, so that arithmetic of tensors and symbols goes through
:func:`number`. Their division of integers rounds towards zero: symbols are divided only where they are positive.
"""

from __future__ import annotations

from functools import cached_property

import torch
from torch import Tensor

from torchsonic.functional.frequency import Band

__all__ = ["SettledBand", "is_symbolic", "number"]


def is_symbolic(sizes: Band | tuple[int, ...]) -> bool:
    """Whether any size is an exporter's symbol."""
    values = (*sizes.size_in, *sizes.size_out) if isinstance(sizes, Band) else sizes
    return not all(isinstance(n, int) for n in values)


def number(value: float | torch.SymInt | torch.SymFloat, dtype: torch.dtype, device=None) -> float | Tensor:
    """A number as it is; a symbol as a tensor of one element, which broadcasts."""
    if isinstance(value, (torch.SymInt, torch.SymFloat)):
        return torch.full((1,), value, dtype=dtype, device=device)  # type: ignore[arg-type]
    return value


class SettledBand(Band):
    """A band that compares its sizes once: an exporter has to think about each comparison of symbols."""

    @cached_property
    def resampled(self) -> tuple[bool, ...]:  # type: ignore[override]
        return super().resampled

    @cached_property
    def reach(self) -> tuple[int, ...]:  # type: ignore[override]
        return super().reach

    @cached_property
    def shape(self) -> tuple[int, ...]:  # type: ignore[override]
        return super().shape
