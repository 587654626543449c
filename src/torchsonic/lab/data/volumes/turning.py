"""Volumes as if the patient had lain differently: turned about any axis, in millimetres."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from torchsonic.lab.data.volumes.nifti import Volume
from torchsonic.lab.data.volumes.patches import cut_moved

__all__ = ["random_axis", "rotation_about", "turn_back", "turn_volume"]


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
    size, half, matrix = _turned_grid(volume, rotation)
    new_half = (np.array(size) - 1) / 2
    image, label = cut_moved(volume.image, volume.label, (half - new_half).tolist(), size, matrix)
    columns = volume.affine[:3, 2::-1]  # of D, H and W
    affine = volume.affine.copy()
    affine[:3, 3] += columns @ (half - matrix @ new_half)
    affine[:3, 2::-1] = columns @ matrix
    return replace(volume, image=image, label=label.astype(volume.label.dtype), affine=affine)


def turn_back(values: NDArray[np.float32], volume: Volume, rotation: NDArray[np.float64]) -> NDArray[np.float32]:
    """Values ``(K, *turned)`` on the grid that :func:`turn_volume` makes, interpolated linearly on the volume's own."""
    size, half, _ = _turned_grid(volume, rotation)
    start = (np.array(size) - 1) / 2 - half
    nothing = np.zeros(size, dtype=np.int16)
    return cut_moved(values, nothing, start.tolist(), volume.image.shape[1:], _in_voxels(rotation.T, volume))[0]


def _turned_grid(
    volume: Volume, rotation: NDArray[np.float64]
) -> tuple[list[int], NDArray[np.float64], NDArray[np.float64]]:
    """Size of the turned grid, the middle of the volume, and the matrix from steps on the former to the latter's."""
    shape = np.array(volume.image.shape[1:])
    size = np.ceil(np.abs(_in_voxels(rotation.T, volume)) @ shape - 1e-6).astype(int)
    return size.tolist(), (shape - 1) / 2, _in_voxels(rotation, volume)


def _in_voxels(rotation: NDArray[np.float64], volume: Volume) -> NDArray[np.float64]:
    """A rotation in millimetres as a matrix on steps of voxels."""
    steps = np.array(volume.spacing)
    return rotation * steps[None, :] / steps[:, None]
