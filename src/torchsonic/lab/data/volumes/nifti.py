"""Volumes: cases read with every check that spares a wasted run, and labels written.

Arrays are ``(D, H, W)``, NIfTI's (x, y, z) reversed, and so is the spacing; the affine stays NIfTI's, from (x, y, z) to
millimetres.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from torchsonic.functional import split_affine
from torchsonic.io import replacing
from torchsonic.lab.data.volumes.cases import SUFFIXES, Case, CaseError

MOST_CLASSES = 1 << 15
SINGULAR = 1e-6
"""Smallest volume of a voxel over the product of its edges; below it, the axes do not span space."""


@dataclass(frozen=True, eq=False)
class Volume:
    """A case in memory.

    Parameters
    ----------
    image
        ``(C, D, H, W)``, float32.
    label
        ``(D, H, W)``, int16, or ``None``.
    spacing
        Millimetres between voxels along D, H and W.
    affine
        ``(4, 4)``, float64: NIfTI's (x, y, z) = (W, H, D) to millimetres.
    """

    name: str
    image: NDArray[np.float32]
    label: NDArray[np.int16] | None
    spacing: tuple[float, float, float]
    affine: NDArray[np.float64]


def read_case(case: Case, *, num_classes: int | None = None, straight: bool = False) -> Volume:
    """Read a case and check it.

    Parameters
    ----------
    num_classes
        Of the labels, background counted; by default any labels from 0 on are taken.
    straight
        Refuse sheared volumes, which have no orientation.

    Raises
    ------
    CaseError
        For a file that is missing, unreadable, not 3-D or without an affine that can be inverted, for NaN or infinite
        voxels, for channels or a label on another grid than the image, and for labels that are no class.
    """
    path = case.images[0]
    first, affine = _read_array(case.name, path)
    if affine is None:
        raise CaseError(
            case.name, path, "no affine (qform and sform codes are 0), so its spacing is unknown; set the sform"
        )
    if straight:
        try:
            split_affine(torch.from_numpy(affine), 3)
        except ValueError as error:
            raise CaseError(
                case.name, path, f"{error}, or use the arrays as stored with --no-tell-orientation"
            ) from error
    channels = [first]
    for other in case.images[1:]:
        channel, grid = _read_array(case.name, other)
        _check_grid(case.name, other, path, (channel, grid), (first, affine))
        channels.append(channel)
    for file, channel in zip(case.images, channels, strict=True):
        bad = channel.size - np.count_nonzero(np.isfinite(channel))
        if bad:
            raise CaseError(case.name, file, f"{bad} voxels are NaN or infinite; replace them by numbers")
    label = None
    if case.label is not None:
        label, grid = _read_array(case.name, case.label, dtype=None)
        _check_grid(case.name, case.label, path, (label, grid), (first, affine))
        label = _check_classes(case.name, case.label, label, num_classes)
    sizes = np.linalg.norm(affine[:3, :3], axis=0)
    # In NIfTI x runs fastest, so that reversing the axes of a Fortran-ordered array copies nothing.
    return Volume(
        case.name,
        np.stack([np.ascontiguousarray(channel.T) for channel in channels]),
        None if label is None else np.ascontiguousarray(label.T),
        (float(sizes[2]), float(sizes[1]), float(sizes[0])),
        affine,
    )


def _read_array(case: str, path: Path, dtype: Any = np.float32) -> tuple[NDArray[Any], NDArray[np.float64] | None]:
    """Voxels ``(x, y, z)`` of a file, and its affine if it has one."""
    nibabel = _import_nibabel()
    if not path.is_file():
        raise CaseError(case, path, "there is no such file; add it or remove the case")
    try:
        file = nibabel.load(path)
        shape, codes = file.shape, [int(file.header[f"{form}form_code"]) for form in "qs"]
        affine = np.asarray(file.affine, dtype=np.float64)
        array = np.asarray(file.dataobj, dtype=dtype) if len(shape) == 3 else None
    except Exception as error:  # whatever a reader makes of a file that is cut short or no NIfTI at all
        reason = str(error).strip().split("\n")[0] or type(error).__name__
        raise CaseError(case, path, f"cannot be read as NIfTI ({reason}); copy or convert it again") from error
    if array is None:
        remedy = "give a volume" if len(shape) < 3 else "give one 3-D file for each channel, name_0000, name_0001, .."
        raise CaseError(case, path, f"has {len(shape)} axes, shape {shape}, instead of 3; {remedy}")
    if array.size == 0:
        raise CaseError(case, path, f"has no voxels: shape {shape}; remove the case")
    if not any(codes):
        return array, None
    edges = np.linalg.norm(affine[:3, :3], axis=0)
    if not np.isfinite(affine).all() or not abs(np.linalg.det(affine[:3, :3])) > SINGULAR * edges.prod():
        raise CaseError(case, path, f"its affine is singular: {affine[:3].tolist()}; set the right one")
    return array, affine


def read_affine(path: Path) -> NDArray[np.float64]:
    """The affine of a file ``(4, 4)``, without its voxels."""
    return np.asarray(_import_nibabel().load(path).affine, dtype=np.float64)


def _import_nibabel() -> Any:
    try:
        import nibabel
    except ImportError as error:
        raise ImportError('NIfTI files need nibabel; run: pip install "torchsonic[medical]"') from error
    return nibabel


def _check_grid(
    case: str, path: Path, image: Path, own: tuple[NDArray[Any], Any], wanted: tuple[NDArray[Any], NDArray[np.float64]]
) -> None:
    """Refuse another number of voxels than the image's, and voxels at other places, if the file says where they are."""
    if own[0].shape != wanted[0].shape:
        raise CaseError(
            case, path, f"shape {own[0].shape} differs from that of {image}, {wanted[0].shape}; resample or remove it"
        )
    if own[1] is None:
        return
    corners = np.array([(*corner, 1) for corner in product(*[(0, n - 1) for n in own[0].shape])])
    apart = np.linalg.norm((corners @ (own[1] - wanted[1]).T)[:, :3], axis=1).max()
    if apart > np.linalg.norm(wanted[1][:3, :3], axis=0).min() / 2:
        raise CaseError(
            case,
            path,
            f"its affine puts voxels up to {apart:.3g} mm away from those of {image}; resample or correct it",
        )


