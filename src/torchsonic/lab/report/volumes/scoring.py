"""Scores predictions against labels, case by case; shared by runs and folders of files."""

from __future__ import annotations

import json
import re
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

REGION = re.compile(r"[^=]+=([1-9]\d*(?:,[1-9]\d*)*)")
Answer = tuple[NDArray[np.int16], dict[str, Any]]
"""Labels of a case, and further fields of :class:`CaseResult`."""
Predict = Callable[[Volume], Answer | None]
"""``None`` for a case that is not to be predicted."""


@dataclass(frozen=True, kw_only=True)
class Scoring:
    """What is scored and shown."""

    classes: Sequence[str] = ()
    """Names of the classes 1 to K - 1; by default nnU-Net's ``dataset.json`` says them, or their numbers do. Regions
    are given with their labels, as ``tumour=2,3``."""
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

    @property
    def regions(self) -> dict[str, tuple[int, ...]]:
        """Labels of each region; empty if classes are scored."""
        if not any("=" in words for words in self.classes):
            return {}
        found = {words.partition("=")[0]: REGION.fullmatch(words) for words in self.classes}
        if len(found) < len(self.classes) or None in found.values():
            raise ValueError(f"classes must all be names, or all regions such as tumour=2,3, got {self.classes}")
        return {name: tuple(map(int, match[1].split(","))) for name, match in found.items() if match}

    def num_labels(self, classes: Sequence[str]) -> int:
        """Labels that volumes may hold, background included."""
        return 1 + max((n for members in self.regions.values() for n in members), default=len(classes))


def score_cases(
    readers: Mapping[str, Callable[[], Volume]],
    models: Sequence[tuple[ModelResult, Predict]],
    scoring: Scoring,
    *,
    classes: Sequence[str],
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
    models
        Without cases yet, and what predicts these.
    skipped
        Cases that were left out before, with the reason.
    on_images
        Whether the volumes have images to draw on.
    """
    if scoring.lesion_class is not None and not 1 <= scoring.lesion_class <= len(classes):
        raise ValueError(f"--lesions must be a class from 1 to {len(classes)}, got {scoring.lesion_class}")
    left_out, drawn, spacings = list(skipped), {}, {}
    named = classes if not scoring.regions else number_classes(scoring.num_labels(classes) - 1)
    measured: dict[str, Any] = {"num_classes": scoring.num_labels(classes), "tolerance": scoring.tolerance}
    measured["regions"] = list(scoring.regions.values())
    with counting_progress("scoring", len(readers) * len(models), show=scoring.show) as advance:
        for name, read in readers.items():
            answers: list[Answer | None] = []
            try:
                volume = read()
                for _, predict in models:
                    answers.append(predict(volume))
                    advance()
            except CaseError as error:
                if not scoring.keep_going:
                    raise
                left_out.append((name, str(error)))
                continue
            truth, spacings[name], guesses = volume.label, volume.spacing, {}
            assert truth is not None
            for (model, _), answer in zip(models, answers, strict=True):
                if answer is not None:
                    guesses[model.name], facts = answer
                    scores = score_case(guesses[model.name], truth, volume.spacing, **measured)
                    model.cases[name] = CaseResult(scores=scores, **facts)
            if scoring.pictures:
                image = volume.image[0] if on_images else None
                drawn[name] = draw_case(image, truth, guesses, volume.spacing, named)
    if not spacings:
        raise ValueError(f"all {len(readers)} cases were left out; the first because: {left_out[len(skipped)][1]}")
    shown: dict[str, Any] = {"tolerance": scoring.tolerance, "threshold": scoring.threshold, "skipped": left_out}
    found = [model for model, _ in models]
    return Evaluation(title=title, classes=classes, models=found, pictures=drawn, spacings=spacings, run=run, **shown)


def class_names(given: Sequence[str], folders: Sequence[Path]) -> list[str]:
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
    return []


def number_classes(count: int) -> list[str]:
    """Names for classes that have none."""
    return [f"class {number}" for number in range(1, count + 1)]
