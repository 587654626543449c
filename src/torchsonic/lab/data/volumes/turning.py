"""Volumes as if the patient had lain differently: turned about any axis, in millimetres."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from torchsonic.lab.data.volumes.nifti import Volume
from torchsonic.lab.data.volumes.patches import cut_moved

__all__ = ["random_axis", "rotation_about", "turn_volume"]


def random_axis(generator: np.random.Generator) -> NDArray[np.float64]:
    """A unit vector ``(3,)``, every direction as likely as another."""
    vector = generator.standard_normal(3)
    return vector / np.linalg.norm(vector)


def rotation_about(axis: NDArray[np.float64], angle: float) -> NDArray[np.float64]:
    """The turn ``(3, 3)`` about a unit vector by an angle in radians.

    Examples
    --------
    >>> rotation_about(np.array([1.0, 0.0, 0.0]), math.pi / 2).round(6).tolist()
    [[1.0, 0.0, 0.0], [0.0, 0.0, -1.0], [0.0, 1.0, 0.0]]
    """
    cross = np.cross(np.eye(3), axis)
    return np.eye(3) + math.sin(angle) * cross + (1 - math.cos(angle)) * cross @ cross


def turn_volume(volume: Volume, rotation: NDArray[np.float64]) -> Volume:
    """A volume read on a turned grid of the same spacing, just large enough to hold all of it.

    Images are interpolated linearly and go on with their outermost voxels; labels take the nearest voxel, and outside
    they are ``IGNORE``. The affine says where the new voxels lie.

    Parameters
    ----------
    rotation
        ``(3, 3)``: its columns are the directions of the new axes along D, H and W.
    """
    assert volume.label is not None
    steps, shape = np.array(volume.spacing), np.array(volume.label.shape)
    size = np.ceil(np.abs(rotation.T) @ (shape * steps) / steps - 1e-6).astype(int)
    half, new_half = (shape - 1) / 2, (size - 1) / 2
    matrix = rotation * steps[None, :] / steps[:, None]
    image, label = cut_moved(volume.image, volume.label, (half - new_half).tolist(), size.tolist(), matrix)
    columns = volume.affine[:3, 2::-1]  # of D, H and W
    affine = volume.affine.copy()
    affine[:3, 3] += columns @ (half - matrix @ new_half)
    affine[:3, 2::-1] = columns @ matrix
    return replace(volume, image=image, label=label.astype(volume.label.dtype), affine=affine)
