"""Predictions of any tool against labels: two folders of NIfTI files whose names match."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from torchsonic.lab.data.volumes import Case, CaseError, Volume, read_case
from torchsonic.lab.data.volumes.cases import SUFFIXES
from torchsonic.lab.metrics.detection import find_lesions
from torchsonic.lab.metrics.volumes import TOLERANCE, score_case
from torchsonic.lab.report.volumes.overlay import draw_case
from torchsonic.lab.report.volumes.results import CaseResult, Evaluation, ModelResult
from torchsonic.lab.runs.provenance import describe_run
from torchsonic.lab.training.progress import counting_progress

__all__ = ["class_names", "distinct_names", "nifti_files", "score_folders"]


def nifti_files(folder: Path) -> dict[str, Path]:
    """NIfTI files of a folder by their name without suffix."""
    if not folder.is_dir():
        raise ValueError(f"there is no folder {folder}")
    found: dict[str, Path] = {}
    for path in sorted(folder.iterdir()):
        suffix = next((suffix for suffix in SUFFIXES if path.name.endswith(suffix)), None)
        if suffix is not None and not path.name.startswith("."):
            name = path.name.removesuffix(suffix)
            if name in found:
                raise ValueError(f"{found[name]} and {path} have the same name; remove one of them")
            found[name] = path
    if not found:
        raise ValueError(f"{folder} holds no file ending in {' or '.join(SUFFIXES)}")
    return found


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


def distinct_names(folders: Sequence[Path]) -> list[str]:
    """Names of folders without what all of their paths share at the beginning and at the end.

    Examples
    --------
    >>> distinct_names([Path("results/Sonic/fold_0"), Path("results/Plain/fold_0")])
    ['Sonic', 'Plain']
    >>> distinct_names([Path("results/Sonic/fold_0")])
    ['fold_0']
    """
    twice = [folder for place, folder in enumerate(folders) if folder in folders[:place]]
    if twice:
        raise ValueError(f"predictions names {twice[0]} twice; name each folder once")
    if len(folders) == 1:
        return [folders[0].name]
    parts = [folder.parts for folder in folders]
    before = _num_shared(parts)
    after = _num_shared([part[before:][::-1] for part in parts])
    return ["/".join(part[before : len(part) - after]) or part[-1] for part in parts]


def _num_shared(parts: Sequence[Sequence[str]]) -> int:
    """How many first parts are the same in all."""
    return sum(1 for _ in takewhile(lambda column: len(set(column)) == 1, zip(*parts, strict=False)))


def score_folders(
    predictions: Path | Sequence[Path],
    labels: Path,
    *,
    images: Path | None = None,
    classes: Sequence[str] = (),
    lesion_class: int | None = None,
    probabilities: Path | None = None,
    threshold: float = 0.5,
    tolerance: float = TOLERANCE,
    pictures: bool = True,
    keep_going: bool = False,
    show: bool = True,
) -> Evaluation:
    """Score every label that there is, and draw it.

    Parameters
    ----------
    predictions, labels
        Folders of NIfTI files with classes; names match. Several folders of predictions are compared case by case.
    images
        Folder with the images, for the background of the pictures: ``name.nii.gz`` or ``name_0000.nii.gz``.
    classes
        Names of the classes 1 to K - 1; by default nnU-Net's ``dataset.json`` says them, or the highest label does.
    lesion_class, probabilities, threshold
        Class whose lesions are counted, and the folder with its probabilities: ``name.nii.gz``, or nnU-Net's
        ``name.npz``, which lies beside the predictions by default. See :mod:`torchsonic.lab.metrics.detection`.
    keep_going
        Leave out bad cases, and labels without prediction, instead of raising.

    Raises
    ------
    ValueError
        If names do not match, or naming the case that is bad.
    """
    run = describe_run(seed=0, device=torch.device("cpu"))
    folders = [predictions] if isinstance(predictions, Path) else list(predictions)
    if probabilities is not None and len(folders) > 1:
        raise ValueError("probabilities belong to one folder of predictions; put nnU-Net's .npz beside each instead")
    models = dict(zip(distinct_names(folders), map(_Predictions, folders), strict=True))
    truths = nifti_files(labels)
    skipped = [row for model in models.values() for row in _match(model, truths, labels, keep_going=keep_going)]
    names = sorted(truths.keys() & set.intersection(*[set(model.files) for model in models.values()]))
    if not names:
        raise ValueError(f"no case is in all of {', '.join(map(str, folders))}; predict the same cases")
    known = class_names(classes, (*folders, labels))
    if known is None:
        known = [f"class {number}" for number in range(1, _count_classes({n: truths[n] for n in names}, show=show))]
    if lesion_class is not None and not 1 <= lesion_class <= len(known):
        raise ValueError(f"lesions={lesion_class} is none of the classes 1 to {len(known)}")
    drawn: dict[str, bytes] = {}
    spacings: dict[str, tuple[float, ...]] = {}
    with counting_progress("scoring", len(names), show=show) as advance:
        for name in names:
            try:
                background = _image_of(name, images, truths[name])
                truth = read_case(Case(name, (background,), truths[name]), num_classes=len(known) + 1)
                found = {
                    key: model.score(truth, truths[name], len(known) + 1, lesion_class, probabilities, tolerance)
                    for key, model in models.items()
                }
            except CaseError as error:
                if not keep_going:
                    raise
                skipped.append((name, str(error)))
                continue
            finally:
                advance()
            for key, model in models.items():
                model.results[name] = found[key][1]
            spacings[name] = truth.spacing
            if pictures:
                assert truth.label is not None
                image = None if images is None else truth.image[0]
                guesses = {key: guess for key, (guess, _) in found.items()}
                drawn[name] = draw_case(image, truth.label, guesses, truth.spacing, known)
    if not spacings:
        raise ValueError(f"no case is left of {len(names)}; the first: {skipped[0][1]}")
    return Evaluation(
        title=f"{' and '.join(models)} against {labels.name}",
        classes=known,
        models=[
            ModelResult(name=key, cases=model.results, source=os.fspath(model.folder)) for key, model in models.items()
        ],
        pictures=drawn,
        spacings=spacings,
        tolerance=tolerance,
        skipped=skipped,
        lesion_class=lesion_class,
        threshold=threshold,
        run=run,
    )


class _Predictions:
    """A folder of predicted labels and what was found about them."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.files = folder, nifti_files(folder)
        self.results: dict[str, CaseResult] = {}

    def score(
        self,
        truth: Volume,
        label: Path,
        num_classes: int,
        lesion_class: int | None,
        probabilities: Path | None,
        tolerance: float,
    ) -> tuple[NDArray[np.int16], CaseResult]:
        """The predicted labels of a case and their scores."""
        name = truth.name
        guess = read_case(Case(name, (label,), self.files[name]), num_classes=num_classes).label
        assert truth.label is not None
        assert guess is not None
        found = None
        if lesion_class is not None:
            packed = (probabilities or self.folder) / f"{name}.npz"
            chance = _read_probability(name, packed, probabilities, label, lesion_class)
            found = find_lesions(chance, truth.label == lesion_class)
        scores = score_case(guess, truth.label, truth.spacing, num_classes=num_classes, tolerance=tolerance)
        return guess, CaseResult(scores=scores, lesions=found)


