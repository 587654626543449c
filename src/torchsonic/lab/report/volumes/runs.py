"""Runs on volumes: each predicts its own test cases, or all cases of a folder from elsewhere, and is scored."""

from __future__ import annotations

import os
import re
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from torchsonic.lab.data.volumes import Case, CaseError, Volume, find_cases, read_case, write_labels
from torchsonic.lab.metrics import count_parameters
from torchsonic.lab.metrics.cost import peak_bytes
from torchsonic.lab.metrics.detection import find_lesions
from torchsonic.lab.report.runs import count, group_by, load_runs, read_results
from torchsonic.lab.report.volumes.results import Evaluation, ModelResult
from torchsonic.lab.report.volumes.scoring import Answer, Scoring, class_names, number_classes, score_cases
from torchsonic.lab.runs.folder import read_facts
from torchsonic.lab.runs.provenance import describe_run
from torchsonic.lab.runs.volumes import AxesWatch, VolumesConfig, load_run, predict_case, predict_probabilities
from torchsonic.lab.runs.volumes.split import find_learnt
from torchsonic.models import PretrainedModel


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

    A network that was trained with the spacing is tested with and without it. Runs of one model on different test
    cases, such as the folds of a cross-validation, share a row.

    Parameters
    ----------
    folders
        Of the runs.
    out
        Folder for ``predictions/``.
    external
        Folder with ``images/`` and ``labels/``; every run predicts all its cases instead of its own test cases.
    data
        Folder of the cases, if they have moved since training.
    device
        Where the networks run.
    """
    scoring = scoring or Scoring()
    provenance = describe_run(seed=0, device=torch.device(device))
    runs = load_runs(folders, _load, "volumes")
    for run in runs:
        run.model.to(device).eval()
    if scoring.regions:
        raise ValueError("--classes: regions can be scored only with --predictions; for runs, give class names")
    classes = _classes(scoring.classes, runs, external or data)
    cases = _external_cases(runs, external) if external else _test_cases(runs, data)
    rows = _make_rows(runs, tuple(cases) if external else None)
    models = []
    for row in rows:
        where = out / "predictions" / re.sub(r"[^\w.-]+", "-", row.name)
        models.append((row.as_model(), partial(row.predict, out=where, lesion_class=scoring.lesion_class)))
    on = f"all cases of {external.name}" if external else "test cases"
    return score_cases(
        {name: partial(_read, case, runs, len(classes) + 1) for name, case in cases.items()},
        models,
        scoring,
        classes=classes,
        title=f"{' and '.join(dict.fromkeys(run.name for run in runs))} on {on}",
        run=provenance,
    )


@dataclass
class TrainedRun:
    """A finished run, ready to predict."""

    folder: Path
    model: PretrainedModel
    config: VolumesConfig
    tests: tuple[str, ...]
    origin: dict[str, Any]
    watch: AxesWatch
    is_warm: bool = False

    @property
    def name(self) -> str:
        """The model, without fold and seed."""
        return Path(self.config.name).parent.name

    @property
    def settings(self) -> str:
        """The settings that runs of a row share: all but the training cases and what depends on them."""
        training = replace(self.config.training, seed=0)
        return repr(replace(self.config, fold=0, split=None, patch=None, training=training))

    def warm_up(self, volume: Volume) -> None:
        """Predict a corner of a case once, so that the overhead of a first call is not timed."""
        if not self.is_warm:
            corner = (slice(None), *[slice(0, n) for n in self.config.patch or ()])
            predict_case(self.model, replace(volume, image=volume.image[corner], label=None), self.config)
            self.is_warm = True


def _load(folder: Path) -> TrainedRun:
    model, config = load_run(folder)
    split = read_facts(folder / "split.json", "test")
    origin = read_results(folder).get("run", {})
    return TrainedRun(folder, model, config, tuple(split["test"]), dict(origin), AxesWatch(folder, config))


def _classes(given: Sequence[str], runs: Sequence[TrainedRun], data: Path | None) -> list[str]:
    counts = {run.config.num_classes for run in runs}
    if len(counts) > 1:
        raise ValueError(
            f"the runs have different numbers of classes, {sorted(map(str, counts))}; evaluate them separately"
        )
    config = runs[0].config
    number = (config.num_classes or 2) - 1
    known = class_names(given, [data or config.data])
    if given and len(known) != number:
        raise ValueError(f"--classes has {len(known)} names, but these runs have classes 1 to {number}")
    return known if len(known) == number else number_classes(number)


def _external_cases(runs: Sequence[TrainedRun], folder: Path) -> dict[str, Case]:
    """The cases of a folder; refused if a run was trained on one of them."""
    cases = find_cases(folder)
    for run in runs:
        learnt, named = find_learnt(run.folder, run.config.data, cases, find_cases)
        if learnt:
            text = f"--external {folder} contains {learnt[0]}, which {run.folder} was trained on"
            raise ValueError(f"{text}; use other cases")
        if named:
            text = (
                f"{count(len(named), 'case')} in {folder}, such as {named[0]}, named as in the training of {run.folder}"
            )
            warnings.warn(f"{text}: if they are the same, scores are too high", stacklevel=2)
    return {case.name: case for case in cases}


def _test_cases(runs: Sequence[TrainedRun], data: Path | None) -> dict[str, Case]:
    """The test cases of runs, by name."""
    found: dict[str, Case] = {}
    for run in runs:
        folder = data or run.config.data
        here = {case.name: case for case in find_cases(folder)}
        for name in run.tests:
            if name not in here:
                remedy = "add it" if data else "use --data to say where it is"
                raise ValueError(
                    f"test case {name} of {run.folder} is not in {folder}; {remedy}, or use --external to test other "
                    "cases"
                )
            if found.setdefault(name, here[name]) != here[name]:
                raise ValueError(
                    f"case {name} in {folder} differs from {name} in another run; evaluate these runs separately"
                )
    if not found:
        raise ValueError(f"{runs[0].folder} has no test cases; use --external to name a folder of cases")
    return dict(sorted(found.items()))


def _read(case: Case, runs: Sequence[TrainedRun], num_classes: int) -> Volume:
    volume = read_case(case, num_classes=num_classes, straight=any(run.config.is_oriented for run in runs))
    channels = {run.model.in_channels for run in runs if hasattr(run.model, "in_channels")}
    if channels - {len(volume.image)}:
        wanted = " and ".join(map(str, sorted(channels, key=str)))
        raise CaseError(
            case.name, case.images[0], f"has {len(volume.image)} channels, but the networks expect {wanted}"
        )
    return volume


@dataclass(frozen=True)
class Row:
    """A row of the table: a network with or without the spacing, on the cases of all runs that share the row."""

    name: str
    runs: tuple[TrainedRun, ...]
    tell_spacing: bool
    everything: bool
    """Whether it predicts every case, not only the test cases of its runs."""

    def as_model(self) -> ModelResult:
        first, source = self.runs[0], ", ".join(os.fspath(run.folder) for run in self.runs)
        return ModelResult(name=self.name, parameters=count_parameters(first.model), source=source, origin=first.origin)

    def predict(self, volume: Volume, *, out: Path, lesion_class: int | None) -> Answer | None:
        """Labels of a case, which are written, and what they cost."""
        run = next((run for run in self.runs if self.everything or volume.name in run.tests), None)
        if run is None:
            return None
        run.warm_up(volume)
        run.watch(volume)
        predict = predict_case if lesion_class is None else predict_probabilities
        answers, seconds = [], []

        def step() -> None:
            start = time.perf_counter()
            answers.append(predict(run.model, volume, run.config, tell_spacing=self.tell_spacing))
            seconds.append(time.perf_counter() - start)

        peak = peak_bytes(step, next(run.model.parameters()).device)
        facts: dict[str, Any] = {"peak_bytes": peak, "seconds": seconds[0]}
        labels = answers[0]
        if lesion_class is not None:
            facts["lesions"] = find_lesions(labels[lesion_class], volume.label == lesion_class)
            labels = labels.argmax(0).astype(np.int16)
        out.mkdir(parents=True, exist_ok=True)
        write_labels(out / f"{volume.name}.nii.gz", labels, volume.affine)
        return labels, facts


def _make_rows(runs: Sequence[TrainedRun], external: tuple[str, ...] | None) -> list[Row]:
    """Lines of the table; ``external`` are the names of cases that all runs predict."""
    lines: list[tuple[str, list[TrainedRun]]] = []
    for members in group_by(runs, lambda run: run.settings).values():
        tested = [case for run in members for case in (run.tests if external is None else external)]
        shared = len(set(tested)) == len(tested)  # each case is tested once
        lines += [(members[0].name, members)] if shared else [(f"{r.name} {r.folder.name}", [r]) for r in members]
    names, rows = [name for name, _ in lines], []
    for name, members in lines:
        label = name if names.count(name) == 1 else f"{name} ({members[0].folder})"
        both = {f"{label}, spacing given": True, f"{label}, spacing not given": False}
        kinds = both if members[0].config.is_told else {label: True}
        rows += [Row(shown, tuple(members), told, external is not None) for shown, told in kinds.items()]
    return rows
