"""What happens to a volume before a network sees it: resampling, if asked for, and normalisation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from torchsonic.lab.data.volumes.nifti import Volume

Normalisation = Literal["zscore", "none"]
FLAT = 1e-8
"""Standard deviation below which a channel is constant."""


def resize(array: NDArray[Any], size: Sequence[int], *, order: int) -> NDArray[Any]:
    """Sample the last three axes on a grid of another size and the same extent, ``(.., D, H, W)`` to ``(.., *size)``.

    ``order`` 0 takes the nearest voxel, 1 interpolates linearly, 3 with cubic splines; beyond the outermost voxels
    their values go on.
    """
    if tuple(array.shape[-3:]) == tuple(size):
        return array
    ndimage = import_ndimage()
    factors = [new / old for new, old in zip(size, array.shape[-3:], strict=True)]
    flat = array.reshape(-1, *array.shape[-3:])
    moved = [ndimage.zoom(one, factors, order=order, mode="nearest", grid_mode=True) for one in flat]
    return np.stack(moved).reshape(*array.shape[:-3], *size)


def resample_volume(volume: Volume, spacing: Sequence[float]) -> Volume:
    """The volume on a grid as near to a spacing as whole voxels allow, of the same extent.

    Images are smoothed where they become coarser and interpolated by cubic splines; labels take the nearest voxel. The
    result tells the exact spacing that it came to have.
    """
    old = volume.image.shape[1:]
    size = [max(1, round(n * own / new)) for n, own, new in zip(old, volume.spacing, spacing, strict=True)]
    steps = [n / m for n, m in zip(old, size, strict=True)]
    blur = [max(0.0, (step - 1) / 2) for step in steps]
    image = volume.image
    if any(blur):
        image = np.stack([import_ndimage().gaussian_filter(one, blur, mode="nearest") for one in image])
    affine = volume.affine.copy()
    columns = np.array(steps[::-1])  # the affine runs over (x, y, z)
    affine[:3, 3] += affine[:3, :3] @ (columns / 2 - 0.5)
    affine[:3, :3] *= columns
    exact = tuple(own * step for own, step in zip(volume.spacing, steps, strict=True))
    return replace(
        volume,
        image=resize(image, size, order=3).astype(np.float32),
        label=None if volume.label is None else resize(volume.label, size, order=0),
        spacing=(exact[0], exact[1], exact[2]),
        affine=affine,
    )


def normalise(image: NDArray[np.float32], kind: Normalisation) -> NDArray[np.float32]:
    """Give each channel of ``(C, D, H, W)`` mean 0 and standard deviation 1 (``zscore``), or leave it."""
    if kind == "none":
        return image
    if kind != "zscore":
        raise ValueError(f"normalisation must be zscore or none, got {kind!r}")
    wide = image.astype(np.float64)
    mean, deviation = (f(wide, axis=(1, 2, 3), keepdims=True) for f in (np.mean, np.std))
    return ((wide - mean) / np.where(deviation > FLAT, deviation, 1.0)).astype(np.float32)


def prepare(volume: Volume, *, spacing: Sequence[float] | None, normalisation: Normalisation) -> Volume:
    """Resample to a spacing, if there is one, and normalise."""
    if spacing is not None:
        volume = resample_volume(volume, spacing)
    return replace(volume, image=normalise(volume.image, normalisation))


def import_ndimage(extra: str = "medical") -> Any:
    """The module ``scipy.ndimage``; where it is missing, the error names the extra that brings it."""
    try:
        from scipy import ndimage
    except ImportError as error:
        raise ImportError(f'this needs SciPy; run: pip install "torchsonic[{extra}]"') from error
    return ndimage
