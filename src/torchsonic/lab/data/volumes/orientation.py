"""How volumes lie in the body: brought to one order of axes, and what is oblique told.

The axes of training are (S, A, R), since arrays are ``(D, H, W)`` and NIfTI's world points to the right, the front and
the top: a file whose affine matrix is diagonal and positive stays as it is.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from torchsonic.functional import Storage, split_affine, split_orientation
from torchsonic.lab.data.volumes.nifti import Volume


def _orientation(affine: NDArray[np.float64]) -> torch.Tensor:
    """Directions ``(1, 3, 3)`` of the axes of an array ``(D, H, W)`` in (S, A, R); sheared matrices are refused."""
    return split_affine(torch.from_numpy(affine), 3)[1].flip(1, 2)


def axis_codes(affine: NDArray[np.float64]) -> str:
    """Where (x, y, z) of a NIfTI file point, nearly: ``"RAS"``, ``"LPS"`` and so on.

    Examples
    --------
    >>> axis_codes(np.diag([-1.0, 1.0, 3.0, 1.0]))
    'LAS'
    """
    columns = affine[:-1, :-1] / np.linalg.norm(affine[:-1, :-1], axis=0)
    largest = np.abs(columns).argmax(0)
    return "".join("RAS"[row] if columns[row, axis] > 0 else "LPI"[row] for axis, row in enumerate(largest))


def oblique_degrees(affine: NDArray[np.float64]) -> float:
    """Largest angle between an axis of a NIfTI file and the nearest axis of space.

    Examples
    --------
    >>> affine = np.eye(4)
    >>> affine[:2, :2] = [[0.8, -0.6], [0.6, 0.8]]
    >>> round(oblique_degrees(affine))
    37
    """
    cosines = np.abs(affine[:3, :3] / np.linalg.norm(affine[:3, :3], axis=0)).max(0)
    return float(np.degrees(np.arccos(np.minimum(cosines, 1.0))).max())


def straighten(volume: Volume) -> tuple[Volume, Storage]:
    """The volume in the axes of training, and how it was rearranged."""
    storage = split_orientation(_orientation(volume.affine), 3)[0][0]
    return rearrange(volume, storage), storage


def rearrange(volume: Volume, storage: Storage) -> Volume:
    """The same volume with its axes in another order and direction; affine and spacing follow."""
    order, flips = list(storage.order), np.array(storage.flips)
    columns = volume.affine[:3, 2::-1][:, order]  # of D, H and W, then of the new axes
    last = np.array(volume.image.shape[1:])[order] - 1
    affine = volume.affine.copy()
    affine[:3, 3] += columns @ (last * flips)
    affine[:3, 2::-1] = columns * np.where(flips, -1.0, 1.0)
    label = None if volume.label is None else _rearranged(storage.apply, volume.label[None])[0]
    spacing = (volume.spacing[order[0]], volume.spacing[order[1]], volume.spacing[order[2]])
    image = _rearranged(storage.apply, volume.image)
    return replace(volume, image=image, label=label, spacing=spacing, affine=affine)


def to_stored_axes(array: NDArray[Any], storage: Storage) -> NDArray[Any]:
    """Bring ``(K, *size)`` from the axes of training back to those of the file."""
    return _rearranged(storage.undo, array)


def _rearranged(change: Any, array: NDArray[Any]) -> NDArray[Any]:
    return np.ascontiguousarray(change(torch.from_numpy(array)[None])[0].numpy())


def oblique_part(volume: Volume) -> NDArray[np.float64] | None:
    """What a network has to be told of a straightened volume, ``(3, 3)``; ``None`` if its axes are those of space."""
    rest = split_orientation(_orientation(volume.affine), 3)[1]
    return None if rest is None else rest[0].numpy()
