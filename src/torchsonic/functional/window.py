"""Circular convolutions whose output is wanted in a small window only."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import torch
from torch import Tensor

__all__ = ["Window", "crop", "kernels_at", "window_size"]

Window = Sequence[slice]


def window_size(window: Window, size: Sequence[int]) -> tuple[int, ...]:
    """Samples of a window on each axis of a grid of the given size."""
    return tuple(len(range(*place.indices(n))) for place, n in zip(window, size, strict=True))


def crop(x: Tensor, window: Window) -> Tensor:
    """What lies in a window: ``(B, C, *size)`` to ``(B, C, *window_size)``."""
    return x[(slice(None), slice(None), *window)]


def kernels_at(kernels: Tensor, window: Window) -> Tensor:
    r"""Kernels as the weights that each pixel of a window gives to all pixels of the grid.

    .. math:: K_p(n) = k((p - n) \bmod N), \qquad y(p) = \sum_n K_p(n)\,x(n)

    Parameters
    ----------
    kernels
        ``(F, *size)`` on the periodic grid, origin first.

    Returns
    -------
    Tensor
        ``(F, P, N)`` for P pixels of the window, in order, and N of the grid.
    """
    size = kernels.shape[1:]
    axes = tuple(range(1, kernels.dim()))
    mirrored = kernels.flip(axes)
    places = itertools.product(*[range(*place.indices(n)) for place, n in zip(window, size, strict=True)])
    return torch.stack([mirrored.roll([p + 1 for p in place], axes).flatten(1) for place in places], dim=1)
