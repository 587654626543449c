"""Results of an evaluation on volumes: scores and costs of each model on each case, and comparisons."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from torchsonic.lab.metrics.detection import summarise_lesions
from torchsonic.lab.metrics.results import mean_known
from torchsonic.lab.metrics.volumes import bootstrap_mean, mean_of, summarise
from torchsonic.lab.runs.provenance import activity_warning


@dataclass(frozen=True, kw_only=True)
class CaseResult:
    """One model on one case."""

    scores: Sequence[Mapping[str, Any]]
    """As :func:`torchsonic.lab.metrics.volumes.score_case` gives them."""
    seconds: float | None = None
    """Of the prediction."""
    peak_bytes: int | None = None
    """Allocated at the same time during the prediction, at most."""
    lesions: Mapping[str, Any] | None = None
    """As :func:`torchsonic.lab.metrics.detection.find_lesions` gives them."""

    def mean(self, measure: str) -> float:
        """Over the classes; NaN if none has a score."""
        return mean_of(row[measure] for row in self.scores)


@dataclass(frozen=True, kw_only=True)
class ModelResult:
    """One model, given the spacing or not, on its cases."""

    name: str
    cases: dict[str, CaseResult] = field(default_factory=dict)
    parameters: int | None = None
    source: str = ""
    """Folder of the run or of the predictions."""
    origin: Mapping[str, Any] = field(default_factory=dict)
    """Of the run: command, commit, seed and machine."""

    def summary(self) -> dict[str, Any]:
        """Means over cases with intervals, see :func:`torchsonic.lab.metrics.volumes.summarise`."""
        return summarise([case.scores for case in self.cases.values()])

    def lesions(self, threshold: float) -> dict[str, Any] | None:
        """Detection over all cases, if it was asked for."""
        found = {name: case.lesions for name, case in self.cases.items() if case.lesions is not None}
        return summarise_lesions(found, threshold=threshold) if found else None

    def seconds(self) -> float | None:
        """Mean over the cases that were timed."""
        return mean_known(case.seconds for case in self.cases.values())

    def peak_bytes(self) -> int | None:
        """Of the case that needed most."""
        return max((case.peak_bytes for case in self.cases.values() if case.peak_bytes is not None), default=None)


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """Everything a report shows."""

    title: str
    classes: Sequence[str]
    """Names of the classes 1 to K - 1."""
    models: Sequence[ModelResult]
    pictures: Mapping[str, bytes]
    """WebP by name of the case."""
    spacings: Mapping[str, tuple[float, ...]]
    """Millimetres along D, H and W of each case."""
    tolerance: float
    skipped: Sequence[tuple[str, str]] = ()
    """Cases left out, with the reason."""
    threshold: float = 0.5
    """Of confidence, for lesions."""
    run: Mapping[str, Any]
    """Command, commit and machine of this evaluation."""

    @property
    def cases(self) -> list[str]:
        """Names of all cases, the worst first."""
        return worst_first(self.models)

    @property
    def is_timed(self) -> bool:
        """Whether predictions were made here, rather than read from files."""
        return any(model.seconds() is not None for model in self.models)


def worst_first(models: Sequence[ModelResult]) -> list[str]:
    """Cases by their Dice, averaged over classes and models; those without any score at the end."""
    names = sorted({name for model in models for name in model.cases})
    means = {name: mean_of(m.cases[name].mean("dice") for m in models if name in m.cases) for name in names}
    return sorted(names, key=lambda name: (math.isnan(means[name]), means[name], name))


def compare(models: Sequence[ModelResult]) -> list[dict[str, Any]]:
    """Each further model against the first, and, for a model tested both ways, the effect of giving it the spacing.

    Mean differences on the cases that both have, which share their difficulty: ``first`` less ``second``.
    """
    found = []
    for before, second in pairwise(models):
        first = before if before.source == second.source else models[0]
        pairs = [(case, second.cases[name]) for name, case in first.cases.items() if name in second.cases]
        if pairs:
            dice, nsd = (bootstrap_mean(a.mean(key) - b.mean(key) for a, b in pairs) for key in ("dice", "nsd"))
            found.append({"first": first.name, "second": second.name, "dice": dice, "nsd": nsd})
    return found


def case_warnings(evaluation: Evaluation) -> list[str]:
    """Warnings on what makes models hard to compare."""
    found = []
    if len({frozenset(model.cases) for model in evaluation.models}) > 1:
        counts = "; ".join(f"{model.name}: {len(model.cases)}" for model in evaluation.models)
        found.append(f"The models were not scored on the same cases ({counts}): compare differences, not means.")
    few = min((len(model.cases) for model in evaluation.models), default=0)
    if 0 < few < 5:
        found.append(f"Only {few} case{'s' * (few > 1)}: the intervals are too narrow.")
    if evaluation.skipped:
        count = len(evaluation.skipped)
        were, they = ("case was", "it is") if count == 1 else ("cases were", "they are")
        found.append(f"{count} {were} left out; {they} listed at the end.")
    busy = activity_warning(dict(evaluation.run)).strip() if evaluation.is_timed else ""
    return [*found, busy] if busy else found


def as_data(evaluation: Evaluation) -> dict[str, Any]:
    """Everything but the pictures, for programs."""
    return {
        "title": evaluation.title,
        "run": dict(evaluation.run),
        "classes": list(evaluation.classes),
        "tolerance_mm": evaluation.tolerance,
        "models": [_model_data(model, evaluation.threshold) for model in evaluation.models],
        "differences": compare(evaluation.models),
        "cases": [{"case": name, "spacing_mm": evaluation.spacings[name]} for name in evaluation.cases],
        "skipped": [{"case": name, "reason": reason} for name, reason in evaluation.skipped],
    }


def _model_data(model: ModelResult, threshold: float) -> dict[str, Any]:
    def case_data(case: CaseResult) -> dict[str, Any]:
        costs = {"seconds": case.seconds, "peak_bytes": case.peak_bytes}
        return {"scores": list(case.scores), **costs, "findings": (case.lesions or {}).get("findings")}

    return {
        "name": model.name,
        "source": model.source,
        "parameters": model.parameters,
        "seconds_per_case": model.seconds(),
        "peak_bytes": model.peak_bytes(),
        "summary": model.summary(),
        "lesions": model.lesions(threshold),
        "run": dict(model.origin),
        "cases": {name: case_data(case) for name, case in model.cases.items()},
    }
