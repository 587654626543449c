"""Predictions of any tool against labels: two folders of NIfTI files whose names match."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import takewhile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from torchsonic.lab.data.volumes import Case, CaseError, Volume, read_case
from torchsonic.lab.data.volumes.cases import SUFFIXES, list_files
from torchsonic.lab.metrics.detection import find_lesions
from torchsonic.lab.report.volumes.results import Evaluation, ModelResult
from torchsonic.lab.report.volumes.scoring import Answer, Scoring, class_names, number_classes, score_cases
from torchsonic.lab.runs.provenance import describe_run
from torchsonic.lab.training.progress import counting_progress


def nifti_files(folder: Path) -> dict[str, Path]:
    """NIfTI files of a folder, at least one, by their name without suffix."""
    found = list_files(folder)
    if not found:
        raise ValueError(f"{folder} contains no file ending in {' or '.join(SUFFIXES)}")
    return found


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
        raise ValueError(f"--predictions lists {twice[0]} twice; name each folder once")
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
    probabilities: Path | None = None,
    scoring: Scoring | None = None,
) -> Evaluation:
    """Score every label that there is, and draw it.

    Parameters
    ----------
    predictions, labels
        Folders of NIfTI files with classes; names match. Several folders of predictions are compared case by case.
    images
        Folder with the images, for the background of the pictures: ``name.nii.gz`` or ``name_0000.nii.gz``.
    probabilities
        Folder with probabilities of the lesions: ``name.nii.gz``, or nnU-Net's ``name.npz``, which lies beside the
        predictions by default.

    Raises
    ------
    ValueError
        If names do not match, or naming the case that is bad.
    """
    scoring = scoring or Scoring()
    run = describe_run(seed=0, device=torch.device("cpu"))
    folders = [predictions] if isinstance(predictions, Path) else list(predictions)
    if probabilities is not None and len(folders) > 1:
        raise ValueError(
            "--probabilities works with a single folder of predictions; for several, put nnU-Net's .npz files beside "
            "the predictions"
        )
    titles, found = distinct_names(folders), {folder: nifti_files(folder) for folder in folders}
    truths = nifti_files(labels)
    names, alone = _match(found, truths, labels)
    if alone and not scoring.keep_going:
        raise ValueError(f"{_name_some(alone)}; add what is missing, or use --keep-going to leave such cases out")
    classes = list(scoring.regions) or class_names(scoring.classes, (*folders, labels))
    classes = classes or number_classes(_highest_label({name: truths[name] for name in names}, show=scoring.show))

    def read(name: str, image: Path, label: Path) -> Volume:
        return read_case(Case(name, (image,), label), num_classes=scoring.num_labels(classes))

    def predict(folder: Path, volume: Volume) -> Answer:
        name, lesion = volume.name, scoring.lesion_class
        guess = read(name, truths[name], found[folder][name]).label
        assert guess is not None
        if lesion is None:
            return guess, {}
        chance = _read_probability(volume, probabilities or folder, truths[name], lesion, nnunet=probabilities is None)
        return guess, {"lesions": find_lesions(chance, volume.label == lesion)}

    return score_cases(
        {name: lambda name=name: read(name, _image_of(name, images, truths[name]), truths[name]) for name in names},
        [
            (ModelResult(name=title, source=str(folder)), partial(predict, folder))
            for title, folder in zip(titles, folders, strict=True)
        ],
        scoring,
        classes=classes,
        title=f"{' and '.join(titles)} against {labels.name}",
        run=run,
        skipped=alone,
        on_images=images is not None,
    )


def _match(
    found: Mapping[Path, Mapping[str, Path]], truths: Mapping[str, Path], labels: Path
) -> tuple[list[str], list[tuple[str, str]]]:
    """Cases that all have, and those without their other half: any that drops out silently would change every mean."""
    alone = []
    for folder, files in found.items():
        if not files.keys() & truths.keys():
            raise ValueError(
                f"no file name in {folder} is also in {labels}: it has {next(iter(files))}, not {next(iter(truths))}"
            )
        alone += [(name, f"{labels} has no label for it") for name in sorted(files.keys() - truths.keys())]
        alone += [(name, f"{folder} has no prediction for it") for name in sorted(truths.keys() - files.keys())]
    names = sorted(truths.keys() & set.intersection(*map(set, found.values())))
    if not names:
        raise ValueError(f"no case is in all of {', '.join(map(str, found))}; predict the same cases")
    return names, alone


def _name_some(cases: Sequence[tuple[str, str]]) -> str:
    more = f", and {len(cases) - 3} more" if len(cases) > 3 else ""
    return "; ".join(f"case {name}: {reason}" for name, reason in cases[:3]) + more


def _highest_label(truths: Mapping[str, Path], *, show: bool) -> int:
    """Of all files; those that cannot be read say so when they are scored."""
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
        raise ValueError("the labels contain only background; there is nothing to score")
    return highest


def _image_of(name: str, images: Path | None, label: Path) -> Path:
    """The image of a case, its first channel; without images the label itself, which lies on the same grid."""
    if images is None:
        return label
    candidates = [images / f"{name}{channel}{suffix}" for channel in ("", "_0000") for suffix in SUFFIXES]
    found = next((path for path in candidates if path.is_file()), None)
    if found is None:
        raise CaseError(name, candidates[0], "there is no such image; add it, or omit --images")
    return found


def _read_probability(
    volume: Volume, folder: Path, label: Path, lesion_class: int, *, nnunet: bool
) -> NDArray[np.floating[Any]]:
    """Probability of the lesion, ``(D, H, W)``, on the grid of the label: nnU-Net's, or else a NIfTI file."""
    name, packed = volume.name, folder / f"{volume.name}.npz"
    if packed.is_file():
        return _read_packed(volume, packed, lesion_class)
    path = next((path for suffix in SUFFIXES if (path := folder / f"{name}{suffix}").is_file()), None)
    if path is None or nnunet:  # beside probabilities of nnU-Net lie its predictions
        raise CaseError(
            name, packed, "there are no probabilities; predict with --save_probabilities, or give --probabilities"
        )
    chance = read_case(Case(name, (path,), label)).image
    if chance.min() < 0 or chance.max() > 1 + 1e-4:
        raise CaseError(
            name, path, "lesions need probabilities in [0, 1]; use --probabilities to name a folder of them"
        )
    return chance[0]


def _read_packed(volume: Volume, path: Path, lesion_class: int) -> NDArray[np.floating[Any]]:
    assert volume.label is not None
    name, size = volume.name, volume.label.shape
    try:
        with np.load(path) as saved:
            chances = np.asarray(saved["probabilities"], dtype=np.float32)
    except (OSError, ValueError, KeyError) as error:
        raise CaseError(name, path, f"contains no nnU-Net probabilities ({error}); predict again") from error
    if chances.shape[1:] != size or lesion_class >= len(chances):
        wanted = (f"more than {lesion_class}", *size)
        raise CaseError(name, path, f"shape {chances.shape} is not ({', '.join(map(str, wanted))}); predict again")
    if not math.isfinite(float(chances[lesion_class].sum())):
        raise CaseError(name, path, "some probabilities are NaN; predict again")
    return chances[lesion_class]