def _match(model: _Predictions, truths: Mapping[str, Path], labels: Path, *, keep_going: bool) -> list[tuple[str, str]]:
    """Refuse folders that do not match: cases that silently drop out would change every mean."""
    guesses, predictions = model.files, model.folder
    alone = [(name, f"{labels} has no label of it") for name in sorted(guesses.keys() - truths.keys())]
    alone += [(name, f"{predictions} has no prediction of it") for name in sorted(truths.keys() - guesses.keys())]
    if not guesses.keys() & truths.keys():
        raise ValueError(
            f"no name in {predictions} is one in {labels}: {next(iter(guesses))} there, {next(iter(truths))} here"
        )
    if alone and not keep_going:
        more = f", and {len(alone) - 3} more" if len(alone) > 3 else ""
        listed = "; ".join(f"case {name}: {reason}" for name, reason in alone[:3])
        raise ValueError(f"{listed}{more}; add what is missing, or use --keep-going to leave such cases out")
    return alone


def _count_classes(truths: Mapping[str, Path], *, show: bool) -> int:
    """One more than the highest label of all; files that cannot be read say so when they are scored."""
    highest = 0
    with counting_progress("looking for classes", len(truths), show=show) as advance:
        for name, path in truths.items():
            try:
                label = read_case(Case(name, (path,), path)).label
                highest = max(highest, 0 if label is None else int(label.max()))
            except CaseError:
                pass
            advance()
    if not highest:
        raise ValueError("the labels hold nothing but background; there is nothing to score")
    return highest + 1


def _image_of(name: str, images: Path | None, label: Path) -> Path:
    """The image of a case, its first channel; without images the label itself, which lies on the same grid."""
    if images is None:
        return label
    candidates = [images / f"{name}{channel}{suffix}" for channel in ("", "_0000") for suffix in SUFFIXES]
    found = next((path for path in candidates if path.is_file()), None)
    if found is None:
        raise CaseError(name, candidates[0], "there is no such image; add it or leave --images out")
    return found


def _read_probability(
    name: str, packed: Path, folder: Path | None, label: Path, lesion_class: int
) -> NDArray[np.floating[Any]]:
    """Probability of the lesion, ``(D, H, W)``, on the grid of the label: nnU-Net's, or a NIfTI file in a folder."""
    if packed.is_file():
        return _read_packed(name, packed, label, lesion_class)
    paths = [] if folder is None else [folder / f"{name}{suffix}" for suffix in SUFFIXES]
    path = next((path for path in paths if path.is_file()), None)
    if path is None:
        raise CaseError(
            name, packed, "there are no probabilities; predict with --save_probabilities, or give --probabilities"
        )
    volume = read_case(Case(name, (path,), label))
    if volume.image.min() < 0 or volume.image.max() > 1 + 1e-4:
        raise CaseError(name, path, "lesions need probabilities in [0, 1]; give --probabilities a folder with these")
    return volume.image[0]


def _read_packed(name: str, path: Path, label: Path, lesion_class: int) -> NDArray[np.floating[Any]]:
    truth = read_case(Case(name, (label,), label)).label
    assert truth is not None
    try:
        with np.load(path) as saved:
            chances = np.asarray(saved["probabilities"], dtype=np.float32)
    except (OSError, ValueError, KeyError) as error:
        raise CaseError(name, path, f"holds no probabilities of nnU-Net ({error}); predict again") from error
    if chances.shape[1:] != truth.shape or lesion_class >= len(chances):
        wanted = (f"more than {lesion_class}", *truth.shape)
        raise CaseError(name, path, f"shape {chances.shape} is not ({', '.join(map(str, wanted))}); predict again")
    if not math.isfinite(float(chances[lesion_class].sum())):
        raise CaseError(name, path, "some probabilities are NaN; predict again")
    return chances[lesion_class]
