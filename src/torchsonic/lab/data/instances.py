"""Objects of one kind that touch: what a network learns of them, and how they are told apart again."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from torchsonic.lab.data.volumes.preparation import import_ndimage

__all__ = ["OUTLINE", "outline", "separate"]

OUTLINE = ("background", "inside", "border")


def outline(label: NDArray[np.integer]) -> NDArray[np.int16]:
    """Numbers of objects ``(.., H, W)`` as three classes: 0 background, 1 inside, 2 border.

    Pixels of an object that are next to background, or at most two pixels from another object, are its border. The edge
    of the image is none.
    """
    ndimage, size = import_ndimage("masks"), (1,) * (label.ndim - 2)
    least = ndimage.minimum_filter(label, (*size, 3, 3), mode="nearest")
    others = np.where(label > 0, label, np.iinfo(label.dtype).max)
    touches = ndimage.maximum_filter(label, (*size, 5, 5), mode="nearest") != label
    touches |= ndimage.minimum_filter(others, (*size, 5, 5), mode="nearest") != label
    return np.where(label > 0, 1 + ((least == 0) | touches), 0).astype(np.int16)


def separate(probabilities: NDArray[np.floating]) -> NDArray[np.int32]:
    """Objects, numbered from 1, from the probabilities of background, inside and border, ``(3, H, W)`` to ``(H, W)``.

    Connected insides are objects and grow over the borders until they meet; borders without an inside are objects, too.
    """
    ndimage = import_ndimage("masks")
    covered = probabilities[0] < 0.5
    objects, count = ndimage.label(covered & (probabilities[1] > probabilities[2]))
    parts, _ = ndimage.label(covered)
    objects = np.where(covered & ~np.isin(parts, parts[objects > 0]), parts + count, objects)
    sides = ndimage.generate_binary_structure(2, 1)
    while (bare := covered & (objects == 0)).any():  # one pixel at a time, so that each stays in one piece
        objects = np.where(bare, ndimage.maximum_filter(objects, footprint=sides), objects)
    values, numbers = np.unique(objects, return_inverse=True)
    return (numbers.reshape(covered.shape) + (values[0] > 0)).astype(np.int32)