def _check_classes(case: str, path: Path, label: NDArray[Any], num_classes: int | None) -> NDArray[np.int16]:
    values = np.unique(label)
    highest = MOST_CLASSES if num_classes is None else num_classes
    with np.errstate(invalid="ignore"):
        wrong = values[~((values >= 0) & (values < highest) & (values == np.round(values)))]
    if wrong.size:
        shown = ", ".join(f"{value:g}" for value in wrong[:5]) + (", .." if wrong.size > 5 else "")
        raise CaseError(
            case, path, f"label values {shown} are none of the classes 0 to {highest - 1}; relabel or remove the case"
        )
    return label.astype(np.int16)


def write_labels(path: Path, labels: NDArray[Any], affine: NDArray[np.float64] | Sequence[Sequence[float]]) -> None:
    """Write labels ``(D, H, W)`` as NIfTI with an affine of (x, y, z); the file appears whole or not at all."""
    nibabel = _import_nibabel()
    if labels.ndim != 3:
        raise ValueError(f"labels must be (D, H, W), got shape {labels.shape}")
    if not path.name.endswith(SUFFIXES):
        raise ValueError(f"path must end in {' or '.join(SUFFIXES)}, got {path}")
    small = labels.size == 0 or (labels.min() >= 0 and labels.max() < 256)
    image = nibabel.Nifti1Image(labels.T.astype(np.uint8 if small else np.int16), np.asarray(affine, dtype=np.float64))
    with replacing(path) as scratch:
        nibabel.save(image, scratch)
