"""Segmented volumes against their labels: Dice and surface Dice of each class and case, means with their uncertainty.

Volumes are ``(D, H, W)``, pictures ``(H, W)``, spacing in millimetres in the same order. Class 0 is background and has
no score. A class that is neither in the prediction nor in the label has no score in that case (NaN), and the case does
not count for its mean; one that is in only one of the two scores 0.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from torchsonic.lab.data.volumes.preparation import import_ndimage

__all__ = ["TOLERANCE", "bootstrap_mean", "score_case", "summarise"]

TOLERANCE = 2.0
"""Millimetres within which surfaces agree."""
SLACK = 1e-4
"""Part of the tolerance by which it may be passed: files hold spacing in float32, and 2 x 1.0000001 mm are 2 mm."""
RESAMPLES, CONFIDENCE = 2000, 0.95
MEASURES = ("dice", "nsd")


def score_case(
    prediction: ArrayLike,
    label: ArrayLike,
    spacing: Sequence[float],
    *,
    num_classes: int,
    tolerance: float = TOLERANCE,
    regions: Sequence[Sequence[int]] = (),
) -> list[dict[str, Any]]:
    r"""Scores of each class of one case.

    With P and L the voxels of a class in prediction and label, S their border voxels (those with a face neighbour
    outside the class, or at the edge of the volume) and d the distance between voxel centres in millimetres,

    .. math::
        \mathrm{Dice} = \frac{2 |P \cap L|}{|P| + |L|}, \qquad
        \mathrm{NSD} = \frac{|\{p \in S_P: d(p, S_L) \le \tau\}| + |\{l \in S_L: d(l, S_P) \le \tau\}|}
            {|S_P| + |S_L|}.

    The second is that of MONAI's ``SurfaceDiceMetric``, which counts border voxels, not areas.

    Parameters
    ----------
    prediction, label
        Classes 0 to K - 1, ``(D, H, W)`` or ``(H, W)``.
    spacing
        Millimetres along these axes.
    num_classes
        K, background included.
    tolerance
        Distance :math:`\tau` in millimetres within which surfaces agree.
    regions
        Sets of classes, each scored as one, instead of single classes; they may overlap.

    Returns
    -------
    list of dict
        ``{"class": k, "dice": float, "nsd": float}`` for k = 1 .. K - 1, or for region k = 1, 2 and so on.
    """
    predicted, true = _classes(prediction, "prediction", num_classes), _classes(label, "label", num_classes)
    if predicted.shape != true.shape:
        raise ValueError(
            f"prediction has shape {predicted.shape}, but label has {true.shape}; both must be on the same grid"
        )
    steps = _steps(spacing, true.ndim)
    if not (math.isfinite(tolerance) and tolerance > 0):
        raise ValueError(f"tolerance must be positive and finite, got {tolerance}")
    rows = []
    for number, members in enumerate(regions or [(k,) for k in range(1, num_classes)], start=1):
        in_prediction, in_label = np.isin(predicted, members), np.isin(true, members)
        total = int(in_prediction.sum()) + int(in_label.sum())
        if not total:
            rows.append({"class": number, "dice": math.nan, "nsd": math.nan})
            continue
        dice = 2 * int((in_prediction & in_label).sum()) / total
        rows.append({"class": number, "dice": dice, "nsd": _surface_dice(in_prediction, in_label, steps, tolerance)})
    return rows


def _classes(values: ArrayLike, name: str, num_classes: int) -> NDArray[np.integer]:
    found = np.asarray(values)
    if found.ndim not in (2, 3):
        raise ValueError(f"{name} must be a volume (D, H, W) or a picture (H, W), got shape {found.shape}")
    if not found.size:
        raise ValueError(f"{name} is empty: its shape is {found.shape}")
    whole = found.astype(np.int64)
    if not np.array_equal(whole, found):
        raise ValueError(f"{name} must contain integer classes; give labels, not probabilities")
    low, high = int(whole.min()), int(whole.max())
    if low < 0 or high >= num_classes:
        wrong = low if low < 0 else high
        raise ValueError(f"{name} contains class {wrong}, but there are only classes 0 to {num_classes - 1}")
    return whole


def _steps(spacing: Sequence[float], axes: int) -> list[float]:
    steps = [float(step) for step in spacing]
    if len(steps) != axes or not all(math.isfinite(step) and step > 0 for step in steps):
        raise ValueError(f"spacing must be {axes} positive numbers in mm, got {spacing}")
    return steps


def _surface_dice(
    prediction: NDArray[np.bool_], label: NDArray[np.bool_], spacing: Sequence[float], tolerance: float
) -> float:
    """Of one class that is in at least one of the two volumes."""
    if not prediction.any() or not label.any():
        return 0.0
    ndimage = import_ndimage()
    box = bounding_box(prediction | label)
    borders = [mask[box] & ~ndimage.binary_erosion(mask[box]) for mask in (prediction, label)]
    reach = (1 + SLACK) * tolerance
    near = [ndimage.distance_transform_edt(~border, sampling=spacing) <= reach for border in borders]
    agree = (borders[0] & near[1]).sum() + (borders[1] & near[0]).sum()
    return float(agree / sum(border.sum() for border in borders))


def bounding_box(mask: NDArray[np.bool_]) -> tuple[slice, ...]:
    """The smallest box round some voxels: distances between them do not depend on what lies outside."""
    axes = set(range(mask.ndim))
    places = [np.flatnonzero(mask.any(axis=tuple(axes - {axis}))) for axis in sorted(axes)]
    return tuple(slice(int(found[0]), int(found[-1]) + 1) for found in places)


def summarise(
    cases: Mapping[str, Sequence[Mapping[str, Any]]] | Iterable[Sequence[Mapping[str, Any]]],
) -> dict[str, Any]:
    """Means over cases, of what :func:`score_case` gave for each (by name or not), with 95 % bootstrap intervals.

    Returns
    -------
    dict
        ``cases`` (their number), ``classes`` (a list of ``{"class": k, "dice": .., "nsd": ..}``) and ``mean``
        (``{"dice": .., "nsd": ..}``, of the mean over classes in each case); each score as :func:`bootstrap_mean`
        gives it.
    """
    tables = list(cases.values() if isinstance(cases, Mapping) else cases)
    classes = [[row["class"] for row in table] for table in tables]
    if any(found != classes[0] for found in classes):
        raise ValueError(f"cases must have the same classes, got {sorted(set(map(tuple, classes)))}")
    scores = {measure: np.array([[row[measure] for row in table] for table in tables], float) for measure in MEASURES}
    each = [
        {"class": number, **{m: bootstrap_mean(found[:, place]) for m, found in scores.items()}}
        for place, number in enumerate(classes[0] if classes else [])
    ]
    mean = {m: bootstrap_mean(map(mean_of, found)) for m, found in scores.items()}
    return {"cases": len(tables), "classes": each, "mean": mean}


def mean_of(values: Iterable[float]) -> float:
    """Mean of the numbers that are there; NaN of none.

    Examples
    --------
    >>> mean_of([0.5, float("nan"), 1.0])
    0.75
    """
    found = [float(value) for value in values if not math.isnan(value)]
    return math.fsum(found) / len(found) if found else math.nan


def bootstrap_mean(values: Iterable[float], *, seed: int = 0) -> dict[str, Any]:
    """Mean and 95 % percentile bootstrap interval of independent numbers, of which NaN are left out.

    Returns
    -------
    dict
        ``mean``, ``low``, ``high`` and ``count``; without numbers ``mean`` is ``None``, with one there is no interval.

    Examples
    --------
    >>> bootstrap_mean([0.5, 0.5, 0.5])
    {'mean': 0.5, 'low': 0.5, 'high': 0.5, 'count': 3}
    """
    found = np.array([float(value) for value in values], dtype=np.float64)
    found = found[~np.isnan(found)]
    if not len(found):
        return {"mean": None, "low": None, "high": None, "count": 0}
    if len(found) == 1:
        return {"mean": float(found[0]), "low": None, "high": None, "count": 1}
    chosen = np.random.default_rng(seed).integers(len(found), size=(RESAMPLES, len(found)))
    low, high = np.quantile(found[chosen].mean(axis=1), [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return {"mean": float(found.mean()), "low": float(low), "high": float(high), "count": len(found)}
