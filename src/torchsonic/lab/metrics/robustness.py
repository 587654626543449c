"""A segmentation network under the paper's perturbations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from torchsonic.lab.data.synthetic.perturbations import PERTURBATIONS, perturb
from torchsonic.lab.metrics.overlap import confusion, mean_dice

__all__ = ["RESOLUTIONS", "score_perturbations", "score_resolutions", "score_samples"]

BATCH = 50
RESOLUTIONS = (0.75, 1.5)


def score_samples(
    model: nn.Module,
    batches: Callable[[Sequence[int]], tuple[Tensor, Tensor]],
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


def _score_told(
    model: nn.Module,
    batches: Callable[[Sequence[int]], tuple[Tensor, Tensor]],
    indices: Sequence[int],
    level: float,
    **options: Any,
) -> float | None:
    """Dice of a model that is told the spacing of images enlarged by ``level``; ``None`` if it cannot be told."""
    if not getattr(model, "takes_spacing", False):
        return None
    return score_samples(model, batches, indices, spacing=1 / level, **options)


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
    model.eval()
    rows = []
    for kind, perturbation in PERTURBATIONS.items():
        for level in perturbation.levels:

            def batches(chosen: Sequence[int], kind: str = kind, level: float = level) -> tuple[Tensor, Tensor]:
                image, label = data.samples(chosen)
                return perturb(image, label, kind, level, seed=seed + int(chosen[0]))

            shared: dict[str, Any] = {"num_classes": data.num_classes, "background": background}
            row = {"test": kind, "level": level, "dice": score_samples(model, batches, indices, **shared)}
            if kind == "rescaling":
                row["told"] = _score_told(model, batches, indices, level, **shared)
            rows.append(row)
            advance()
    return rows


def score_resolutions(
    model: nn.Module,
    data: Any,
    indices: Sequence[int],
    *,
    background: bool = False,
    advance: Callable[[], None] = lambda: None,
) -> list[dict[str, Any]]:
    """Dice on the same scenes, whole, rendered on coarser and finer grids than the model was trained on.

    Parameters
    ----------
    data
        ``samples(indices, size)``, ``size`` and ``num_classes``.
    advance
        Called after each row.

    Returns
    -------
    list of dict
        As of :func:`score_perturbations`; ``level`` is pixels over the usual number on each axis.
    """
    model.eval()
    shared: dict[str, Any] = {"num_classes": data.num_classes, "background": background}
    rows = []
    for level in RESOLUTIONS:
        size = tuple(round(level * n) for n in data.size)

        def batches(chosen: Sequence[int], size: tuple[int, ...] = size) -> tuple[Tensor, Tensor]:
            return data.samples(chosen, size)

        untold = score_samples(model, batches, indices, **shared)
        told = _score_told(model, batches, indices, level, **shared)
        rows.append({"test": "resolution", "level": level, "dice": untold, "told": told})
        advance()
    return rows
