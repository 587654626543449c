"""Results of a study: values over seeds, which models count as trained, and the headline numbers."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any

from torchsonic.lab.metrics.results import find_value
from torchsonic.lab.studies.definition import Measure, Number, Study
from torchsonic.lab.studies.plan import Planned

__all__ = ["Estimate", "Outcome", "estimate", "find_numbers", "find_outcomes", "ranks"]

STEEP = 0.05
"""Drop of the loss from the third to the last quarter of training, relative to its initial value, above which a model
counts as not trained: the learning-rate decay has flattened the curve of every trained model by then."""
LEFT_CHANCE = 1 / 3
"""Fraction of the way from chance to a perfect score below which a model has learned nothing."""
STUDENT = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228),
    *(2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086),
    *(2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042),
)
"""Student's factors for 95 % intervals, for 1 to 30 degrees of freedom; 2 is used beyond."""


@dataclass(frozen=True)
class Estimate:
    """A mean over seeds or patients with half the width of its 95 % interval; a single value has no interval."""

    mean: float
    half: float | None
    count: int


def estimate(values: Sequence[float]) -> Estimate | None:
    """Mean of independent values with Student's interval; ``None`` if there are no values.

    Examples
    --------
    >>> estimate([1.0, 2.0, 3.0]).half > 2.48
    True
    """
    if not values:
        return None
    count = len(values)
    factor = STUDENT[count - 2] if 2 <= count <= len(STUDENT) + 1 else 2.0
    return Estimate(fmean(values), factor * stdev(values) / math.sqrt(count) if count > 1 else None, count)


@dataclass(frozen=True)
class Outcome:
    """The finished final runs of a model."""

    model: str
    runs: tuple[tuple[Planned, Mapping[str, Any]], ...]
    """With their results; empty ones diverged."""
    planned: int

    @property
    def problem(self) -> str:
        """Why the model is not ranked; empty if it is."""
        study = self.runs[0][0].study if self.runs else None
        if study is None:
            return "not run yet"
        if not all(results for _, results in self.runs):
            return "not trained: diverged"
        measure = study.measures[0]
        path = measure.paths.get(self.model, measure.path)
        found = [value for _, results in self.runs if (value := find_value(results, path)) is not None]
        if not found or fmean(found) - measure.chance < LEFT_CHANCE * (1 - measure.chance):
            return "not trained at this budget: close to chance"
        falls = [_fall([line["loss"] for line in run.log() if "loss" in line]) for run, _ in self.runs]
        if fmean(falls) > STEEP:
            return "not trained at this budget: the loss is still falling steeply"
        return ""

    def values(self, measure: Measure) -> dict[Any, float]:
        """Values of a measure by seed, or by patient (the mean over the patient's cases and all seeds)."""
        if measure.only and self.model not in measure.only:
            return {}
        found: dict[Any, list[float]] = {}
        for run, results in self.runs:
            parts: Mapping[Any, Any] = {run.seed: results}
            if measure.patient:
                parts = {row["case"]: row for row in results.get("cases", ())}
            for name, part in parts.items():
                if (value := measure.of(part, self.model)) is not None:
                    owner = re.search(measure.patient, str(name)) if measure.patient else None
                    found.setdefault(owner[0] if owner else name, []).append(value)
        return {name: fmean(each) for name, each in found.items()}

    def estimate(self, measure: Measure) -> Estimate | None:
        """Mean and interval of a measure over seeds or patients."""
        return estimate(list(self.values(measure).values()))


