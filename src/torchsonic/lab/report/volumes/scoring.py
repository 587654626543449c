"""Predictions against labels, case by case, whoever made them: what runs and folders of files have in common."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from torchsonic.lab.data.volumes import CaseError, Volume
from torchsonic.lab.metrics.volumes import TOLERANCE, score_case
from torchsonic.lab.report.volumes.overlay import draw_case
from torchsonic.lab.report.volumes.results import CaseResult, Evaluation, ModelResult
from torchsonic.lab.training.progress import counting_progress

__all__ = ["Answer", "Contender", "Scoring", "check_lesions", "class_names", "number_classes", "score_cases"]


Answer = tuple[NDArray[np.int16], dict[str, Any]]
"""Labels of a case, and what else :class:`CaseResult` is to know of it."""


@dataclass(frozen=True, kw_only=True)
class Scoring:
    """What is scored and shown."""

    classes: Sequence[str] = ()
    """Names of the classes 1 to K - 1; by default nnU-Net's ``dataset.json`` says them, or their numbers do."""
    lesion_class: int | None = None
    """Class whose lesions are counted; see :mod:`torchsonic.lab.metrics.detection`."""
    threshold: float = 0.5
    """Of confidence, for lesions."""
    tolerance: float = TOLERANCE
    """Millimetres within which surfaces agree."""
    pictures: bool = True
    keep_going: bool = False
    """Leave out bad cases instead of raising."""
    show: bool = True
    """Whether progress is shown."""


@dataclass(frozen=True)
class Contender:
    """A row of the table."""

    name: str
    predict: Callable[[Volume], Answer | None]
    """``None`` for a case that it is not asked for."""
    facts: Mapping[str, Any]
    """What else :class:`ModelResult` is to know of it."""


def score_cases(
    readers: Mapping[str, Callable[[], Volume]],
    contenders: Sequence[Contender],
    classes: Sequence[str],
    scoring: Scoring,
    *,
    title: str,
    run: Mapping[str, Any],
    skipped: Sequence[tuple[str, str]] = (),
    on_images: bool = True,
) -> Evaluation:
    """Score every case and draw it.

    Parameters
    ----------
    readers
        What reads each case, by name; a bad one raises :class:`CaseError`.
    skipped
        Cases that were left out before, with the reason.
    on_images
        Whether the volumes have images to draw on.
    """
    left_out, drawn = list(skipped), {}
    spacings: dict[str, tuple[float, ...]] = {}
    results: dict[str, dict[str, CaseResult]] = {contender.name: {} for contender in contenders}
    with counting_progress("scoring", len(readers) * len(contenders), show=scoring.show) as advance:
        for name, read in readers.items():
            found: dict[str, Answer] = {}
            try:
                volume = read()
                for contender in contenders:
                    if (answer := contender.predict(volume)) is not None:
                        found[contender.name] = answer
                    advance()
            except CaseError as error:
                if not scoring.keep_going:
                    raise
                left_out.append((name, str(error)))
                continue
            spacings[name] = volume.spacing
            for key, answer in found.items():
                results[key][name] = _score(answer, volume, len(classes) + 1, scoring.tolerance)
            if scoring.pictures:
                drawn[name] = _draw(found, volume, classes, on_images)
    if not spacings:
        raise ValueError(f"no case is left of {len(readers)}; the first: {left_out[len(skipped)][1]}")
    return Evaluation(
        title=title,
        classes=classes,
        models=[ModelResult(name=c.name, cases=results[c.name], **c.facts) for c in contenders],
        pictures=drawn,
        spacings=spacings,
        tolerance=scoring.tolerance,
        skipped=left_out,
        lesion_class=scoring.lesion_class,
        threshold=scoring.threshold,
        run=run,
    )


def _score(answer: Answer, volume: Volume, num_classes: int, tolerance: float) -> CaseResult:
    assert volume.label is not None
    labels, facts = answer
    scores = score_case(labels, volume.label, volume.spacing, num_classes=num_classes, tolerance=tolerance)
    return CaseResult(scores=scores, **facts)


def _draw(found: Mapping[str, Answer], volume: Volume, classes: Sequence[str], on_image: bool) -> bytes:
    assert volume.label is not None
    guesses = {key: labels for key, (labels, _) in found.items()}
    return draw_case(volume.image[0] if on_image else None, volume.label, guesses, volume.spacing, classes)


def check_lesions(scoring: Scoring, classes: Sequence[str]) -> None:
    """Refuse a class of lesions that there is not."""
    if scoring.lesion_class is not None and not 1 <= scoring.lesion_class <= len(classes):
        raise ValueError(f"lesions={scoring.lesion_class} is none of the classes 1 to {len(classes)}")


def class_names(given: Sequence[str], folders: Sequence[Path]) -> list[str] | None:
    """Names of the classes 1 to K - 1: those given, or those of an nnU-Net ``dataset.json`` in or over a folder."""
    if given:
        return list(given)
    for path in (place / "dataset.json" for folder in folders for place in (folder, folder.parent)):
        try:
            labels = json.loads(path.read_text(encoding="utf-8"))["labels"]
            numbers = {int(number): str(name) for name, number in labels.items() if name != "ignore"}
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            continue  # no such file, of another tool, or with regions instead of classes
        if sorted(numbers) == list(range(len(numbers))) and len(numbers) > 1:
            return [numbers[number] for number in range(1, len(numbers))]
    return None


def number_classes(count: int) -> list[str]:
    """Names for classes that have none."""
    return [f"class {number}" for number in range(1, count + 1)]
