"""Training on a folder of volumes, and a test on whole cases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

import numpy as np

from torchsonic.lab.data.volumes import Case, find_cases
from torchsonic.lab.data.volumes.collection import Collection
from torchsonic.lab.data.volumes.preparation import prepare
from torchsonic.lab.data.volumes.survey import Facts, survey
from torchsonic.lab.runs.folder import load_model, read_facts
from torchsonic.lab.runs.run import Experiment, run
from torchsonic.lab.runs.volumes.config import VolumesConfig, read_config
from torchsonic.lab.runs.volumes.plan import complete_config, make_model
from torchsonic.lab.runs.volumes.predict import score_cases
from torchsonic.lab.runs.volumes.split import Split, choose_split
from torchsonic.lab.training import CheckpointError, Fit
from torchsonic.lab.training.progress import counting_progress
from torchsonic.lab.training.volumes import VolumeTask
from torchsonic.models import PretrainedModel

if TYPE_CHECKING:
    from lightning_fabric import Fabric

__all__ = ["SPLIT_NAME", "VolumeExperiment", "load_run", "run_experiment"]

SPLIT_NAME = "split.json"


class VolumeExperiment(Experiment[VolumesConfig, PretrainedModel]):
    """Segmentation of NIfTI volumes; ``split.json`` holds which cases were learnt from, and what was left out."""

    kind = "volumes"
    # The names of the cases are compared instead of the settings that gave them.
    may_change = (
        *("data", "split", "folds", "fold", "split_seed", "patient", "keep_going"),
        *("test_cases", "overlap", "cache_gb", "patch_voxels"),
    )
    cases: dict[str, Case]
    split: Split
    left_out: dict[str, str]

    def prepare(self, folder: Path, fabric: Fabric, *, show: bool) -> PretrainedModel:
        self.cases, self.split, facts, self.config, self.left_out = _look_at_data(self.config, show=show)
        found = {"train": self.split.train, "test": self.split.test, "left_out": self.left_out}
        self.facts = {SPLIT_NAME: {**found, "digests": {fact.name: fact.digest for fact in facts}}}
        return make_model(self.config, facts)

    def refuse_changes(self, folder: Path) -> None:
        super().refuse_changes(folder)
        if (folder / SPLIT_NAME).exists():
            _refuse_other_cases(read_facts(folder / SPLIT_NAME, "train"), self.split, self.facts[SPLIT_NAME]["digests"])

    def task(self, *, show: bool) -> VolumeTask:
        config = self.config
        assert config.num_classes is not None
        assert config.patch is not None
        return VolumeTask(
            _load_volumes(config, [self.cases[name] for name in (*self.split.train, *self.split.test)], show=show),
            self.split.train,
            self.split.test,
            num_classes=config.num_classes,
            patch=config.patch,
            batch=config.training.batch,
            seed=config.training.seed,
            foreground=config.foreground,
            augmentation=config.augmentation,
            tell_spacing=config.is_told,
            scale_by=config.scale_by,
            test_patches=config.test_patches,
        )

    def test(self, model: PretrainedModel, *, show: bool) -> dict[str, Any]:
        tested = [self.cases[name] for name in self.split.test[: self.config.test_cases]]
        with counting_progress("testing", len(tested), show=show) as advance:
            rows = score_cases(model, tested, self.config, advance=advance)
        return {**_summarise(rows), "left_out": self.left_out}

    def describe(self, model: PretrainedModel, result: Fit) -> dict[str, Any]:
        return {"task": "volumes", "model": self.config.model, "patches": result.metrics}


def run_experiment(config: VolumesConfig, folder: Path, *, show: bool = True) -> dict[str, Any]:
    """Train, test and save; see :func:`torchsonic.lab.runs.run.run`."""
    return run(VolumeExperiment(config), folder, show=show)


def _look_at_data(
    config: VolumesConfig, *, show: bool
) -> tuple[dict[str, Case], Split, list[Facts], VolumesConfig, dict[str, str]]:
    """Cases by name, the split without bad ones, facts of training cases, and the configuration they complete."""
    cases = {case.name: case for case in find_cases(config.data)}
    split = choose_split(
        list(cases),
        file=config.split,
        folds=config.folds,
        fold=config.fold,
        seed=config.split_seed,
        patient=config.patient,
    )
    used = [cases[name] for name in (*split.train, *split.test)]
    with counting_progress("checking", len(used), show=show) as advance:
        facts, num_classes, left_out = survey(
            used, num_classes=config.num_classes, keep_going=config.keep_going, advance=advance
        )
    split = split.without(list(left_out))
    if not split.train:
        raise ValueError(
            f"all {len(left_out)} training cases were left out; the first one: {next(iter(left_out.values()))}"
        )
    facts = [fact for fact in facts if fact.name in split.train]
    return cases, split, facts, complete_config(config, facts, num_classes), left_out


def _refuse_other_cases(saved: Mapping[str, Any], split: Split, digests: Mapping[str, str]) -> None:
    """Refuse to go on with a run that learnt from other cases, or from other files of the same names."""
    before, known = saved["train"], saved.get("digests", {})
    if before != list(split.train):
        changed = sorted(set(before) ^ set(split.train))
        raise CheckpointError(
            f"the run to be resumed had other training cases, {', '.join(changed[:3])} first; "
            "give the old ones or another folder"
        )
    changed = [name for name, digest in digests.items() if known.get(name, digest) != digest]
    if changed:
        raise CheckpointError(
            f"the run to be resumed learnt from other files of {', '.join(changed[:3])}; "
            "give the old ones or another folder"
        )


def _load_volumes(config: VolumesConfig, cases: Sequence[Case], *, show: bool) -> Collection:
    """Prepared volumes, read before training so that processes that prepare data share them."""
    assert config.common_spacing != "median"
    volumes = Collection(
        cases,
        prepare=partial(prepare, spacing=config.common_spacing, normalisation=config.normalisation),
        num_classes=config.num_classes,
        limit=config.cache_gb * 1e9,
        dtype=np.dtype(config.cache_dtype),
    )
    with counting_progress("reading", len(cases), show=show) as advance:
        for case in cases:
            if not volumes.fill(case.name):
                break
            advance()
    return volumes


def _summarise(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Mean Dice: over cases, each the mean of its classes, as everywhere; and of each class over its cases."""
    columns = zip(*[row["dice"] for row in rows], strict=True)
    classes = [fmean(known) if (known := [d for d in column if d is not None]) else None for column in columns]
    means = [fmean(known) for row in rows if (known := [dice for dice in row["dice"] if dice is not None])]
    return {"dice": fmean(means) if means else None, "dice_per_class": classes, "cases": list(rows)}


def load_run(folder: Path) -> tuple[PretrainedModel, VolumesConfig]:
    """The trained model of a run and its completed configuration."""
    return load_model(folder), read_config(folder)
