r"""How the axes of an array lie in space: an orthogonal matrix ``R`` whose columns are the axes' directions.

    position = origin + R diag(spacing) n        so that        w = R w_axis,   w.v = w_axis.(R^T v)

Telling a layer ``R`` therefore means using the directions ``R^T v`` on the array's own grid. A scan's affine matrix
holds ``R diag(spacing)`` in its first D rows and columns.

Some parts of a network are tied to array axes: strides, small kernels, patches. For these, ``R`` is split into the
nearest matrix that permutes and flips axes, which rearranges the array itself, and a remainder close to the identity,
which the layers are told (:func:`split_storage`).
"""

from __future__ import annotations

import itertools
import math
import numbers
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from torchsonic.spectral.spacing import ANY_BATCH, Spacing, as_spacing, check_count, spacing_values, widest_float

__all__ = [
    "Matrix",
    "Storage",
    "all_storages",
    "as_orientation",
    "reorder_spacing",
    "split_affine",
    "split_orientation",
    "split_storage",
]

Matrix = Tensor | Sequence
TOLERANCE = 1e-3
"""Of orthogonality: affine matrices in files are in single precision, and often rounded."""
NEARLY = TOLERANCE / 10
"""Orientations that differ by less are the same to a network."""


def _as_tensor(value: Matrix) -> Tensor:
    if isinstance(value, Tensor):
        return value
    if isinstance(value, Sequence) and any(isinstance(part, Tensor) for part in value):
        return torch.stack([_as_tensor(part) for part in value])
    return torch.tensor(np.asarray(value), device="cpu")  # not PyTorch's default device, which may be "meta"


def _as_matrices(value: Matrix, size: int, name: str) -> Tensor:
    try:
        matrices = _as_tensor(value)
    except (TypeError, ValueError, RuntimeError) as error:
        raise TypeError(f"{name} must be numbers of shape ({size}, {size}), got {value!r}") from error
    if matrices.is_complex():
        raise TypeError(f"{name} must be real numbers, got {matrices.dtype}")
    if kind := _kind_without_numbers(matrices):
        raise TypeError(
            f"{name} must be a dense tensor of numbers that can be read, got {kind}; pass them as a list, and those of "
            f"several samples as one tensor (batch, {size}, {size})"
        )
    matrices = matrices.to(widest_float(matrices.device))
    if matrices.dim() not in (2, 3) or tuple(matrices.shape[-2:]) != (size, size):
        raise ValueError(
            f"{name} must have shape ({size}, {size}), or (batch, {size}, {size}) with one matrix per sample, "
            f"got {tuple(matrices.shape)}"
        )
    if not torch.compiler.is_compiling() and not matrices.isfinite().all():
        raise ValueError(f"{name} must be finite, got {matrices.tolist()}")
    return matrices[None] if matrices.dim() == 2 else matrices


def _kind_without_numbers(matrices: Tensor) -> str | None:
    """What keeps the numbers of a tensor from being read."""
    if torch._C._functorch.is_batchedtensor(matrices):  # type: ignore[attr-defined]
        return "one of torch.func.vmap"
    if matrices.device.type == "meta":
        return "one on the meta device"
    return None if matrices.layout == torch.strided else f"one of layout {matrices.layout}"


def as_orientation(orientation: Matrix, num_axes: int, *, batch: int | None = None) -> Tensor:
    """Check an orientation: ``(1, D, D)`` or ``(batch, D, D)``, exactly orthogonal, in the widest float of its device.

    Parameters
    ----------
    orientation
        One orthogonal matrix or one per sample; column d is the direction of array axis d. Its determinant may be 1 or
        -1 (an odd number of flipped axes).
    batch
        Number of samples that several matrices must match; ``None`` for any number.
    """
    matrices = _as_matrices(orientation, num_axes, "orientation")
    if batch is not None:
        check_count("orientation", matrices.shape[0], batch)
    elif matrices.shape[0] == 0:
        raise ValueError(f"orientation has no matrices, shape {tuple(matrices.shape)}; pass one, or one per sample")
    if torch.compiler.is_compiling():  # the numbers are known only later
        torch._assert_async((_excess(matrices).abs() <= TOLERANCE).all(), "orientation must be orthogonal and finite")
        return _nearest_orthogonal(matrices)
    error = _lack_of_orthogonality(matrices)
    if error > TOLERANCE:
        raise ValueError(f"orientation must be orthogonal, but {_fault(matrices)}")
    return matrices if error < 1e-12 else _nearest_orthogonal(matrices)


