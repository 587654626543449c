"""Runs on NIfTI volumes: training, prediction, and scores of runs or of any tool's segmentations."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Literal

from torchsonic.cli.command import OnDevice, UserError, make_folder, publish, require
from torchsonic.cli.train import TrainCommand, TrainFolds, training_line
from torchsonic.lab.runs.volumes import PRESETS, VolumesConfig
from torchsonic.lab.runs.volumes.run import VolumeExperiment

PRINTED = ("Scores", "Differences", "Lesions")
"""Tables of the report that are also printed."""


@dataclass(frozen=True, kw_only=True)
class TrainVolumes(TrainFolds, VolumesConfig):
    """Train a segmentation network on NIfTI files in images/ and labels/."""

    preset: Literal["smoke", "quick"] = "quick"
    """Steps and sizes. smoke takes less than a minute; quick trains for 1,000 steps."""

    needs = ("nibabel", "scipy", *TrainCommand.needs)
    config_class: ClassVar[type] = VolumesConfig
    experiment = VolumeExperiment
    presets = PRESETS
    renamed: ClassVar = {**TrainCommand.renamed, "--common-spacing": "--spacing"}

    def show(self, results: dict[str, Any]) -> None:
        from rich.console import Console
        from rich.table import Table

        from torchsonic.lab.report.runs import count

        cases, console = results["cases"], Console()
        if cases:
            table = Table("class", "Dice", "cases", title=f"{results['model']}, {count(len(cases), 'case')} tested")
            for number, dice in enumerate(results["dice_per_class"], start=1):
                known = sum(row["dice"][number - 1] is not None for row in cases)
                table.add_row(str(number), "" if dice is None else f"{dice:.3f}", str(known))
            table.add_row("mean", "" if results["dice"] is None else f"{results['dice']:.3f}", "")
            console.print(table)
        if results["left_out"]:
            console.print(f"{count(len(results['left_out']), 'case')} left out: {', '.join(results['left_out'])}")
        console.print(training_line(results))


@dataclass(frozen=True, kw_only=True)
class PredictVolumes(OnDevice):
    """Segment NIfTI volumes.

    Labels keep the grid and the affine of the image.
    """

    folder: Path
    """Folder of a run on volumes, or a name from 'torchsonic models --pretrained'."""
    data: Path
    """Folder with images/, or with the images themselves."""
    out: Path
    """Folder for the labels, one NIfTI file for each case."""
    tell_spacing: bool = True
    """Do not tell the spacing to a network that was told it in training."""
    tell_orientation: bool = True
    """Do not tell the orientation to a network that was told it in training."""
    keep_going: bool = False
    """Skip bad cases with a warning instead of stopping at the first."""

    needs = ("nibabel", "scipy", "rich")
    positional = ("folder",)
    thrift: ClassVar[str] = "a device with more memory, or --device cpu"

    def run(self) -> None:
        from torchsonic.lab.data.volumes import find_cases, read_case, write_labels
        from torchsonic.lab.runs.volumes import AxesWatch, load_run, predict_case, read_good_cases
        from torchsonic.lab.training.progress import counting_progress

        self.check_device()
        model, config = load_run(self.folder)
        model.to(self.device)
        for name, heard in (("spacing", config.is_told), ("orientation", config.is_oriented)):
            if not getattr(self, f"tell_{name}") and not heard:
                raise UserError(f"--no-tell-{name}: the network in {self.folder} was not told it in training either")
        cases = find_cases(self.data, labels=False)
        inputs = {image.resolve().parent for case in cases for image in case.images}
        if self.out.resolve() in {*inputs, (self.data / "labels").resolve()}:
            raise UserError(f"--out {self.out} contains the data, which would be overwritten; choose another folder")
        out, written = make_folder(self.out), 0
        with counting_progress("predicting", len(cases), show=True) as advance:
            told = {"tell_spacing": self.tell_spacing, "tell_orientation": self.tell_orientation}
            watch = AxesWatch(self.folder, config, tell_orientation=self.tell_orientation)
            options = {"channels": model.arguments["in_channels"], "keep_going": self.keep_going}
            read = partial(read_case, straight=watch.is_told)
            for volume in read_good_cases(cases, read=read, advance=advance, **options):
                watch(volume)
                labels = predict_case(model, volume, config, **told)
                write_labels(out / f"{volume.name}.nii.gz", labels, volume.affine)
                written += 1
        print(f"{written} of {len(cases)} cases written to {out}")


@dataclass(frozen=True, kw_only=True)
class EvaluateVolumes(OnDevice):
    """Score segmented volumes, of runs or of any tool.

    RUN [RUN ...]: each network predicts its own test cases, or all cases of --external. Without a run: --predictions
    and --labels name two folders of NIfTI files with the same names.
    """

    runs: tuple[Path, ...] = ()
    """Folders of finished runs; the folds of one network share a row."""
    external: Path | None = None
    """Folder with images/ and labels/ from elsewhere; all its cases are predicted instead of the runs' own."""
    data: Path | None = None
    """Folder of the runs' own cases, if they were moved since training."""
    predictions: tuple[Path, ...] = ()
    """Folders of labels predicted by nnU-Net or any other tool, instead of runs; several are compared."""
    labels: Path | None = None
    """Folder of true labels, with --predictions."""
    images: Path | None = None
    """Folder of images to draw behind the labels, with --predictions."""
    classes: tuple[str, ...] = ()
    """Names of the classes from 1 up; by default those in nnU-Net's dataset.json, or their numbers. With --predictions,
    also regions of several labels, which may overlap: kidney=1,2,3 tumour=2."""
    lesions: int | None = None
    """Class whose lesions are scored one by one: AUROC, AP, F1, sensitivity, precision."""
    probabilities: Path | None = None
    """Folder of probabilities of the lesion class, with --predictions; by default next to them (nnU-Net's .npz)."""
    threshold: float = 0.5
    """Lowest confidence at which a lesion is reported."""
    tolerance: float = 2.0
    """Distance in mm within which surfaces agree."""
    pictures: bool = True
    """Do not draw pictures."""
    keep_going: bool = False
    """Skip bad cases with a warning instead of stopping at the first."""
    out: Path = Path("evaluation")
    """Folder for the report and for the predictions of runs."""

    needs = ("monai", "nibabel", "scipy", "matplotlib", "rich")
    positional = ("runs",)

    def run(self) -> None:
        self._check()
        if self.lesions is not None:
            require("picai_eval")
        from torchsonic.lab.report.volumes import Scoring, make_page, score_folders
        from torchsonic.lab.report.volumes.runs import score_runs

        make_folder(self.out)
        scoring = Scoring(lesion_class=self.lesions, **self.values_for(Scoring))
        if self.labels is not None:
            more = {"images": self.images, "probabilities": self.probabilities}
            evaluation = score_folders(self.predictions, self.labels, scoring=scoring, **more)
        else:
            more = {"external": self.external, "data": self.data, "device": self.device}
            evaluation = score_runs(self.runs, self.out, scoring=scoring, **more)
        publish(make_page(evaluation), self.out, sections=PRINTED)

    def _check(self) -> None:
        if bool(self.runs) == bool(self.predictions):
            raise UserError("name runs, or use --predictions and --labels, but not both")
        for name in ("labels", "images", "probabilities") if self.runs else ("external", "data", "device"):
            if getattr(self, name) not in (None, OnDevice.device):
                owner, other = ("--predictions", "runs") if self.runs else ("runs", "--predictions")
                raise UserError(f"--{name} belongs to {owner}, not to {other}")
        if not self.runs and self.labels is None:
            raise UserError("--predictions needs --labels, the folder of true labels")
        if self.external is not None and self.data is not None:
            raise UserError("--external and --data cannot be combined: name one folder of cases")
        if not 0.0 < self.threshold <= 1.0:
            raise UserError(f"--threshold must be in (0, 1], got {self.threshold}")
        if not self.tolerance > 0:
            raise UserError(f"--tolerance must be positive, got {self.tolerance}")
        for name, usual in (("probabilities", None), ("threshold", EvaluateVolumes.threshold)):
            if self.lesions is None and getattr(self, name) != usual:
                raise UserError(f"--{name} needs --lesions, the class of the lesions")
        self.check_device()