def _fall(losses: Sequence[float]) -> float:
    """How far the last quarter of a curve lies below the third, relative to its initial value."""
    quarter = len(losses) // 4
    if quarter == 0:
        return math.inf
    first = fmean(losses[: max(1, len(losses) // 20)])
    return (fmean(losses[-2 * quarter : -quarter]) - fmean(losses[-quarter:])) / max(first, 1e-9)


def find_outcomes(study: Study, runs: Sequence[Planned]) -> dict[str, Outcome]:
    """The final runs of each model, in the order of the study."""
    outcomes = {}
    for model in study.models:
        own = [run for run in runs if run.model == model and run.part == "final"]
        done = tuple((run, results) for run in own if run.is_ready and (results := run.results()) is not None)
        outcomes[model] = Outcome(model, done, len(own))
    return outcomes


def ranks(outcomes: Mapping[str, Outcome], measure: Measure) -> dict[str, int]:
    """Ranks of the trained models that are ranked, 1 for the best; equal values share a rank."""
    placed = {m: o for m, o in outcomes.items() if not o.problem and o.runs[0][0].study.models[m].ranked}
    means = {model: measure.sign * e.mean for model, o in placed.items() if (e := o.estimate(measure))}
    return {model: 1 + sum(other > mean for other in means.values()) for model, mean in means.items()}


def find_numbers(study: Study, outcomes: Mapping[str, Outcome]) -> list[dict[str, Any]]:
    """Headline numbers of the study, each with its interval, seeds, steps, command, commit and date."""
    found = []
    for number in study.numbers:
        chosen = [outcomes[model] for model in number.models]
        rivals = [outcomes[model] for model in study.models if study.models[model].ranked]
        needed = [*chosen, *rivals] if number.count == "rows_first" else chosen
        if all(outcome.runs and len(outcome.runs) == outcome.planned for outcome in needed):
            found.append({"name": number.name, **_value(study, number, outcomes), **_origin(chosen)})
    return found


def _value(study: Study, number: Number, outcomes: Mapping[str, Outcome]) -> dict[str, Any]:
    measure = next((m for m in study.measures if m.title == number.measure), study.measures[0])
    if number.count.startswith("rows"):
        rows = [measure for measure in study.measures if measure.row] or study.measures
        return {"value": sum(_counts(number, m, outcomes) for m in rows), "interval": None, "of": len(rows)}
    chosen = [outcomes[model] for model in number.models]
    values = chosen[0].values(measure)
    if number.count == "difference":  # seeds see the same samples in the same order, and patients are the same
        second = chosen[1].values(measure)
        values = {seed: value - second[seed] for seed, value in values.items() if seed in second}
    each = estimate(list(values.values()))
    interval = None if each is None or each.half is None else [each.mean - each.half, each.mean + each.half]
    trained = not any(outcome.problem for outcome in chosen)
    return {"value": each.mean if each else None, "interval": interval, "model": number.models[0], "trained": trained}


def _counts(number: Number, measure: Measure, outcomes: Mapping[str, Outcome]) -> bool:
    """Whether a measure counts for one of the three numbers of rows."""
    chosen = [outcomes[model] for model in number.models]
    means = {o.model: e.mean for o in chosen if not o.problem and (e := o.estimate(measure))}
    if number.count == "rows_first":
        return any(ranks(outcomes, measure).get(model) == 1 for model in means)
    if not measure.paper or not means:
        return False
    if number.count == "rows_at_paper_maximum":  # to the printed digits
        highest = max(measure.sign * value for value in measure.paper.values())
        return any(measure.sign * round(mean, 2) >= highest for mean in means.values())
    return any(abs(round(means[m], 2) - measure.paper[m]) <= number.near + 1e-9 for m in means if m in measure.paper)


def _origin(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    pairs = [pair for outcome in outcomes for pair in outcome.runs]
    origins = [results["run"] for _, results in pairs if results]
    commits = {c for origin in origins for c in (str(origin["commit"]), *origin.get("earlier_commits", ()))}
    return {
        "seeds": sorted({run.seed for run, _ in pairs}),
        "steps": sorted({run.config().training.steps for run, _ in pairs}),
        "command": origins[0]["command"] if origins else None,
        "commit": sorted(commits),
        "dirty": any(origin["dirty"] for origin in origins),
        "date": max((origin["date"] for origin in origins), default=None),
    }
