"""Runs on volumes: each predicts its own test cases, or all cases of a folder from elsewhere, and is scored."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from torchsonic.lab.data.volumes import Case, CaseError, Volume, read_case, write_labels
from torchsonic.lab.metrics import count_parameters
from torchsonic.lab.metrics.detection import find_lesions
from torchsonic.lab.metrics.memory import peak_bytes
from torchsonic.lab.report.volumes.results import Evaluation
from torchsonic.lab.report.volumes.rows import ScoreRow, TrainedRun, find_tests, load_trained, make_rows
from torchsonic.lab.report.volumes.scoring import (
    Answer,
    Contender,
    Scoring,
    check_lesions,
    class_names,
    number_classes,
    score_cases,
)
from torchsonic.lab.runs.provenance import describe_run
from torchsonic.lab.runs.volumes import predict_case, predict_probabilities

__all__ = ["score_runs"]


def score_runs(
    folders: Sequence[Path],
    out: Path,
    *,
    external: Path | None = None,
    data: Path | None = None,
    device: str = "cpu",
    scoring: Scoring | None = None,
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
    device
        Where the networks run.
    """
    scoring = scoring or Scoring()
    provenance = describe_run(seed=0, device=torch.device(device))
    runs = [load_trained(folder, device) for folder in folders]
    counts = {run.config.num_classes for run in runs}
    if len(counts) > 1:
        raise ValueError(f"the runs have different numbers of classes, {sorted(map(str, counts))}; evaluate them apart")
    cases = find_tests(runs, external, data)
    classes = _classes(scoring.classes, external or data or runs[0].config.data, runs[0].config.num_classes or 2)
    check_lesions(scoring, classes)
    shared = {"everything": external is not None, "lesion_class": scoring.lesion_class, "device": device, "warm": set()}
    networks = [
        Network(row, out / "predictions" / re.sub(r"[^\w.-]+", "-", row.name), **shared)
        for row in make_rows(runs, None if external is None else tuple(cases))
    ]
    where = f"all cases of {external.name}" if external else "test cases"
    return score_cases(
        {name: partial(_read, case, runs, len(classes) + 1) for name, case in cases.items()},
        [Contender(network.row.name, network.predict, network.facts()) for network in networks],
        classes,
        scoring,
        title=f"{' and '.join(dict.fromkeys(run.row for run in runs))} on {where}",
        run=provenance,
    )


def _classes(given: Sequence[str], data: Path, num_classes: int) -> list[str]:
    known = class_names(given, [data])
    if known is None or (not given and len(known) != num_classes - 1):
        known = number_classes(num_classes - 1)
    if len(known) != num_classes - 1:
        raise ValueError(f"classes: {len(known)} names for the classes 1 to {num_classes - 1} of these runs")
    return known


def _read(case: Case, runs: Sequence[TrainedRun], num_classes: int) -> Volume:
    volume = read_case(case, num_classes=num_classes)
    channels = {run.model.in_channels for run in runs if hasattr(run.model, "in_channels")}
    if channels - {len(volume.image)}:
        wanted = " and ".join(map(str, sorted(channels, key=str)))
        raise CaseError(case.name, case.images[0], f"{len(volume.image)} channels, the networks have {wanted}")
    return volume


@dataclass(frozen=True)
class Network:
    """A row of the table, which predicts its cases and writes what it predicts."""

    row: ScoreRow
    out: Path
    everything: bool
    """Whether it predicts every case, not its tests alone."""
    lesion_class: int | None
    device: str
    warm: set[Path]
    """Runs that have predicted something."""

    def predict(self, volume: Volume) -> Answer | None:
        """Labels of a case, and what they cost."""
        run = next((run for run in self.row.runs if self.everything or volume.name in run.tests), None)
        if run is None:
            return None
        self._warm_up(run, volume)
        answer: list[Any] = []
        seconds: list[float] = []

        def step() -> None:
            start = time.perf_counter()
            predict = predict_case if self.lesion_class is None else predict_probabilities
            answer.append(predict(run.model, volume, run.config, tell_spacing=self.row.tell_spacing))
            seconds.append(time.perf_counter() - start)

        facts: dict[str, Any] = {"peak_bytes": peak_bytes(step, torch.device(self.device)), "seconds": seconds[0]}
        labels = answer[0]
        if self.lesion_class is not None:
            assert volume.label is not None
            facts["lesions"] = find_lesions(labels[self.lesion_class], volume.label == self.lesion_class)
            labels = labels.argmax(0).astype(np.int16)
        self.out.mkdir(parents=True, exist_ok=True)
        write_labels(self.out / f"{volume.name}.nii.gz", labels, volume.affine)
        return labels, facts

    def _warm_up(self, run: TrainedRun, volume: Volume) -> None:
        """Predict a corner of a case once, so that what happens at the first call only is not timed."""
        if run.folder not in self.warm:
            corner = (slice(None), *[slice(0, n) for n in run.config.patch or ()])
            predict_case(run.model, replace(volume, image=volume.image[corner], label=None), run.config)
            self.warm.add(run.folder)

    def facts(self) -> dict[str, Any]:
        """Of the report."""
        first, source = self.row.runs[0], ", ".join(os.fspath(run.folder) for run in self.row.runs)
        return {"parameters": count_parameters(first.model), "source": source, "origin": first.origin}