def _fault(matrices: Tensor) -> str:
    """What keeps the worst of some matrices from being orthogonal, and the remedy."""
    excess = _excess(matrices).abs()
    lengths = torch.linalg.vector_norm(matrices[excess.flatten(1).amax(1).argmax()], dim=0)
    if excess.max() == excess.diagonal(dim1=1, dim2=2).max() or not lengths.all():
        return (
            f"its columns have lengths {', '.join(f'{n:.4g}' for n in lengths.tolist())}; divide the columns of an "
            "affine matrix by the spacing, or pass the affine itself to a network as affine="
        )
    first, second, angle = _worst_angle(matrices)
    return (
        f"columns {first} and {second} are {angle:.1f} degrees apart; resample an array with oblique axes to a "
        "rectangular grid first"
    )


def _worst_angle(matrices: Tensor) -> tuple[int, int, float]:
    """Two columns that are farthest from a right angle, and the angle between them in degrees."""
    columns = torch.nn.functional.normalize(matrices, dim=1)
    cosines = (columns.mT @ columns).cpu().triu(1)
    place = int(cosines.abs().amax(0).argmax())
    cosine = cosines.flatten(1)[:, place]
    angle = math.degrees(math.acos(max(-1.0, min(1.0, cosine[cosine.abs().argmax()].item()))))
    return place // matrices.shape[-1], place % matrices.shape[-1], angle


def _excess(matrices: Tensor) -> Tensor:
    """``R^T R - 1``: squared lengths of the columns and cosines between them, where they should be 1 and 0."""
    return matrices.mT @ matrices - torch.eye(matrices.shape[-1], dtype=matrices.dtype, device=matrices.device)


def _lack_of_orthogonality(matrices: Tensor) -> float:
    excess = _excess(matrices)
    return excess.abs().max().item() if excess.numel() else 0.0


def split_affine(affine: Matrix, num_axes: int, *, batch: int | None = None) -> tuple[Tensor, Tensor]:
    """Spacing ``(n, D)`` and orientation ``(n, D, D)`` of affine matrices ``(D + 1, D + 1)`` or ``(n, D + 1, D + 1)``.

    Sheared matrices, such as those of a scan with a tilted gantry, are refused: no rotation describes them. Several
    matrices must match ``batch``, if that is given.
    """
    matrices = _as_matrices(affine, num_axes + 1, "affine")
    if batch is not None:
        check_count("affine", matrices.shape[0], batch)
    if matrices[:, -1, :-1].any() or (matrices[:, -1, -1] != 1).any():
        remedy = "if the translation is in the last row, pass affine.T"
        if not matrices[:, -1, :-1].any():
            remedy = "it is the same however axes are flipped or scaled, so write that there"
        raise ValueError(
            f"the last row of affine must be {(0,) * num_axes + (1,)}, got {matrices[:, -1].tolist()}; {remedy}"
        )
    columns = matrices[:, :num_axes, :num_axes]
    spacing = torch.linalg.vector_norm(columns, dim=1)
    if not (spacing > 0).all():
        axis = int((spacing > 0).all(0).int().argmin())
        raise ValueError(f"column {axis} of affine is zero, so axis {axis} has no spacing; write the voxel size there")
    matrices = columns / spacing[:, None]
    if _lack_of_orthogonality(matrices) > TOLERANCE:
        first, second, angle = _worst_angle(matrices)
        raise ValueError(
            f"affine is sheared: array axes {first} and {second} are {abs(90 - angle):.1f} degrees off a right angle; "
            "resample the scan to a rectangular grid first"
        )
    return spacing, _nearest_orthogonal(matrices)


def _nearest_orthogonal(matrices: Tensor) -> Tensor:
    """The polar factor, by Newton's iteration: each step squares the error, which is below ``TOLERANCE``."""
    for _ in range(3):
        matrices = matrices - matrices @ _excess(matrices) / 2
    return matrices


