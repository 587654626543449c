"""Whole volumes through a network that works on patches: overlapping windows, weighted by a Gaussian, averaged.

By hand: MONAI's windows lie elsewhere (stored scores would change), and to predict needs no MONAI otherwise.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import product

import torch
from torch import Tensor

from torchsonic.lab.data.volumes.patches import centred_start

SIGMA = 1 / 8
"""Standard deviation of the weights over the size of the window."""
LEAST_WEIGHT = 1e-3
"""A voxel that only corners of windows see must not be lost to rounding."""


def window_starts(size: int, window: int, overlap: float) -> list[int]:
    """First voxels of windows that cover an axis, evenly spaced, neighbours overlapping by at least a share.

    Examples
    --------
    >>> window_starts(10, 4, 0.5)
    [0, 2, 4, 6]
    """
    room = size - window
    if room <= 0:
        return [0]
    steps = math.ceil(room / max(1, int(window * (1 - overlap))))
    return [round(room * step / steps) for step in range(steps + 1)]


def gaussian_weights(window: Sequence[int]) -> Tensor:
    """Weights ``(*window)`` that are about 1 in the middle and fall off towards the border."""
    weights = torch.ones(())
    for n in window:
        offset = (torch.arange(n) - (n - 1) / 2) / (SIGMA * n)
        weights = weights[..., None] * torch.exp(-0.5 * offset.square())
    return weights.clamp_min(LEAST_WEIGHT)


def _pad(image: Tensor, window: Sequence[int]) -> tuple[Tensor, tuple[slice, ...]]:
    """An image at least as large as the window, its outermost voxels going on, and where in it the given one is."""
    size = tuple(image.shape[1:])
    before = [max(0, -start) for start in centred_start(size, window)]
    for axis, (n, w, first) in enumerate(zip(size, window, before, strict=True), start=1):
        if n < w:
            image = image.index_select(axis, (torch.arange(w, device=image.device) - first).clamp(0, n - 1))
    return image, (slice(None), *[slice(first, first + n) for first, n in zip(before, size, strict=True)])


def sliding_window(
    predict: Callable[[Tensor], Tensor],
    image: Tensor,
    window: Sequence[int],
    *,
    overlap: float = 0.5,
    batch: int = 1,
    device: torch.device | str | None = None,
) -> Tensor:
    """Mean over overlapping windows of what a function makes of each.

    One window that covers the image is handed to the function as it is, and so is its result back. An image smaller
    than the window is first padded with its outermost voxels, as training does.

    Parameters
    ----------
    predict
        ``(B, C, *window)`` to ``(B, K, *window)``, for example a model that is told the spacing.
    image
        ``(C, *size)``.
    window
        Voxels along each axis.
    overlap
        Share of a window that the next one sees again, in [0, 1).
    batch
        Windows at a time.
    device
        Where windows are sent; by default that of the image, where the result is put together.

    Returns
    -------
    Tensor
        ``(K, *size)``.
    """
    if not 0.0 <= overlap < 1.0:
        raise ValueError(f"overlap must be in [0, 1), got {overlap}")
    if image.dim() != len(window) + 1:
        raise ValueError(f"image must be (C, {len(window)} axes) for window {tuple(window)}, got {tuple(image.shape)}")
    image, inside = _pad(image, window)
    starts = list(product(*[window_starts(n, w, overlap) for n, w in zip(image.shape[1:], window, strict=True)]))
    if len(starts) == 1:
        return predict(image[None].to(device))[0].to(image.device)[inside]
    weights = gaussian_weights(window).to(image)
    total, mass = None, torch.zeros(image.shape[1:], dtype=image.dtype, device=image.device)
    for place in range(0, len(starts), batch):
        boxes = [
            tuple(slice(s, s + w) for s, w in zip(start, window, strict=True))
            for start in starts[place : place + batch]
        ]
        results = predict(torch.stack([image[(slice(None), *box)] for box in boxes]).to(device)).to(image.device)
        if total is None:
            total = torch.zeros(results.shape[1], *image.shape[1:], dtype=results.dtype, device=image.device)
        for box, result in zip(boxes, results, strict=True):
            total[(slice(None), *box)] += weights * result
            mass[box] += weights
    assert total is not None
    return (total / mass)[inside]
