"""Lesions found and missed: from maps of probabilities and labels to AUROC, AP, F1, sensitivity and precision.

The counting is that of ``picai_eval``, made for the detection of prostate cancer:

1. *Candidates* are cut out of a map of probabilities round its peaks: the highest voxel and all that hang together with
   it (26 neighbours) above 40 % of its probability are one candidate, whose confidence is that highest probability;
   then the next. Probabilities under ``floor`` count as 0; candidates of ``min_voxels`` or fewer are dropped, as are
   those that touch an earlier one; and there are at most ``most``.
2. *Lesions* are the connected parts of the label. Candidates and lesions are matched one to one, as many as possible,
   where their intersection over union is at least ``min_overlap`` (0.1: is the lesion found, not how well is it drawn).
   A lesion without candidate is missed; a candidate without lesion is a false alarm, unless it overlaps enough with a
   lesion that another candidate found.
3. *AUROC* asks whether cases with a lesion have the higher confidence, that of their best candidate; it exists if some
   cases have lesions and some have none. *AP*, the area under precision over recall, is over lesions of all cases.
   *F1*, *sensitivity* and *precision* are over lesions, too, with the candidates of confidence ``threshold`` and more.
4. *TP*, *FP* and *FN* are lesions found, false alarms and lesions missed over the number of cases. The paper's table
   of external validation prints such shares without saying of what.
"""

from __future__ import annotations

import contextlib
import io
import math
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from torchsonic.lab.metrics.volumes import bounding_box

__all__ = ["MEASURES", "SHARES", "extract_candidates", "find_lesions", "summarise_lesions"]

MEASURES = ("auroc", "ap", "f1", "sensitivity", "precision")
SHARES = {"tp": "found", "fp": "false_alarms", "fn": "missed"}
FLOOR, SHARE, MIN_VOXELS, MOST = 0.1, 0.4, 10, 5
MIN_OVERLAP, THRESHOLD = 0.1, 0.5
RESAMPLES, CONFIDENCE = 500, 0.95


def _counting() -> tuple[Any, Any, Any]:
    """What cuts out candidates, what matches them and what gives areas under curves."""
    try:
        with contextlib.redirect_stdout(io.StringIO()):  # it greets
            from picai_eval.eval import evaluate_case
            from picai_eval.metrics import Metrics
            from report_guided_annotation import extract_lesion_candidates
    except ImportError as error:
        raise ImportError('counting lesions needs picai_eval; run: pip install "torchsonic[medical]"') from error
    return extract_lesion_candidates, evaluate_case, Metrics


def extract_candidates(
    probability: ArrayLike, *, floor: float = FLOOR, min_voxels: int = MIN_VOXELS, most: int = MOST
) -> NDArray[np.float32]:
    """Cut a map of probabilities into candidates.

    Parameters
    ----------
    probability
        Of the lesion, in [0, 1], ``(D, H, W)``.
    floor
        Least probability that counts.
    min_voxels
        Candidates with this many voxels or fewer are dropped.
    most
        Candidates of a case, those of highest confidence.

    Returns
    -------
    NDArray
        ``(D, H, W)``: the confidence of its candidate in each voxel, and 0 outside; candidates do not touch.
    """
    extract, _, _ = _counting()
    found = _probabilities(probability)
    if not 0.0 < floor < 1.0:
        raise ValueError(f"floor must be between 0 and 1, got {floor}")
    heard = np.where(found >= floor, found, 0.0)
    candidates = np.zeros(found.shape, dtype=np.float32)
    if not heard.any():
        return candidates
    box = bounding_box(heard > 0)
    blobs, _, _ = extract(
        heard[box],
        threshold="dynamic-v2",  # the first version may end at a small spot and miss what is under it
        min_voxels_detection=min_voxels,
        num_lesions_to_extract=most,
        dynamic_threshold_factor=1 / SHARE,
    )
    candidates[box] = blobs
    return candidates


def _probabilities(values: ArrayLike) -> NDArray[np.float32]:
    found = np.asarray(values, dtype=np.float32)
    if found.ndim != 3:
        raise ValueError(f"probability must be a volume (D, H, W), got shape {found.shape}")
    if not (np.isfinite(found).all() and found.min() >= 0 and found.max() <= 1 + 1e-4):
        raise ValueError(
            f"probability must be in [0, 1], got {found.min():g} to {found.max():g}; give probabilities, not logits"
        )
    return found


def find_lesions(
    probability: ArrayLike,
    label: ArrayLike,
    *,
    min_overlap: float = MIN_OVERLAP,
    floor: float = FLOOR,
    min_voxels: int = MIN_VOXELS,
    most: int = MOST,
) -> dict[str, Any]:
    """Match the candidates of one case with its lesions.

    Parameters
    ----------
    probability
        Of the lesion, in [0, 1], ``(D, H, W)``.
    label
        Where lesions are, ``(D, H, W)``, anything but 0.
    min_overlap
        Least intersection over union of a match.
    floor, min_voxels, most
        Of :func:`extract_candidates`.

    Returns
    -------
    dict
        ``confidence`` of the case, ``lesions`` (their number) and ``findings``: ``{"lesion": bool, "confidence": float,
        "overlap": float}`` for each match, each missed lesion (of confidence 0) and each false alarm.
    """
    _, match, _ = _counting()
    truth = np.asarray(label) != 0
    candidates = extract_candidates(probability, floor=floor, min_voxels=min_voxels, most=most)
    if truth.shape != candidates.shape:
        raise ValueError(
            f"probability has shape {candidates.shape}, but label has {truth.shape}; both must be on the same grid"
        )
    if not 0.0 < min_overlap <= 1.0:
        raise ValueError(f"min_overlap must be in (0, 1], got {min_overlap}")
    results, confidence, *_ = match(candidates, truth.astype(np.int32), min_overlap=min_overlap)
    findings = [{"lesion": bool(is_lesion), "confidence": float(c), "overlap": float(o)} for is_lesion, c, o in results]
    lesions = sum(finding["lesion"] for finding in findings)
    return {"confidence": float(confidence), "lesions": lesions, "findings": findings}


