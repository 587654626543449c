"""Runs on volumes: each predicts its own test cases, or all cases of a folder from elsewhere, and is scored."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from torchsonic.lab.data.volumes import Case, CaseError, Volume, read_case, write_labels
from torchsonic.lab.metrics.detection import find_lesions
from torchsonic.lab.metrics.memory import peak_bytes
from torchsonic.lab.metrics.volumes import TOLERANCE, score_case
from torchsonic.lab.report.volumes.folders import class_names
from torchsonic.lab.report.volumes.overlay import draw_case
from torchsonic.lab.report.volumes.results import CaseResult, Evaluation
from torchsonic.lab.report.volumes.rows import TrainedRun, find_tests, load_trained, make_rows
from torchsonic.lab.runs.provenance import describe_run
from torchsonic.lab.runs.volumes import predict_case, predict_probabilities
from torchsonic.lab.training.progress import counting_progress

__all__ = ["score_runs"]


def score_runs(
    folders: Sequence[Path],
    out: Path,
    *,
    external: Path | None = None,
    data: Path | None = None,
    classes: Sequence[str] = (),
    lesion_class: int | None = None,
    threshold: float = 0.5,
    tolerance: float = TOLERANCE,
    pictures: bool = True,
    keep_going: bool = False,
    device: str = "cpu",
    show: bool = True,
) -> Evaluation:
    """Predict, score and draw; predictions are written below ``out`` as they are made.

    A network that was trained to be told the spacing is tested told and not told. Runs of one model that test different
    cases, as the folds of a cross-validation do, share a row.

    Parameters
    ----------
    folders
        Of the runs.
    out
        Folder for ``predictions/``.
    external
        Folder with ``images/`` and ``labels/`` whose cases are all predicted by all runs, instead of their own tests.
    data
        Where the cases of the runs lie now, if elsewhere than in training.
    classes, lesion_class, threshold, tolerance, pictures, keep_going
        As for :func:`torchsonic.lab.report.volumes.score_folders`.
    device
        Where the networks run.
    """
    provenance = describe_run(seed=0, device=torch.device(device))
    runs = [load_trained(folder, device) for folder in folders]
    counts = {run.config.num_classes for run in runs}
    if len(counts) > 1:
        raise ValueError(f"the runs have different numbers of classes, {sorted(map(str, counts))}; evaluate them apart")
    cases = find_tests(runs, external, data)
    rows = make_rows(runs, None if external is None else tuple(cases))
    num_classes = runs[0].config.num_classes or 2
    known = class_names(classes, [external or data or runs[0].config.data])
    if known is None or (not classes and len(known) != num_classes - 1):
        known = [f"class {number}" for number in range(1, num_classes)]
    if len(known) != num_classes - 1:
        raise ValueError(f"classes: {len(known)} names for the classes 1 to {num_classes - 1} of these runs")
    if lesion_class is not None and not 1 <= lesion_class < num_classes:
        raise ValueError(f"lesions={lesion_class} is none of the classes 1 to {num_classes - 1}")
    skipped: list[tuple[str, str]] = []
    drawn: dict[str, bytes] = {}
    spacings: dict[str, tuple[float, ...]] = {}
    work = sum(len(row.runs_for(name, external is not None)) for name in cases for row in rows)
    warm: set[Path] = set()
    with counting_progress("predicting", work, show=show) as advance:
        for volume in _read(cases, runs, num_classes, skipped, keep_going=keep_going):
            assert volume.label is not None
            found: dict[str, NDArray[np.int16]] = {}
            for row in rows:
                for run in row.runs_for(volume.name, external is not None):
                    _warm_up(run, volume, warm)
                    labels, result = _predict(run, volume, row.tell_spacing, lesion_class, device)
                    scores = score_case(
                        labels, volume.label, volume.spacing, num_classes=num_classes, tolerance=tolerance
                    )
                    row.cases[volume.name] = CaseResult(scores=scores, **result)
                    found[row.name] = labels
                    _write(out / "predictions" / _safe(row.name), volume, labels)
                    advance()
            spacings[volume.name] = volume.spacing
            if pictures:
                drawn[volume.name] = draw_case(volume.image[0], volume.label, found, volume.spacing, known)
    if not spacings:
        raise ValueError(f"no case is left of {len(cases)}; the first: {skipped[0][1]}")
    where = f"all cases of {external.name}" if external else "test cases"
    return Evaluation(
        title=f"{' and '.join(dict.fromkeys(run.row for run in runs))} on {where}",
        classes=known,
        models=[row.result() for row in rows],
        pictures=drawn,
        spacings=spacings,
        tolerance=tolerance,
        skipped=skipped,
        lesion_class=lesion_class,
        threshold=threshold,
        run=provenance,
    )


def _read(
    cases: dict[str, Case],
    runs: Sequence[TrainedRun],
    num_classes: int,
    skipped: list[tuple[str, str]],
    *,
    keep_going: bool,
) -> Iterator[Volume]:
    """Volumes one after another; bad ones raise, or are noted and left out."""
    channels = {run.model.in_channels for run in runs if hasattr(run.model, "in_channels")}
    for name, case in cases.items():
        try:
            volume = read_case(case, num_classes=num_classes)
            if channels - {len(volume.image)}:
                wanted = " and ".join(map(str, sorted(channels, key=str)))
                raise CaseError(name, case.images[0], f"{len(volume.image)} channels, the networks have {wanted}")
        except CaseError as error:
            if not keep_going:
                raise
            skipped.append((name, str(error)))
        else:
            yield volume


def _warm_up(run: TrainedRun, volume: Volume, warm: set[Path]) -> None:
    """Predict a corner of a case once, so that what happens at the first call only is not timed."""
    if run.folder not in warm:
        corner = (slice(None), *[slice(0, n) for n in run.config.patch or ()])
        predict_case(run.model, replace(volume, image=volume.image[corner], label=None), run.config)
        warm.add(run.folder)


def _predict(
    run: TrainedRun, volume: Volume, tell_spacing: bool, lesion_class: int | None, device: str
) -> tuple[NDArray[np.int16], dict[str, Any]]:
    """Labels of a case, and what they cost."""
    assert volume.label is not None
    answer: list[Any] = []
    seconds: list[float] = []

    def step() -> None:
        start = time.perf_counter()
        predict = predict_case if lesion_class is None else predict_probabilities
        answer.append(predict(run.model, volume, run.config, tell_spacing=tell_spacing))
        seconds.append(time.perf_counter() - start)

    peak = peak_bytes(step, torch.device(device))
    result: dict[str, Any] = {"seconds": seconds[0], "peak_bytes": peak}
    if lesion_class is None:
        return answer[0], result
    result["lesions"] = find_lesions(answer[0][lesion_class], volume.label == lesion_class)
    return answer[0].argmax(0).astype(np.int16), result


def _safe(name: str) -> str:
    return re.sub(r"[^\w.-]+", "-", name)


def _write(folder: Path, volume: Volume, labels: NDArray[np.int16]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    write_labels(folder / f"{volume.name}.nii.gz", labels, volume.affine)
