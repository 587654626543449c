"""A segmentation network under the paper's perturbations."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from torchsonic.lab.data.synthetic.perturbations import PERTURBATIONS, Change, Perturbation
from torchsonic.lab.metrics.overlap import confusion, mean_dice

__all__ = ["RESOLUTIONS", "score_perturbations", "score_resolutions", "score_samples"]

BATCH = 50
RESOLUTIONS = (0.75, 1.5)
Batches = Callable[[Sequence[int]], tuple[Tensor, Tensor]]


class Trial(NamedTuple):
    """A line of the table, its images by number, and if they are enlarged those that come with their spacing."""

    name: str
    level: float
    batches: Batches
    told: Batches | None


def score_samples(
    model: nn.Module,
    batches: Batches,
    indices: Sequence[int],
    *,
    num_classes: int,
    background: bool,
    spacing: float | None = None,
    window: tuple[slice, slice] | None = None,
    batch: int | None = None,
) -> float:
    """Dice over all pixels of some samples together, or the mean over batches.

    Parameters
    ----------
    batches
        Images and labels of some samples.
    num_classes, background
        Of the task; class 0 counts only with ``background``.
    spacing
        Passed to the model.
    window
        Rows and columns that are scored; a model that accepts a window computes only these.
    batch
        Size of the batches that are scored separately; by default all samples are scored together.
    """
    options: dict[str, Any] = {} if spacing is None else {"spacing": spacing}
    options |= {} if window is None else {"window": window}
    device = next(model.parameters()).device
    counts = []
    with torch.no_grad():
        for start in range(0, len(indices), batch or BATCH):
            image, label = batches(indices[start : start + (batch or BATCH)])
            label = label if window is None else label[(slice(None), *window)]
            counts.append(confusion(model(image.to(device), **options).argmax(1).cpu(), label, num_classes))
    groups = counts if batch else [torch.stack(counts).sum(0)]
    return statistics.fmean(mean_dice(group, background=background) for group in groups)


def score_perturbations(
    model: nn.Module,
    data: Any,
    indices: Sequence[int],
    *,
    perturbations: Mapping[str, Perturbation] = PERTURBATIONS,
    seed: int = 0,
    batch: int | None = None,
    advance: Callable[[], None] = lambda: None,
) -> list[dict[str, Any]]:
    """Dice under every perturbation and level, in the order of the paper's table.

    Parameters
    ----------
    data
        ``samples(indices)`` and ``num_classes``.
    batch
        See :func:`score_samples`.
    advance
        Called after each row.

    Returns
    -------
    list of dict
        ``test``, ``level``, ``dice``; for rescaling also ``told``: the Dice of a model that is given the spacing of the
        rescaled image, ``None`` for one that cannot use it.
    """

    def perturbed(chosen: Sequence[int], change: Change, level: float) -> tuple[Tensor, Tensor]:
        image, label = data.samples(chosen)
        return change(image, label, level, torch.Generator().manual_seed(seed + int(chosen[0])), 0)

    tests = [
        Trial(
            kind,
            level,
            partial(perturbed, change=way.apply, level=level),
            way.told and partial(perturbed, change=way.told, level=level),
        )
        for kind, way in perturbations.items()
        for level in way.levels
    ]
    return _score_tests(model, data, indices, tests, batch=batch, advance=advance)


def score_resolutions(
    model: nn.Module,
    data: Any,
    indices: Sequence[int],
    *,
    advance: Callable[[], None] = lambda: None,
) -> list[dict[str, Any]]:
    """Dice on the same scenes, whole, rendered on coarser and finer grids than the model was trained on.

    As :func:`score_perturbations`; ``data`` has ``samples(indices, size)`` and ``size``, too, and ``level`` is pixels
    over the usual number on each axis.
    """

    def rendered(chosen: Sequence[int], level: float) -> tuple[Tensor, Tensor]:
        return data.samples(chosen, tuple(round(level * n) for n in data.size))

    tests = [Trial("resolution", level, *[partial(rendered, level=level)] * 2) for level in RESOLUTIONS]
    return _score_tests(model, data, indices, tests, batch=None, advance=advance)


def _score_tests(
    model: nn.Module,
    data: Any,
    indices: Sequence[int],
    tests: Iterable[Trial],
    *,
    batch: int | None,
    advance: Callable[[], None],
) -> list[dict[str, Any]]:
    """A row for each test; where its level enlarges images, a model that can be told the spacing is scored again."""
    model.eval()
    takes_spacing = getattr(model, "takes_spacing", False)
    shared: dict[str, Any] = {"num_classes": data.num_classes, "background": False, "batch": batch}
    rows = []
    for name, level, batches, told in tests:
        row = {"test": name, "level": level, "dice": score_samples(model, batches, indices, **shared)}
        if told is not None:
            tell = {"spacing": 1 / level, **shared}
            row["told"] = score_samples(model, told, indices, **tell) if takes_spacing else None
        rows.append(row)
        advance()
    return rows
