"""Patches of volumes: where to cut them, and cutting, straight or turned and scaled.

Everything random comes from the generator that is passed in. Beyond the border an image goes on with its outermost
voxels, and the label is ``IGNORE``: what is made up teaches nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray

from torchsonic.lab.data.labels import IGNORE


def shows_foreground(number: int, share: float) -> bool:
    """Whether a sample has to show foreground: of any ``n`` samples in a row, ``share * n`` to within one.

    Examples
    --------
    >>> [shows_foreground(number, 0.5) for number in range(4)]
    [False, True, False, True]
    """
    return int((number + 1) * share + 1e-9) > int(number * share + 1e-9)


def centred_start(size: Sequence[int], patch: Sequence[int]) -> tuple[int, ...]:
    """First voxel of the patch in the middle; negative where the volume is the smaller one."""
    return tuple((n - p) // 2 if n >= p else -((p - n) // 2) for n, p in zip(size, patch, strict=True))


def choose_start(
    size: Sequence[int],
    patch: Sequence[int],
    generator: np.random.Generator,
    *,
    places: Mapping[int, NDArray[np.int64]] | None = None,
) -> tuple[int, ...]:
    """First voxel of a patch, inside the volume where that is large enough and centred where it is not.

    Any place is as likely as another. Given the ``places`` of each class as flat indices, a class is drawn, each alike,
    then one of its voxels, which comes to lie in the middle of the patch as nearly as the border allows.
    """
    middle = centred_start(size, patch)
    if not places:
        drawn = [int(generator.integers(max(n - p, 0) + 1)) for n, p in zip(size, patch, strict=True)]
    else:
        chosen = places[sorted(places)[int(generator.integers(len(places)))]]
        voxel = np.unravel_index(int(chosen[int(generator.integers(len(chosen)))]), tuple(size))
        drawn = [int(np.clip(v - p // 2, 0, max(n - p, 0))) for v, n, p in zip(voxel, size, patch, strict=True)]
    return tuple(d if n >= p else m for d, m, n, p in zip(drawn, middle, size, patch, strict=True))


def cut(
    image: NDArray[Any], label: NDArray[np.int16], start: Sequence[int], patch: Sequence[int]
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Image ``(C, *patch)`` and label ``(*patch)`` from the voxel ``start`` on, padded where the volume ends."""
    index = [np.arange(s, s + p) for s, p in zip(start, patch, strict=True)]
    inside = [np.clip(i, 0, n - 1) for i, n in zip(index, label.shape, strict=True)]
    outside = [i != j for i, j in zip(index, inside, strict=True)]
    grid = np.ix_(*inside)
    cut_label = label[grid].astype(np.int64)
    for axis, beyond in enumerate(outside):
        np.moveaxis(cut_label, axis, 0)[beyond] = IGNORE
    return image[(slice(None), *grid)].astype(np.float32), cut_label


def cut_moved(
    image: NDArray[Any],
    label: NDArray[np.int16],
    start: Sequence[float],
    patch: Sequence[int],
    matrix: NDArray[np.float64],
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Like :func:`cut`, with the patch's grid turned and stretched about its middle.

    The voxel ``i`` of the patch reads the volume at ``c + matrix @ (i - h)``, where ``c`` is the middle of the straight
    patch and ``h`` that of any patch: images linearly interpolated, labels from the nearest voxel.
    """
    half = (np.asarray(patch) - 1) / 2
    centre = np.asarray(start) + half
    axes = [matrix[:, axis, None] * (np.arange(p) - h) for axis, (p, h) in enumerate(zip(patch, half, strict=True))]
    places = centre[:, None, None, None] + (
        axes[0][:, :, None, None] + axes[1][:, None, :, None] + axes[2][:, None, None, :]
    )
    # Only the part of the volume that the patch can reach is converted and read.
    reach = np.abs(matrix) @ half
    low = [int(np.clip(np.floor(c - r), 0, n - 1)) for c, r, n in zip(centre, reach, label.shape, strict=True)]
    high = [int(np.clip(np.ceil(c + r), 0, n - 1)) + 1 for c, r, n in zip(centre, reach, label.shape, strict=True)]
    box = tuple(slice(a, b) for a, b in zip(low, high, strict=True))
    part = torch.from_numpy(image[(slice(None), *box)].astype(np.float32))[None]
    lengths = [max(b - a - 1, 1) for a, b in zip(low, high, strict=True)]
    unit = [2 * (place - a) / n - 1 for place, a, n in zip(places, low, lengths, strict=True)]
    grid = torch.from_numpy(np.stack(unit[::-1], axis=-1).astype(np.float32))[None]  # x before y before z
    moved = F.grid_sample(part, grid, mode="bilinear", padding_mode="border", align_corners=True)[0]
    nearest = np.rint(places).astype(np.int64)
    inside = [np.clip(i, 0, n - 1) for i, n in zip(nearest, label.shape, strict=True)]
    read = label[tuple(inside)].astype(np.int64)
    read[(nearest != np.stack(inside)).any(0)] = IGNORE
    return moved.numpy(), read
