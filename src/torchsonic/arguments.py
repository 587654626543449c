"""Checks of users' arguments: each error names the argument and its value."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from numbers import Real
from typing import Any, TypeVar

import torch
from torch import Tensor

T = TypeVar("T")


def _as_integer(value: Any) -> Any:
    """Any kind of integer, numpy's included; symbols of a compiler pass as they are."""
    if isinstance(value, bool):
        raise TypeError
    # Converting an int would tie a compiler's graph to its value.
    return value if isinstance(value, (int, torch.SymInt)) else operator.index(value)


def per_axis(value: int | Sequence[int], num_axes: int, name: str) -> tuple[int, ...]:
    """One positive integer per axis from one or ``num_axes`` of them."""
    try:
        values = tuple(map(_as_integer, value)) if isinstance(value, Sequence) else (_as_integer(value),) * num_axes
    except TypeError:
        raise TypeError(f"{name} must be an integer or {num_axes} of them, got {value!r}") from None
    if len(values) != num_axes or any(v < 1 for v in values):
        raise ValueError(f"{name} must be 1 or {num_axes} positive integers, got {value!r}")
    return values


def widths_per_axis(value: float | Sequence[float], num_axes: int, name: str) -> tuple[float, ...]:
    """One positive width per axis from one or ``num_axes`` of them; whole ones become integers."""
    widths = tuple(value) if isinstance(value, Sequence) else (value,) * num_axes
    if not all(is_number(width) and not isinstance(width, bool) for width in widths):
        raise TypeError(f"{name} must be a number or {num_axes} of them, got {value!r}")
    if len(widths) != num_axes or min(widths) <= 0:
        raise ValueError(f"{name} must be 1 or {num_axes} positive numbers, got {value!r}")
    return tuple(int(width) if width == int(width) else float(width) for width in widths)


def positive(value: int, name: str) -> int:
    """A count of at least one."""
    try:
        count = _as_integer(value)
    except TypeError:
        raise TypeError(f"{name} must be an integer, got {value!r}") from None
    if count < 1:
        raise ValueError(f"{name} must be at least 1, got {count}")
    return count


def is_number(value: Any) -> bool:
    """Whether a value is a finite real number."""
    return isinstance(value, Real) and math.isfinite(value)


def fraction(value: float, name: str) -> float:
    """A probability below one."""
    if not is_number(value) or not 0 <= value < 1:
        raise ValueError(f"{name} must be in [0, 1), got {value!r}")
    return value


def choice(value: T, allowed: Sequence[T], name: str) -> T:
    """One of a few allowed values."""
    if value not in allowed:
        raise ValueError(f"{name} must be one of {', '.join(str(v) or repr(v) for v in allowed)}, got {value!r}")
    return value


def check_samples(x: Tensor, num_axes: int, channels: int | None, owner: str, *, unbatched: bool = False) -> None:
    """Refuse anything but a batch of real samples with the given number of channels (``None`` for any)."""
    if not isinstance(x, Tensor):
        raise TypeError(f"{owner} expects a tensor, got {type(x).__name__}")
    if not x.is_floating_point():
        raise TypeError(f"{owner} expects real floating-point input, got {x.dtype}; convert it with x.float()")
    layouts = [f"(batch, channel, {num_axes} axes)", *([f"(channel, {num_axes} axes)"] if unbatched else [])]
    if x.dim() != num_axes + 2 and not (unbatched and x.dim() == num_axes + 1):
        raise ValueError(f"{owner} expects {' or '.join(layouts)}, got shape {tuple(x.shape)}")
    if channels is not None and x.shape[-num_axes - 1] != channels:
        wanted = f"{channels} channel{'' if channels == 1 else 's'}"
        raise ValueError(f"{owner} expects {wanted}, got {x.shape[-num_axes - 1]} in shape {tuple(x.shape)}")
    if any(n < 1 for n in x.shape[-num_axes:]):  # one by one: an exporter would compare symbols for their minimum
        raise ValueError(f"{owner} got an empty axis: shape {tuple(x.shape)}")
