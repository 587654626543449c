"""``torchsonic train masks``, ``predict masks`` and ``evaluate masks``: segmentation of pictures."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

from torchsonic.cli.command import OnDevice, make_folder, publish
from torchsonic.cli.train import TrainCommand, TrainFolds
from torchsonic.lab.runs.mask_scores import MEASURES
from torchsonic.lab.runs.masks import PRESETS, MaskExperiment, MasksConfig, predict_masks

PACKAGES = ("PIL", "scipy")


@dataclass(frozen=True, kw_only=True)
class TrainMasks(TrainFolds, MasksConfig):
    """Train a network on images/ and masks/ of classes or of objects, and test it on whole images."""

    preset: Literal["smoke", "quick"] = "quick"
    """Steps and sizes. smoke takes less than a minute; quick trains for 1,500 steps."""

    config_class: ClassVar[type] = MasksConfig
    experiment = MaskExperiment
    presets = PRESETS
    needs = (*PACKAGES, *TrainCommand.needs)

    def show(self, results: dict[str, Any]) -> None:
        from torchsonic.lab.report.runs import count

        for name, what in MEASURES.items():
            if results.get(name) is not None:
                each = results[f"{name}_per_{what}"]
                words = ", ".join("none" if value is None else f"{value:.3f}" for value in each)
                print(f"{name} {results[name]:.3f} (by {what}: {words}), {count(len(results['cases']), 'image')}")
        if results["left_out"]:
            print("images left out:", ", ".join(results["left_out"]))
        print(f"{results['parameters']:,} parameters, {results['seconds']:.0f} s of training")


@dataclass(frozen=True, kw_only=True)
class PredictMasks(OnDevice):
    """Write the masks that a run's network predicts for images, as PNG files with the same names and sizes."""

    folder: Path
    """Run of 'torchsonic train masks'."""
    data: Path
    """An image, a folder of images, or a folder with images/ in it."""
    out: Path
    """Folder for the masks."""
    spacing: tuple[float, ...] = ()
    """Size of a pixel, or its height and width; by default as in training."""
    spacing_table: Path | None = None
    """CSV file with the pixel size of each image instead: name,size or name,height,width."""
    keep_going: bool = False
    """Skip bad images with a warning instead of stopping at the first."""

    needs = ("rich", *PACKAGES)
    positional = ("folder",)

    def run(self) -> None:
        self.check_device()
        options: dict[str, Any] = {"spacing_table": self.spacing_table, "keep_going": self.keep_going}
        out = make_folder(self.out)
        found = predict_masks(self.folder, self.data, out, self.spacing, device=self.device, **options)
        print(f"{found[0]} of {found[1]} masks written to {self.out}")


@dataclass(frozen=True, kw_only=True)
class EvaluateMasks(PredictMasks):
    """Test a run's network on other images with masks, and write a report."""

    data: Path
    """Folder with images/ and masks/, as for training."""
    out: Path = Path("evaluation")
    """Folder for the report."""

    needs = ("matplotlib", *PredictMasks.needs)

    def run(self) -> None:
        from torchsonic.lab.report.masks import evaluate_run

        self.check_device()
        out = make_folder(self.out)
        options: dict[str, Any] = {"spacing_table": self.spacing_table, "keep_going": self.keep_going}
        publish(evaluate_run(self.folder, self.data, self.spacing, device=self.device, **options), out)
