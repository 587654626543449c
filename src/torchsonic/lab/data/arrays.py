"""Signals and small images as arrays: samples and their classes, in ``train.npz`` and ``test.npz``."""

from __future__ import annotations

import zipfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from torchsonic.io import replacing


@dataclass(frozen=True)
class Arrays:
    """Samples ``(N, C, *size)``, bytes or floats, and the numbers of their classes ``(N,)``."""

    x: Tensor
    y: Tensor

    def __len__(self) -> int:
        return len(self.y)

    def take(self, places: Tensor) -> Arrays:
        """Some of the samples."""
        return Arrays(self.x[places], self.y[places])

    def values(self, places: Tensor | slice) -> Tensor:
        """Some of the samples as floats; bytes become 0 to 1, so that black stays what zeros outside an image are."""
        chosen = self.x[places]
        return chosen.float() / 255 if self.x.dtype == torch.uint8 else chosen.float()


def read_arrays(path: Path) -> Arrays:
    """Read an NPZ file of ``x``, ``(N, C, length)`` or ``(N, C, height, width)``, and ``y``, ``(N,)`` from 0 up."""
    try:
        with np.load(path, allow_pickle=False) as found:
            x, y = found["x"], found["y"]
    except FileNotFoundError:
        raise ValueError(f"there is no {path}; the data folder must contain train.npz and test.npz") from None
    except (OSError, ValueError, KeyError, zipfile.BadZipFile) as error:
        raise ValueError(f"{path} is not an NPZ file with arrays x and y: {error}") from error
    if x.ndim not in (3, 4) or y.shape != x.shape[:1] or not len(y):
        raise ValueError(f"{path}: x must be (N, C, *size) and y (N,), got {x.shape} and {y.shape}")
    if not np.issubdtype(y.dtype, np.integer) or y.min() < 0:
        raise ValueError(f"{path}: y must contain class numbers from 0 up, got {y.dtype} from {y.min()}")
    if x.dtype != np.uint8 and not (np.issubdtype(x.dtype, np.floating) and np.isfinite(x).all()):
        raise ValueError(f"{path}: x must contain bytes or finite floats, got {x.dtype}")
    return Arrays(torch.from_numpy(x), torch.from_numpy(y.astype(np.int64)))


def write_arrays(path: Path, arrays: Arrays) -> None:
    """Write what :func:`read_arrays` reads."""
    with replacing(path) as scratch:
        np.savez_compressed(scratch, x=arrays.x.numpy(), y=arrays.y.numpy())


def move_images(
    x: Tensor,
    angle: Tensor,
    scale: Tensor | float = 1.0,
    shift: Tensor | float = 0.0,
    bend: Tensor | None = None,
) -> Tensor:
    """Images ``(N, C, H, H)`` rotated about their centre, enlarged, shifted and bent, with zeros outside; bicubic.

    Parameters
    ----------
    angle
        Degrees counter-clockwise as one sees them, ``(N,)``.
    scale, shift
        Factor, ``(N,)``; and parts of the width to the right and down, ``(N, 2)``.
    bend
        Offsets, to the right and down, of the places from which pixels are taken, in parts of the width, at the points
        of a coarse grid, ``(N, 2, h, h)``; smooth in between.
    """
    turn = torch.deg2rad(angle.to(x.dtype))
    cos, sin = turn.cos() / scale, turn.sin() / scale
    # The grid says where each pixel comes from, hence the inverse; rows count downwards.
    matrix = torch.stack([torch.stack([cos, -sin], -1), torch.stack([sin, cos], -1)], -2)
    offset = -2 * matrix @ (torch.zeros(len(x), 2, dtype=x.dtype) + shift)[..., None]
    grid = F.affine_grid(torch.cat([matrix, offset], -1), list(x.shape), align_corners=False)
    if bend is not None:
        grid = grid + 2 * F.interpolate(bend, list(x.shape[2:]), mode="bicubic", align_corners=True).movedim(1, -1)
    return F.grid_sample(x, grid, mode="bicubic", padding_mode="zeros", align_corners=False)
