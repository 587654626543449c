"""Compute functions of images in the axes of training, whatever the axes of the input."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from torchsonic.arguments import check_samples
from torchsonic.nn.network_spacing import spaced_layers
from torchsonic.nn.physical_layer import TOLD_TWICE, of_samples
from torchsonic.spectral.orientation import Matrix, Storage, reorder_spacing, split_affine, split_orientation
from torchsonic.spectral.spacing import Sampling, Spacing, check_count, joint_spacing

Storages = tuple[Storage, ...]
Run = Callable[[Tensor, Spacing | None], Any]


def oriented_axes(model: nn.Module, reason: str) -> int:
    """Spatial axes of a model all of whose layers can be told an orientation; ``reason`` is why that matters."""
    layers = [layer for _, layer in spaced_layers(model)]
    for layer in layers:
        layer._refuse_orientation()
    if not layers:
        raise ValueError(
            f"{reason}, but this {type(model).__name__} has no Sonic layer and would ignore it; bring all arrays to "
            "the same axis order yourself"
        )
    return layers[0].num_axes


def run_oriented(
    model: nn.Module, run: Run, x: Tensor, spacing: Spacing | None, *, orientation: Matrix | None, affine: Matrix | None
) -> Any:
    """Compute a function of images, a part of a model, in the axes of training; see :func:`run_rearranged`."""
    num_axes = oriented_axes(model, f"{'orientation' if affine is None else 'affine'} was given")
    check_samples(x, num_axes, None, type(model).__name__)
    if isinstance(spacing, Sampling):
        raise ValueError(TOLD_TWICE)
    if affine is not None:
        spacing, orientation = read_affine(affine, num_axes, spacing, orientation, batch=x.shape[0])
    assert orientation is not None
    if spacing is None:  # what set_spacing has told, along the axes of the input
        spacing = getattr(model, "told_spacing", None)
    storages, rest = split_orientation(orientation, num_axes, batch=x.shape[0])
    if rest is None and any(layer._orientation is not None for _, layer in spaced_layers(model)):
        rest = torch.eye(num_axes, dtype=torch.float64)[None]
    return run_rearranged(run, x, spacing, storages, rest)


def read_affine(
    affine: Matrix,
    num_axes: int,
    spacing: Spacing | None,
    orientation: Matrix | None,
    *,
    batch: int | None = None,
) -> tuple[Spacing, Tensor]:
    """Spacing and orientation of an affine, which may not be combined with either of them."""
    if not (spacing is None and orientation is None):
        raise ValueError("affine already contains spacing and orientation; pass either affine or the other two")
    steps, turns = split_affine(affine, num_axes, batch=batch)
    return joint_spacing(steps), turns


def run_rearranged(run: Run, x: Tensor, spacing: Spacing | None, storages: Storages, rest: Tensor | None = None) -> Any:
    """Compute a function of images and their spacing in the axes of training.

    Samples of a batch may differ in orientation; those of the same size in these axes are computed together.

    Parameters
    ----------
    run
        ``run(x, spacing)``; tensors ``(B, K, *size)`` in its result are brought back to the axes of ``x``.
    spacing
        Spacing along the axes of ``x``, as everywhere.
    storages, rest
        See :func:`torchsonic.spectral.orientation.split_orientation`.
    """
    check_count("orientation", len(storages), x.shape[0])  # len(x) would tie an exported file to it
    steps = reordered(spacing, storages)
    told = steps if rest is None else Sampling(steps, rest)
    if len(storages) == 1:
        return restored(run(storages[0].apply(x), told), storages)
    samples = [storage.apply(x[i : i + 1]) for i, storage in enumerate(storages)]

    def run_some(members: list[int]) -> Any:
        own = None if told is None else of_samples(told, members)
        result = run(torch.cat([samples[i] for i in members]), own)
        return restored(result, tuple(storages[i] for i in members))

    return run_grouped(run_some, [sample.shape for sample in samples])


def reordered(spacing: Spacing | None, storages: Storages) -> Spacing | None:
    """A spacing along the rearranged axes."""
    return None if spacing is None else reorder_spacing(spacing, storages)


def restored(result: Any, storages: Storages) -> Any:
    """Bring all tensors ``(B, K, *size)`` in a result back to the axes of the input; leave other values unchanged."""

    def restore(part: Any) -> Any:
        if not isinstance(part, Tensor) or part.dim() != len(storages[0].order) + 2:
            return part
        if len(storages) == 1:
            return storages[0].undo(part)
        return _joined([storage.undo(part[i : i + 1]) for i, storage in enumerate(storages)])

    return tree_map(restore, result)


def _joined(parts: Sequence[Tensor]) -> Tensor:
    """Results of samples as one batch."""
    sizes = sorted({tuple(part.shape[2:]) for part in parts})
    if len(sizes) > 1:
        raise ValueError(
            f"results of samples with different orientations or spacings have different sizes, {sizes}; call the model "
            "once per orientation and spacing, or give it equal strides along all axes"
        )
    return torch.cat(list(parts))


def run_grouped(run: Callable[[list[int]], Any], keys: Sequence[Hashable]) -> Any:
    """Results of ``run(members)`` for the samples of each key, joined in the order of the batch."""
    groups: dict[Hashable, list[int]] = {}
    for i, key in enumerate(keys):
        groups.setdefault(key, []).append(i)
    order = torch.tensor([i for members in groups.values() for i in members]).argsort()

    def joined(*parts: Any) -> Any:
        return _joined(parts)[order] if isinstance(parts[0], Tensor) else parts[0]

    return tree_map(joined, *[run(members) for members in groups.values()])