@dataclass(frozen=True, kw_only=True)
class CompareOrientations(OnDevice):
    """Test runs on rotated volumes, and on volumes stored with other axis orders.

    Each network predicts its own test cases, with and without the orientation.
    """

    runs: tuple[Path, ...]
    """Folders of finished runs on volumes."""
    turn: tuple[float, ...] = (15.0, 30.0, 45.0, 90.0)
    """Angles in degrees; each case is rotated about a random axis of its own."""
    storages: int = 48
    """Store each case in this many of the 48 orders and directions of axes, drawn at random."""
    data: Path | None = None
    """Folder of the runs' cases, if they were moved since training."""
    test_cases: int | None = None
    """Test at most this many cases; all by default."""
    out: Path = Path("orientations")
    """Folder for the report."""

    needs = ("nibabel", "scipy", "matplotlib", "rich")
    positional = ("runs",)

    def run(self) -> None:
        from torchsonic.lab.report.volumes.turned import make_page, score_run

        self.check_device()
        if not self.runs:
            raise UserError("name at least one folder of a run on volumes")
        if not self.turn and not self.storages:
            raise UserError("--turn names no angle and --storages is 0, so there is nothing to test")
        if not all(0 <= angle <= 180 for angle in self.turn):
            raise UserError(f"--turn must be 0 to 180 degrees, got {' '.join(f'{angle:g}' for angle in self.turn)}")
        if not 0 <= self.storages <= 48:
            raise UserError(f"--storages must be 0 to 48, got {self.storages}")
        if self.test_cases is not None and self.test_cases < 1:
            raise UserError(f"--test-cases must be at least 1, got {self.test_cases}")
        options = {"data": self.data, "most": self.test_cases, "device": self.device}
        found = [score_run(folder, turns=self.turn, storages=self.storages, **options) for folder in self.runs]
        publish(make_page(found), self.out)
