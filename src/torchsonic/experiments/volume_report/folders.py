"""Predictions of any tool against labels: two folders of NIfTI files whose names match."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from torchsonic.data.cases import SUFFIXES
from torchsonic.data.volumes import Case, CaseError, read_case
from torchsonic.evaluation.detection import find_lesions
from torchsonic.evaluation.provenance import describe_run
from torchsonic.evaluation.volumes import TOLERANCE, score_case
from torchsonic.experiments.volume_report.overlay import draw_case
from torchsonic.experiments.volume_report.results import CaseResult, Evaluation, ModelResult
from torchsonic.training.progress import counting_progress

__all__ = ["class_names", "nifti_files", "score_folders"]


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


def score_folders(
    predictions: Path,
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
        Folders of NIfTI files with classes; names match.
    images
        Folder with the images, for the background of the pictures: ``name.nii.gz`` or ``name_0000.nii.gz``.
    classes
        Names of the classes 1 to K - 1; by default nnU-Net's ``dataset.json`` says them, or the highest label does.
    lesion_class, probabilities, threshold
        Class whose lesions are counted, and the folder with its probabilities: ``name.nii.gz``, or nnU-Net's
        ``name.npz``, which lies beside the predictions by default. See :mod:`torchsonic.evaluation.detection`.
    keep_going
        Leave out bad cases, and labels without prediction, instead of raising.

    Raises
    ------
    ValueError
        If names do not match, or naming the case that is bad.
    """
    run = describe_run(seed=0, device=torch.device("cpu"))
    guesses, truths = nifti_files(predictions), nifti_files(labels)
    skipped = _match(guesses, truths, predictions, labels, keep_going=keep_going)
    names = sorted(guesses.keys() & truths.keys())
    known = class_names(classes, (predictions, labels))
    if known is None:
        known = [f"class {number}" for number in range(1, _count_classes({n: truths[n] for n in names}, show=show))]
    if lesion_class is not None and not 1 <= lesion_class <= len(known):
        raise ValueError(f"lesions={lesion_class} is none of the classes 1 to {len(known)}")
    results: dict[str, CaseResult] = {}
    drawn: dict[str, bytes] = {}
    spacings: dict[str, tuple[float, ...]] = {}
    with counting_progress("scoring", len(names), show=show) as advance:
        for name in names:
            try:
                background = _image_of(name, images, truths[name])
                truth = read_case(Case(name, (background,), truths[name]), num_classes=len(known) + 1)
                guess = read_case(Case(name, (background,), guesses[name]), num_classes=len(known) + 1)
                assert truth.label is not None
                assert guess.label is not None
                found = None
                if lesion_class is not None:
                    packed = (probabilities or predictions) / f"{name}.npz"
                    chance = _read_probability(name, packed, probabilities, truths[name], lesion_class)
                    found = find_lesions(chance, truth.label == lesion_class)
            except CaseError as error:
                if not keep_going:
                    raise
                skipped.append((name, str(error)))
                continue
            finally:
                advance()
            scores = score_case(
                guess.label, truth.label, truth.spacing, num_classes=len(known) + 1, tolerance=tolerance
            )
            results[name], spacings[name] = CaseResult(scores=scores, lesions=found), truth.spacing
            if pictures:
                image = None if images is None else truth.image[0]
                drawn[name] = draw_case(image, truth.label, {predictions.name: guess.label}, truth.spacing, known)
    if not results:
        raise ValueError(f"no case is left of {len(names)}; the first: {skipped[0][1]}")
    return Evaluation(
        title=f"{predictions.name} against {labels.name}",
        classes=known,
        models=[ModelResult(name=predictions.name, cases=results, source=os.fspath(predictions))],
        pictures=drawn,
        spacings=spacings,
        tolerance=tolerance,
        skipped=skipped,
        lesion_class=lesion_class,
        threshold=threshold,
        run=run,
    )


def _match(
    guesses: Mapping[str, Path], truths: Mapping[str, Path], predictions: Path, labels: Path, *, keep_going: bool
) -> list[tuple[str, str]]:
    """Refuse folders that do not match: cases that silently drop out would change every mean."""
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
