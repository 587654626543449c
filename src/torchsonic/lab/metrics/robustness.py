"""A segmentation network under the paper's perturbations."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from torchsonic.lab.data.synthetic.perturbations import PERTURBATIONS, perturb
from torchsonic.lab.metrics.overlap import confusion, mean_dice

__all__ = ["RESOLUTIONS", "score_perturbations", "score_resolutions", "score_samples"]

BATCH = 50
RESOLUTIONS = (0.75, 1.5)
ENLARGING = ("rescaling", "resolution")
Batches = Callable[[Sequence[int]], tuple[Tensor, Tensor]]


def score_samples(
    model: nn.Module,
    batches: Batches,
    indices: Sequence[int],
    *,
    num_classes: int,
    background: bool,
    spacing: float | None = None,
    window: tuple[slice, slice] | None = None,
) -> float:
    """Dice over all pixels of some samples together.

    Parameters
    ----------
    batches
        Images and labels of some samples.
    num_classes, background
        Of the task; class 0 counts only with ``background``.
    spacing
        To be told to the model.
    window
        Rows and columns that count, where the others are ignored; a model that takes one works for these alone.
    """
    options: dict[str, Any] = {} if spacing is None else {"spacing": spacing}
    options |= {} if window is None else {"window": window}
    device = next(model.parameters()).device
    counts = torch.zeros(num_classes, num_classes, dtype=torch.long)
    with torch.no_grad():
        for start in range(0, len(indices), BATCH):
            image, label = batches(indices[start : start + BATCH])
            label = label if window is None else label[(slice(None), *window)]
            counts += confusion(model(image.to(device), **options).argmax(1).cpu(), label, num_classes)
    return mean_dice(counts, background=background)


def score_perturbations(
    model: nn.Module,
    data: Any,
    indices: Sequence[int],
    *,
    background: bool = False,
    seed: int = 0,
    advance: Callable[[], None] = lambda: None,
) -> list[dict[str, Any]]:
    """Dice under every perturbation and level, in the order of the paper's table.

    Parameters
    ----------
    data
        ``samples(indices)`` and ``num_classes``.
    advance
        Called after each row.

    Returns
    -------
    list of dict
        ``test``, ``level``, ``dice``; for rescaling also ``told``: the Dice of a model that is told the spacing of the
        rescaled image, ``None`` for one that cannot be told.
    """

    def perturbed(chosen: Sequence[int], kind: str, level: float) -> tuple[Tensor, Tensor]:
        image, label = data.samples(chosen)
        return perturb(image, label, kind, level, seed=seed + int(chosen[0]))

    levels = [(kind, level) for kind, perturbation in PERTURBATIONS.items() for level in perturbation.levels]
    tests = [(kind, level, partial(perturbed, kind=kind, level=level)) for kind, level in levels]
    return _score_tests(model, data, indices, tests, background=background, advance=advance)


def score_resolutions(
    model: nn.Module,
    data: Any,
    indices: Sequence[int],
    *,
    background: bool = False,
    advance: Callable[[], None] = lambda: None,
) -> list[dict[str, Any]]:
    """Dice on the same scenes, whole, rendered on coarser and finer grids than the model was trained on.

    As :func:`score_perturbations`; ``data`` has ``samples(indices, size)`` and ``size``, too, and ``level`` is pixels
    over the usual number on each axis.
    """

    def rendered(chosen: Sequence[int], level: float) -> tuple[Tensor, Tensor]:
        return data.samples(chosen, tuple(round(level * n) for n in data.size))

    tests = [("resolution", level, partial(rendered, level=level)) for level in RESOLUTIONS]
    return _score_tests(model, data, indices, tests, background=background, advance=advance)


def _score_tests(
    model: nn.Module,
    data: Any,
    indices: Sequence[int],
    tests: Iterable[tuple[str, float, Batches]],
    *,
    background: bool,
    advance: Callable[[], None],
) -> list[dict[str, Any]]:
    """A row for each test; where its level enlarges images, a model that can be told the spacing is scored again."""
    model.eval()
    shared: dict[str, Any] = {"num_classes": data.num_classes, "background": background}
    rows = []
    for test, level, batches in tests:
        row = {"test": test, "level": level, "dice": score_samples(model, batches, indices, **shared)}
        if test in ENLARGING:
            takes_spacing = getattr(model, "takes_spacing", False)
            told = score_samples(model, batches, indices, spacing=1 / level, **shared) if takes_spacing else None
            row["told"] = told
        rows.append(row)
        advance()
    return rows
