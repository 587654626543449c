"""Training on a folder of volumes, and a test on whole cases."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from copy import deepcopy
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from torchsonic.lab.data.volumes import Case, Volume, find_cases, read_case
from torchsonic.lab.data.volumes.collection import Collection
from torchsonic.lab.data.volumes.orientation import straighten
from torchsonic.lab.data.volumes.preparation import prepare
from torchsonic.lab.data.volumes.survey import Facts, survey
from torchsonic.lab.metrics.cost import peak_bytes
from torchsonic.lab.metrics.results import mean_known
from torchsonic.lab.runs.folder import RunError, kind_of, load_model, read_config, read_facts
from torchsonic.lab.runs.run import Experiment, run
from torchsonic.lab.runs.volumes.config import SegmentationConfig, VolumesConfig
from torchsonic.lab.runs.volumes.plan import complete_config, make_model
from torchsonic.lab.runs.volumes.predict import EXACT_REMEDY
from torchsonic.lab.runs.volumes.scores import score_cases
from torchsonic.lab.runs.volumes.split import Split, choose_split
from torchsonic.lab.training import CheckpointError, Fit
from torchsonic.lab.training.progress import counting_progress
from torchsonic.lab.training.task import share
from torchsonic.lab.training.volumes import VolumeTask
from torchsonic.models import PretrainedModel

if TYPE_CHECKING:
    from lightning_fabric import Fabric

S = TypeVar("S", bound=SegmentationConfig)
SPLIT_NAME = "split.json"
DICE = {"dice": "class"}


class SegmentationExperiment(Experiment[S, PretrainedModel]):
    """Segmentation from patches of cases; ``split.json`` holds which were learnt from, and what was left out.

    A kind supplies the cases, how one is read and prepared, the network, and the test.
    """

    # The names of the cases are compared instead of the settings that gave them.
    may_change = (
        *("data", "split", "folds", "fold", "split_seed", "patient", "keep_going"),
        *("test_cases", "overlap", "cache_gb", "patch_voxels"),
    )
    cases: dict[str, Case]
    split: Split
    left_out: dict[str, str]
    loop_task: VolumeTask

    @abstractmethod
    def find_cases(self) -> list[Case]:
        """All cases of the folder, with labels."""

    @abstractmethod
    def read_case(self, case: Case, *, num_classes: int | None) -> Volume:
        """A case in memory, its label the classes to be learnt; a bad one raises ``CaseError``."""

    @abstractmethod
    def prepare_volume(self, volume: Volume) -> Volume:
        """A volume as the network sees it."""

    @abstractmethod
    def make_model(self, facts: Sequence[Facts], num_classes: int) -> PretrainedModel:
        """Complete ``config`` by what is known of the training cases, and make the network."""

    @abstractmethod
    def make_task(self, volumes: Collection, **options: Any) -> VolumeTask:
        """The task of the loop on prepared volumes, with the options that all kinds have."""

    def prepare(self, folder: Path, fabric: Fabric, *, show: bool) -> PretrainedModel:
        facts, num_classes = self._look_at_data(show=show)
        found = {"train": self.split.train, "test": self.split.test, "left_out": self.left_out}
        found |= {"axes": sorted({fact.axes for fact in facts}), "oblique": max(fact.oblique for fact in facts)}
        self.facts = {SPLIT_NAME: {**found, "digests": {fact.name: fact.digest for fact in facts}}}
        return self.make_model(facts, num_classes)

    def _look_at_data(self, *, show: bool) -> tuple[list[Facts], int]:
        """Find and check the cases, and split the good ones; facts of those to learn from, and how many classes."""
        config = self.config
        self.cases = {case.name: case for case in self.find_cases()}
        if len(self.cases) == 1 and config.split is None:
            raise ValueError(f"{config.data} has only one case, so none is left for testing; add cases")
        split = choose_split(
            list(self.cases),
            file=config.split,
            folds=config.folds,
            fold=config.fold,
            seed=config.split_seed,
            patient=config.patient,
        )
        if config.hold_out:
            split = split.hold_out(config.hold_out, seed=config.split_seed, patient=config.patient)
        used = [self.cases[name] for name in (*split.train, *split.test)]
        with counting_progress("checking", len(used), show=show) as advance:
            options: dict[str, Any] = {"num_classes": config.num_classes, "keep_going": config.keep_going}
            facts, num_classes, self.left_out = survey(used, read=self.read_case, advance=advance, **options)
        self.split = split.without(list(self.left_out))
        if not self.split.train:
            first = next(iter(self.left_out.values()))
            raise ValueError(f"all {len(self.left_out)} training cases were left out; the first one: {first}")
        return [fact for fact in facts if fact.name in self.split.train], num_classes

    def refuse_changes(self, folder: Path) -> None:
        super().refuse_changes(folder)
        if (folder / SPLIT_NAME).exists():
            _refuse_other_cases(read_facts(folder / SPLIT_NAME, "train"), self.split, self.facts[SPLIT_NAME]["digests"])

    def task(self, *, show: bool) -> VolumeTask:
        config = self.config
        self.loop_task = self.make_task(
            self._load_volumes(show=show),
            train=self.split.train,
            test=self.split.test,
            num_classes=config.num_classes,
            batch=config.training.batch,
            seed=config.training.seed,
            foreground=config.foreground,
            augmentation=config.augmentation,
            tell_spacing=config.is_told,
            scale_by=config.scale_by,
            test_patches=config.test_patches,
        )
        return self.loop_task

    def measure_memory(self, model: PretrainedModel) -> float:
        """Most memory in GB that a training step takes in full precision, beyond weights and data."""
        from lightning_fabric.utilities import move_data_to_device

        training, device = self.config.training, next(model.parameters()).device
        batch = move_data_to_device(self.loop_task.batch(0, share(training.batch, 0, training.accumulate)), device)
        copy = deepcopy(model).train()  # a step may change more than gradients

        def step() -> None:
            self.loop_task.loss(copy, batch).backward()

        step()  # fills what layers keep
        return peak_bytes(step, device) / 1e9

    def _load_volumes(self, *, show: bool) -> Collection:
        """Prepared volumes, read before training so that processes that prepare data share them."""
        config, cases = self.config, [self.cases[name] for name in (*self.split.train, *self.split.test)]
        volumes = Collection(
            cases,
            read=self.read_case,
            prepare=self.prepare_volume,
            num_classes=config.num_classes,
            limit=config.cache_gb * 1e9,
            dtype=np.dtype(config.cache_dtype),
            oriented=config.hears_oblique,
        )
        with counting_progress("reading", len(cases), show=show) as advance:
            for case in cases:
                if not volumes.fill(case.name):
                    break
                advance()
        return volumes

    @property
    def tested(self) -> list[Case]:
        """Cases of the test at the end."""
        return [self.cases[name] for name in self.split.test[: self.config.test_cases]]


class VolumeExperiment(SegmentationExperiment[VolumesConfig]):
    """Segmentation of NIfTI volumes."""

    kind = "volumes"
    may_change = (*SegmentationExperiment.may_change, "test_turns", "test_storages")

    def find_cases(self) -> list[Case]:
        return find_cases(self.config.data)

    def read_case(self, case: Case, *, num_classes: int | None) -> Volume:
        volume = read_case(case, num_classes=num_classes, straight=self.config.is_oriented)
        return straighten(volume)[0] if self.config.is_oriented else volume

    def prepare_volume(self, volume: Volume) -> Volume:
        assert self.config.common_spacing != "median"
        return prepare(volume, spacing=self.config.common_spacing, normalisation=self.config.normalisation)

    def make_model(self, facts: Sequence[Facts], num_classes: int) -> PretrainedModel:
        self.config = complete_config(self.config, facts, num_classes)
        _warn_of_oblique(self.config, max(fact.oblique for fact in facts))
        return make_model(self.config, facts)

    def make_task(self, volumes: Collection, **options: Any) -> VolumeTask:
        assert self.config.patch is not None
        return VolumeTask(volumes, patch=self.config.patch, **options)

    def test(self, model: PretrainedModel, *, show: bool) -> dict[str, Any]:
        with counting_progress("testing", len(self.tested), show=show) as advance:
            rows = score_cases(model, self.tested, self.config, advance=advance)
        return {**mean_scores(rows), "left_out": self.left_out}

    def describe(self, model: PretrainedModel, result: Fit) -> dict[str, Any]:
        return {
            "task": "volumes",
            "model": self.config.model,
            "patches": result.metrics,
            "step_gb": self.measure_memory(model),
        }


def run_experiment(config: VolumesConfig, folder: Path, *, show: bool = True) -> dict[str, Any]:
    """Train, test and save; see :func:`torchsonic.lab.runs.run.run`."""
    return run(VolumeExperiment(config), folder, show=show)


def _warn_of_oblique(config: VolumesConfig, degrees: float) -> None:
    """Say that the paper's variant cannot be told what remains of an oblique orientation."""
    if config.is_oriented and not config.hears_oblique and round(degrees) > 0:
        warnings.warn(
            f"training cases lie at up to {degrees:.0f} degrees to the axes of space, but Sonic layers of variant "
            "paper cannot take an oblique orientation, so each case is treated as if it lay along its nearest axes; "
            f"to tell the network the rest, {EXACT_REMEDY}",
            stacklevel=2,
        )


