"""The tables of a report on volumes as text, alike for HTML and Markdown."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torchsonic import __version__
from torchsonic.lab.metrics.detection import MEASURES as LESION_MEASURES
from torchsonic.lab.report.document import MINUS, NONE
from torchsonic.lab.report.volumes.results import CaseResult, Difference, Evaluation, ModelResult

__all__ = [
    "Cell",
    "about_line",
    "case_rows",
    "case_words",
    "cost_headers",
    "difference_rows",
    "explanations",
    "lesion_headers",
    "lesion_rows",
    "score_groups",
    "score_rows",
    "spacing_words",
]

COSTS = ("parameters, M", "s per case", "peak, MB")
MEASURES = {"dice": "Dice", "nsd": "NSD"}
LESION_WORDS = {"auroc": "AUROC", "ap": "AP", "f1": "F1", "sensitivity": "sensitivity", "precision": "precision"}


@dataclass(frozen=True)
class Cell:
    """A number, its interval, and whether it is the best of its column."""

    text: str
    interval: str = ""
    best: bool = False


def score_groups(evaluation: Evaluation) -> list[str]:
    """Headings of the pairs of columns: the mean over classes where there are several, then each class."""
    return [*(["mean"] if len(evaluation.classes) > 1 else []), *evaluation.classes]


def cost_headers(evaluation: Evaluation) -> tuple[str, ...]:
    """Of what a model costs, if anything is known of it."""
    known = (words for model in evaluation.models for words in _costs(model))
    return COSTS if any(words != NONE for words in known) else ()


def score_rows(evaluation: Evaluation) -> list[tuple[str, list[Cell], list[str]]]:
    """For each model its name, Dice and NSD of each of :func:`score_groups`, and what :func:`cost_headers` name."""
    summaries = [model.summary() for model in evaluation.models]
    columns = [
        [_estimate(entry[measure]) for entry in entries]
        for entries in zip(*[_groups(summary) for summary in summaries], strict=True)
        for measure in MEASURES
    ]
    columns = [_mark_best(column) for column in columns]
    return [
        (model.name, [column[place] for column in columns], _costs(model)[: len(cost_headers(evaluation))])
        for place, model in enumerate(evaluation.models)
    ]


def _groups(summary: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [*([summary["mean"]] if len(summary["classes"]) > 1 else []), *summary["classes"]]


def _estimate(found: Mapping[str, Any], *, key: str = "mean", signed: bool = False) -> Cell:
    def words(value: float) -> str:
        text = f"{abs(value):.3f}"
        if not signed:
            return text
        return ("" if float(text) == 0 else "+" if value > 0 else MINUS) + text

    if found[key] is None:
        return Cell(NONE)
    interval = "" if found["low"] is None else f"{words(found['low'])} to {words(found['high'])}"
    return Cell(words(found[key]), interval)


def _mark_best(column: Sequence[Cell]) -> list[Cell]:
    scores = [float(cell.text) for cell in column if cell.text != NONE]
    if len(scores) < 2:
        return list(column)
    return [Cell(c.text, c.interval, c.text != NONE and float(c.text) == max(scores)) for c in column]


def _costs(model: ModelResult) -> list[str]:
    seconds, peak = model.seconds(), model.peak_bytes()
    return [
        NONE if model.parameters is None else f"{model.parameters / 1e6:.3f}",
        NONE if seconds is None else _short(seconds),
        NONE if peak is None else f"{peak / 1e6:.0f}",
    ]


def _short(seconds: float) -> str:
    return f"{seconds:.2f}" if seconds < 10 else f"{seconds:.1f}"


def difference_rows(differences: Sequence[Difference]) -> list[tuple[str, list[Cell], str]]:
    """What is subtracted from what, mean differences of Dice and NSD, and the number of cases both have."""
    return [
        (
            f"{difference.first} {MINUS} {difference.second}",
            [_estimate(found, signed=True) for found in (difference.dice, difference.nsd)],
            str(difference.dice["count"]),
        )
        for difference in differences
    ]


def case_rows(evaluation: Evaluation) -> list[tuple[str, str, list[str]]]:
    """For each case, the worst first: name, spacing, and mean Dice of each model."""
    return [
        (
            name,
            spacing_words(evaluation.spacings[name]),
            [NONE if name not in m.cases else _number(m.cases[name].mean("dice")) for m in evaluation.models],
        )
        for name in evaluation.cases
    ]


def case_words(result: CaseResult) -> tuple[list[str], list[str]]:
    """Dice and NSD of each class in turn, and seconds and peak memory, of one case."""
    scores = [_number(row[measure]) for row in result.scores for measure in MEASURES]
    seconds = NONE if result.seconds is None else _short(result.seconds)
    return scores, [seconds, NONE if result.peak_bytes is None else f"{result.peak_bytes / 1e6:.0f}"]


def _number(value: float | None) -> str:
    return NONE if value is None or math.isnan(value) else f"{value:.3f}"


def spacing_words(spacing: Sequence[float]) -> str:
    """Millimetres along D, H and W."""
    return " \u00d7 ".join(f"{step:.3g}" for step in spacing) + " mm"


def lesion_headers() -> list[str]:
    """Of :func:`lesion_rows`, without the model's."""
    return [LESION_WORDS[name] for name in LESION_MEASURES] + ["lesions", "found", "missed", "false alarms"]


def lesion_rows(evaluation: Evaluation) -> list[tuple[str, list[Cell]]]:
    """For each model, detection over all cases."""
    rows = []
    for model in evaluation.models:
        found = model.lesions(evaluation.threshold)
        if found is not None:
            overall = found["overall"]
            cells = [_estimate(overall[name], key="value") for name in LESION_MEASURES]
            cells += [Cell(str(overall[name])) for name in ("lesions", "found", "missed", "false_alarms")]
            rows.append((model.name, cells))
    return rows


def about_line(evaluation: Evaluation) -> str:
    """How many cases and models, made when and by what."""
    cases, models = len(evaluation.cases), len(evaluation.models)
    skipped = f", {len(evaluation.skipped)} left out" if evaluation.skipped else ""
    return (
        f"{cases} {'case' if cases == 1 else 'cases'}{skipped}; {models} {'row' if models == 1 else 'rows'} of scores. "
        f"Written {evaluation.run['date']} by torchsonic {__version__}."
    )


def explanations(evaluation: Evaluation) -> list[str]:
    """What the numbers are."""
    found = [
        "Means over cases; the interval holds 95 % of the means of cases drawn again with replacement (2000 draws, "
        "seed 0). Bold is the best of a column.",
        "Dice: 2 |P and L| / (|P| + |L|) of the voxels of a class in prediction and label. NSD: the part of both "
        f"borders that is within {evaluation.tolerance:g} mm of the other, counted in border voxels (MONAI's surface "
        "Dice). A class that is in neither has no score in that case; one that is in only one of the two scores 0. The "
        "mean is over the classes of a case first.",
    ]
    if any(model.seconds() is not None for model in evaluation.models):
        found.append(
            "Time is that of the whole prediction of a case, after a first one that warms up. Peak memory is the most "
            "that PyTorch had allocated at one time during it, in the case that needed most, without the network and "
            "the image."
        )
    if any(case.lesions is not None for model in evaluation.models for case in model.cases.values()):
        found.append(
            "Lesions: candidates are cut out of the probabilities round their peaks and matched with lesions at an "
            "intersection over union of at least 0.1; F1, sensitivity and precision count candidates of confidence "
            f"{evaluation.threshold:g} and more. AUROC asks which cases have a lesion at all; AP is over lesions."
        )
    return found
