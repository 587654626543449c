"""Segmented pictures against their masks: Dice and boundary score of each class, average precision of objects."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from torchsonic.lab.metrics.volumes import score_case

__all__ = ["THRESHOLDS", "average_precision", "score_mask"]

THRESHOLDS = (0.5, 0.6, 0.7, 0.8, 0.9)
"""Intersections over union above which an object counts as found."""


def average_precision(
    prediction: NDArray[np.integer], label: NDArray[np.integer], thresholds: Sequence[float] = THRESHOLDS
) -> list[float]:
    """``TP / (TP + FP + FN)`` of objects at each threshold; NaN where there is no object in either.

    An object is found if its intersection over union with one of the prediction is more than the threshold. From 0.5 on
    there is at most one such.
    """
    if min(thresholds) < 0.5:
        raise ValueError(f"thresholds must be at least 0.5, so that pairs are unique, got {tuple(thresholds)}")
    found, true = (np.unique(part, return_inverse=True) for part in (prediction, label))
    counts = np.zeros((len(found[0]), len(true[0])))
    np.add.at(counts, (found[1].ravel(), true[1].ravel()), 1)
    union = counts.sum(1, keepdims=True) + counts.sum(0, keepdims=True) - counts
    overlap = (counts / union)[found[0] > 0][:, true[0] > 0]
    hits = [int((overlap > threshold).sum()) for threshold in thresholds]
    return [hit / (sum(overlap.shape) - hit) if sum(overlap.shape) else math.nan for hit in hits]


def score_mask(
    prediction: NDArray[np.integer], label: NDArray[np.integer], *, instances: bool, **options: Any
) -> dict[str, list[float | None]]:
    """Scores of each class but 0, with the options of ``score_case``; objects are one class, and have a precision."""
    one, other = (part > 0 if instances else part for part in (prediction, label))
    rows = score_case(one, other, **{**options, **({"num_classes": 2} if instances else {})})
    scores = {"dice": [row["dice"] for row in rows], "boundary": [row["nsd"] for row in rows]}
    if instances:
        scores["precision"] = average_precision(prediction, label)
    return {name: [None if math.isnan(value) else value for value in values] for name, values in scores.items()}