def count_findings(cases: Sequence[Mapping[str, Any]], threshold: float) -> dict[str, float]:
    """Lesions found and missed and false alarms of some cases, with the rates; NaN where nothing is to be divided."""
    findings = [finding for case in cases for finding in case["findings"]]
    heard = [finding for finding in findings if finding["confidence"] >= threshold]
    hits = sum(finding["lesion"] for finding in heard)
    alarms, lesions = len(heard) - hits, sum(finding["lesion"] for finding in findings)
    return {
        "found": hits,
        "missed": lesions - hits,
        "false_alarms": alarms,
        "sensitivity": hits / lesions if lesions else math.nan,
        "precision": hits / len(heard) if heard else math.nan,
        "f1": 2 * hits / (lesions + len(heard)) if lesions or heard else math.nan,
    }


def summarise_lesions(
    cases: Mapping[str, Mapping[str, Any]], *, threshold: float = THRESHOLD, seed: int = 0, resamples: int = RESAMPLES
) -> dict[str, Any]:
    """Detection over all cases, with 95 % bootstrap intervals, and case by case.

    Parameters
    ----------
    cases
        What :func:`find_lesions` gave, by name.
    threshold
        Least confidence of a candidate that counts for F1, sensitivity and precision.
    seed, resamples
        Of the bootstrap, which draws cases with replacement.

    Returns
    -------
    dict
        ``threshold``; ``overall``, with ``{"value", "low", "high"}`` (``None`` where there is none) of each of
        :data:`MEASURES`, the counts ``lesions``, ``found``, ``missed`` and ``false_alarms``, and :data:`SHARES` of
        these, per case; and ``cases``, by name, with ``confidence``, the counts and the three rates.
    """
    if not 0.0 < threshold <= 1.0:
        raise ValueError(f"threshold must be in (0, 1], got {threshold}")
    listed = list(cases.values())
    values = _measure(listed, threshold)
    generator = np.random.default_rng(seed)
    draws: dict[str, list[float]] = {name: [] for name in MEASURES}
    for _ in range(resamples if len(listed) > 1 else 0):
        again = _measure([listed[place] for place in generator.integers(len(listed), size=len(listed))], threshold)
        for name, value in again.items():
            draws[name] += [] if math.isnan(value) else [value]
    counts = count_findings(listed, threshold)
    overall: dict[str, Any] = {name: _interval(values[name], draws[name]) for name in MEASURES}
    overall |= {"lesions": sum(case["lesions"] for case in listed)}
    overall |= {name: counts[name] for name in ("found", "missed", "false_alarms")}
    overall |= {share: counts[name] / len(listed) if listed else None for share, name in SHARES.items()}
    each: dict[str, Any] = {}
    for name, case in cases.items():
        rates = count_findings([case], threshold)
        each[name] = {"confidence": case["confidence"], "lesions": case["lesions"]}
        each[name] |= {measure: None if math.isnan(value) else value for measure, value in rates.items()}
    return {"threshold": threshold, "overall": overall, "cases": each}


def _measure(cases: Sequence[Mapping[str, Any]], threshold: float) -> dict[str, float]:
    counts = count_findings(cases, threshold)
    return {**_areas(cases), **{name: counts[name] for name in ("f1", "sensitivity", "precision")}}


def _areas(cases: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Areas under the two curves, NaN where a curve does not exist."""
    _, _, make_metrics = _counting()
    metrics = make_metrics(
        lesion_results={
            place: [(int(f["lesion"]), f["confidence"], f["overlap"]) for f in case["findings"]]
            for place, case in enumerate(cases)
        },
        case_target={place: int(case["lesions"] > 0) for place, case in enumerate(cases)},
        case_pred={place: case["confidence"] for place, case in enumerate(cases)},
    )
    ill = sum(case["lesions"] > 0 for case in cases)
    with warnings.catch_warnings():
        # It asks scikit-learn for curves by names of arguments that some versions call old.
        warnings.simplefilter("ignore", category=FutureWarning)
        return {
            "auroc": float(metrics.auroc) if 0 < ill < len(cases) else math.nan,
            "ap": float(metrics.AP) if ill else math.nan,
        }


def _interval(value: float, draws: Sequence[float]) -> dict[str, float | None]:
    if math.isnan(value) or not draws:
        return {"value": None if math.isnan(value) else value, "low": None, "high": None}
    low, high = np.quantile(draws, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return {"value": value, "low": float(low), "high": float(high)}