class Storage(NamedTuple):
    """How to rearrange an array: new axis i is old axis ``order[i]``, flipped where ``flips[i]``.

    Examples
    --------
    >>> storage = Storage((1, 0), (False, True))
    >>> x = torch.arange(6.0).reshape(1, 1, 2, 3)
    >>> storage.apply(x)[0, 0].tolist()
    [[3.0, 0.0], [4.0, 1.0], [5.0, 2.0]]
    >>> torch.equal(storage.undo(storage.apply(x)), x)
    True
    """

    order: tuple[int, ...]
    flips: tuple[bool, ...]

    def apply(self, x: Tensor) -> Tensor:
        """Rearrange the spatial axes of ``(B, C, *size)``."""
        y = x.permute(0, 1, *[2 + axis for axis in self.order])
        return y.flip([2 + axis for axis, flip in enumerate(self.flips) if flip])

    def undo(self, y: Tensor) -> Tensor:
        """The inverse of :meth:`apply`."""
        x = y.flip([2 + axis for axis, flip in enumerate(self.flips) if flip])
        return x.permute(0, 1, *[2 + self.order.index(axis) for axis in range(len(self.order))])

    def matrix(self) -> Tensor:
        """``(D, D)``: the columns of an orientation times it are the directions of the new axes."""
        matrix = torch.zeros(len(self.order), len(self.order), dtype=torch.float64)
        for new, (old, flip) in enumerate(zip(self.order, self.flips, strict=True)):
            matrix[old, new] = -1.0 if flip else 1.0
        return matrix


def all_storages(num_axes: int) -> Iterator[Storage]:
    """Every order and every flip of axes: 2, 8 or 48 ways to store one array."""
    for order in itertools.permutations(range(num_axes)):
        for flips in itertools.product((False, True), repeat=num_axes):
            yield Storage(order, flips)


def reorder_spacing(spacing: Spacing, storages: Sequence[Storage]) -> Spacing:
    """A spacing along the axes of arrays that are rearranged, all alike or each by its own storage."""
    if isinstance(spacing, numbers.Real):
        return spacing  # type: ignore[return-value]
    num_axes = len(storages[0].order)
    if len(storages) == 1 and not isinstance(spacing, (Tensor, np.ndarray)):
        steps = spacing_values(spacing, num_axes)
        return tuple(steps[axis] for axis in storages[0].order)
    rows = as_spacing(spacing, num_axes, batch=ANY_BATCH if len(storages) == 1 else len(storages))
    if len(storages) == 1:
        return rows[:, list(storages[0].order)]
    rows = rows.expand(len(storages), -1)
    return torch.stack([row[list(storage.order)] for row, storage in zip(rows, storages, strict=True)])


def split_storage(orientation: Tensor) -> tuple[Storage, Tensor | None]:
    """Split an orientation ``(D, D)`` into a rearrangement of the array and what remains: ``(D, D)``, or ``None``.

    The rearrangement brings every array axis as close as possible to the axis of space with the same number. If several
    are equally close, as at 45 degrees, the remainder decides, since every way to store an array has the same ones.
    """
    rows = orientation.tolist()
    axes = range(len(rows))

    def entry(storage: Storage, i: int, j: int) -> float:
        """Of the remainder."""
        return -rows[i][storage.order[j]] if storage.flips[j] else rows[i][storage.order[j]]

    closeness = {storage: sum(entry(storage, i, i) for i in axes) for storage in all_storages(len(rows))}
    best = _nearly_largest(closeness)
    for i, j in itertools.product(axes, axes):
        if len(best) > 1:
            best = _nearly_largest({storage: entry(storage, i, j) for storage in best})
    rest = orientation @ best[0].matrix().to(orientation)
    plain = torch.allclose(rest, torch.eye(len(rest), dtype=rest.dtype), atol=NEARLY)
    return best[0], None if plain else rest


def _nearly_largest(values: dict[Storage, float]) -> list[Storage]:
    most = max(values.values())
    return [storage for storage, value in values.items() if value > most - NEARLY]


def split_orientation(
    orientation: Matrix, num_axes: int, *, batch: int | None = None
) -> tuple[tuple[Storage, ...], Tensor | None]:
    """:func:`split_storage` of one orientation or one per sample: rearrangements, and remainders ``(n, D, D)``.

    Samples that do not differ are one; ``None`` stands for remainders that are all the identity. Several matrices must
    match ``batch``, if that is given.
    """
    matrices = as_orientation(orientation, num_axes, batch=batch).cpu()
    if len(matrices) == 0:
        matrices = torch.eye(num_axes)[None]
    if torch.equal(matrices, matrices[:1].expand_as(matrices)):
        matrices = matrices[:1]
    storages, rests = zip(*[split_storage(matrix) for matrix in matrices], strict=True)
    if all(rest is None for rest in rests):
        return storages if len(set(storages)) > 1 else storages[:1], None
    one = torch.eye(num_axes, dtype=matrices.dtype)
    return storages, torch.stack([one if rest is None else rest for rest in rests])
