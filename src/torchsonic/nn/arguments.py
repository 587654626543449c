"""Checks of users' arguments: each error names the argument and its value."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")

__all__ = ["choice", "per_axis", "positive"]


def per_axis(value: int | Sequence[int], num_axes: int, name: str) -> tuple[int, ...]:
    """One positive integer per axis from one or ``num_axes`` of them."""
    if isinstance(value, bool) or not isinstance(value, (int, Sequence)):
        raise TypeError(f"{name} must be an integer or {num_axes} of them, got {value!r}")
    values = (value,) * num_axes if isinstance(value, int) else tuple(value)
    if len(values) != num_axes or any(not isinstance(v, int) or isinstance(v, bool) or v < 1 for v in values):
        raise ValueError(f"{name} must be 1 or {num_axes} positive integers, got {value!r}")
    return values


def positive(value: int, name: str) -> int:
    """A count of at least one."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} must be an integer, got {value!r}")
    if value < 1:
        raise ValueError(f"{name} must be at least 1, got {value}")
    return value


def choice(value: T, allowed: Sequence[T], name: str) -> T:
    """One of a few allowed values."""
    if value not in allowed:
        raise ValueError(f"{name} must be one of {', '.join(map(str, allowed))}, got {value!r}")
    return value
