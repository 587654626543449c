"""Metrics as pure functions of counts, so that batches and processes add up."""

from __future__ import annotations

import torch
from torch import Tensor

from torchsonic.lab.data.labels import IGNORE


def confusion(prediction: Tensor, label: Tensor, num_classes: int) -> Tensor:
    """Pixels by true class (row) and predicted class (column), ``(K, K)``; ignored labels are left out.

    Shapes: ``prediction`` and ``label`` alike, integers.
    """
    heard = label != IGNORE
    pairs = label[heard] * num_classes + prediction[heard]
    return torch.bincount(pairs, minlength=num_classes**2).view(num_classes, num_classes)


def dice_per_class(counts: Tensor) -> Tensor:
    r"""Dice score ``2 TP / (2 TP + FP + FN)`` of each class, ``(K, K)`` to ``(K,)``; NaN for one that never occurs."""
    counts = counts.double()
    hits = counts.diagonal()
    total = counts.sum(0) + counts.sum(1)
    return torch.where(total > 0, 2 * hits / total.clamp_min(1), torch.nan)


def mean_dice(counts: Tensor, *, background: bool) -> float:
    """Mean over classes, of those that occur; class 0 only with ``background``.

    Examples
    --------
    >>> counts = torch.tensor([[8, 0], [1, 1]])
    >>> mean_dice(counts, background=False)
    0.6666666666666666
    """
    scores = dice_per_class(counts)
    return float((scores if background else scores[1:]).nanmean())
