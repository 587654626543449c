"""Circular convolutions whose output is needed only in a small window."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import torch
from torch import Tensor

__all__ = ["Window", "check_window", "crop", "seen_from", "window_size"]

Window = Sequence[slice]


def check_window(window: Window, size: Sequence[int]) -> None:
    """Refuse windows that do not fit a grid of the given size."""
    if len(window) != len(size) or not all(isinstance(place, slice) for place in window):
        raise ValueError(f"window must be {len(size)} slices, one per axis, got {window!r}")
    if 0 in window_size(window, size):
        raise ValueError(f"window {window!r} contains no pixel of an image of size {tuple(size)}")


def window_size(window: Window, size: Sequence[int]) -> tuple[int, ...]:
    """Samples of a window on each axis of a grid of the given size."""
    return tuple(len(range(*place.indices(n))) for place, n in zip(window, size, strict=True))


def crop(x: Tensor, window: Window) -> Tensor:
    """Cut a window out: ``(B, C, *size)`` to ``(B, C, *window_size)``."""
    return x[(slice(None), slice(None), *window)]


def seen_from(image: Tensor, window: Window) -> Tensor:
    r"""The periodic image as each pixel of a window sees it, mirrored about that pixel.

    .. math:: x_p(n) = x((p - n) \bmod N), \qquad (k * x)(p) = \sum_n k(n)\,x_p(n)

    Parameters
    ----------
    image
        ``(B, C, *size)``.

    Returns
    -------
    Tensor
        ``(B, C, P, N)`` for P pixels of the window, in order, and N of the grid.
    """
    size = image.shape[2:]
    axes = tuple(range(2, image.dim()))
    mirrored = image.flip(axes)
    places = itertools.product(*[range(*place.indices(n)) for place, n in zip(window, size, strict=True)])
    return torch.stack([mirrored.roll([p + 1 for p in place], axes).flatten(2) for place in places], dim=2)
