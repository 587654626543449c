"""``torchsonic train volumes`` and ``torchsonic predict volumes``: segmentation of NIfTI files."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

from torchsonic.cli.command import (
    UserError,
    check_device,
    make_folder,
    require,
    warnings_in_one_line,
)
from torchsonic.cli.train import TrainCommand
from torchsonic.lab.runs.volumes import PRESETS, VolumesConfig, apply_preset

__all__ = ["PredictVolumes", "TrainVolumes"]


def _require_packages() -> None:
    require("nibabel", "medical")
    require("scipy", "medical")
    require("rich", "train")


@dataclass(frozen=True, kw_only=True)
class TrainVolumes(TrainCommand, VolumesConfig):
    """Train a network on a folder of NIfTI volumes and test it on whole cases."""

    preset: Literal["smoke", "quick"] = "quick"
    """Steps and sizes: smoke takes less than a minute; quick has 1,000 steps."""
    all_folds: bool = False
    """The whole cross-validation, one fold after another, instead of --fold."""

    config_class: ClassVar[type] = VolumesConfig
    presets: ClassVar[Collection[str]] = PRESETS
    apply_preset = staticmethod(apply_preset)
    thrift: ClassVar[str] = "smaller --batch or --patch, or --accumulate"

    def folds_to_train(self) -> Sequence[int]:
        return range(self.folds) if self.all_folds else (self.fold,)

    def run(self) -> None:
        _require_packages()
        if self.model == "unet":
            require("monai", "medical")
        if self.all_folds and self.split is not None:
            raise UserError("--all-folds and --split exclude each other")
        from torchsonic.lab.runs.volumes import run_experiment

        results = self.train(run_experiment, lambda c: f"{c.data}, {c.model}", _print_results)
        found = [result["dice"] for result in results if result and result["dice"] is not None]
        if len(found) > 1:
            print(f"mean Dice over {len(found)} runs: {sum(found) / len(found):.3f}")


@dataclass(frozen=True, kw_only=True)
class PredictVolumes:
    """Segment NIfTI volumes with the model of a run; the labels keep the grid and the affine of the image."""

    positional: ClassVar[tuple[str, ...]] = ("folder",)

    folder: Path
    """Folder of the run."""
    data: Path
    """Folder with images/, or with the images themselves."""
    out: Path
    """Folder for the labels, one NIfTI file for each case."""
    tell_spacing: bool = True
    """Keep the spacing from a network that was trained to be told it."""
    keep_going: bool = False
    """Leave bad cases out with a warning instead of stopping at the first."""
    device: str = "cpu"
    """Where the network runs: cpu, cuda, mps."""

    def run(self) -> None:
        _require_packages()
        from torchsonic.lab.data.volumes import find_cases, write_labels
        from torchsonic.lab.runs.volumes import load_run, predict_case, read_good_cases
        from torchsonic.lab.training.progress import counting_progress
        from torchsonic.models import PretrainedError

        check_device(self.device)
        try:
            model, config = load_run(self.folder)
            model.to(self.device)
        except (OSError, PretrainedError, ValueError, TypeError, KeyError) as error:
            raise UserError(f"{self.folder} holds no finished run on volumes: {error}") from error
        except RuntimeError as error:
            raise UserError(f"--device {self.device}: {error}") from error
        if not self.tell_spacing and not config.is_told:
            raise UserError(
                f"--no-tell-spacing: the network in {self.folder} was not told the spacing in training either"
            )
        try:
            cases = find_cases(self.data, labels=False)
            inputs = {image.resolve().parent for case in cases for image in case.images}
            if self.out.resolve() in {*inputs, (self.data / "labels").resolve()}:
                raise UserError(f"--out {self.out} holds the data, which would be overwritten; name another folder")
            out, written = make_folder(self.out), 0
            with warnings_in_one_line(), counting_progress("predicting", len(cases), show=True) as advance:
                options = {"channels": model.arguments["in_channels"], "keep_going": self.keep_going}
                for volume in read_good_cases(cases, advance=advance, **options):
                    labels = predict_case(model, volume, config, tell_spacing=self.tell_spacing)
                    write_labels(out / f"{volume.name}.nii.gz", labels, volume.affine)
                    written += 1
        except (OSError, ValueError) as error:
            raise UserError(str(error)) from error
        print(f"{written} of {len(cases)} cases written to {out}")


def _print_results(results: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    cases, console = results["cases"], Console()
    if cases:
        table = Table("class", "Dice", "cases", title=f"{results['model']}, {len(cases)} cases tested")
        for number, dice in enumerate(results["dice_per_class"], start=1):
            known = sum(row["dice"][number - 1] is not None for row in cases)
            table.add_row(str(number), "" if dice is None else f"{dice:.3f}", str(known))
        table.add_row("mean", "" if results["dice"] is None else f"{results['dice']:.3f}", "")
        console.print(table)
    if results["left_out"]:
        console.print(f"{len(results['left_out'])} cases were left out: {', '.join(results['left_out'])}")
    console.print(
        f"{results['parameters']:,} parameters, {results['seconds']:.0f} s of training, "
        f"{results['samples_per_second']:.1f} samples/s"
    )