def _refuse_other_cases(saved: Mapping[str, Any], split: Split, digests: Mapping[str, str]) -> None:
    """Refuse to go on with a run that learnt from other cases, or from other files of the same names."""
    before, known = saved["train"], saved.get("digests", {})
    if before != list(split.train):
        changed = sorted(set(before) ^ set(split.train))
        raise CheckpointError(
            f"the run to resume had other training cases, {', '.join(changed[:3])} first; "
            "use the old ones or another folder"
        )
    changed = [name for name, digest in digests.items() if known.get(name, digest) != digest]
    if changed:
        raise CheckpointError(
            f"the run to resume learned from other files of {', '.join(changed[:3])}; "
            "use the old ones or another folder"
        )


def mean_scores(rows: Sequence[dict[str, Any]], measures: Mapping[str, str] = DICE) -> dict[str, Any]:
    """Mean of each measure over cases, each the mean of its classes (or what else it has); and of each over cases."""
    found: dict[str, Any] = {}
    for measure, what in measures.items():
        found[measure] = mean_known(mean_known(row[measure]) for row in rows)
        found[f"{measure}_per_{what}"] = [
            mean_known(column) for column in zip(*[row[measure] for row in rows], strict=True)
        ]
    return {**found, "cases": list(rows)}


def load_run(folder: Path) -> tuple[PretrainedModel, VolumesConfig]:
    """The trained model of a run and its completed configuration."""
    if (kind := kind_of(folder)) != "volumes":
        raise RunError(f"{folder} is a run on {kind}, not on volumes")
    return load_model(folder), read_config(folder, VolumesConfig)
