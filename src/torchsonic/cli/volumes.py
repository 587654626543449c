"""``torchsonic train volumes`` and ``torchsonic predict volumes``: segmentation of NIfTI files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, ClassVar, Literal

from torchsonic.cli.command import (
    UserError,
    check_device,
    make_folder,
    option_value,
    require,
    training_errors_in_words,
    warnings_in_one_line,
)
from torchsonic.lab.runs.volumes import PRESETS, VolumesConfig, apply_preset

__all__ = ["PredictVolumes", "TrainVolumes"]

RUNS = Path("runs")


def _require_packages(*, training: bool) -> None:
    require("nibabel", "medical")
    require("scipy", "medical")
    require("rich", "train")
    if training:
        require("lightning_fabric", "train")


@dataclass(frozen=True, kw_only=True)
class TrainVolumes(VolumesConfig):
    """Train a network on a folder of NIfTI volumes and test it on whole cases."""

    preset: Literal["smoke", "quick"] = "quick"
    """Steps and sizes: smoke takes less than a minute; quick has 1,000 steps."""
    seeds: tuple[int, ...] = ()
    """Several seeds, one run after another, instead of --seed."""
    all_folds: bool = False
    """The whole cross-validation, one fold after another, instead of --fold."""
    out: Path = RUNS
    """Folder of runs; each run has its own in it, and goes on if it was stopped."""

    @classmethod
    def with_preset(cls, arguments: Sequence[str]) -> Any:
        """The defaults of the preset that the arguments name, over which further options then win."""
        chosen = option_value(arguments, "--preset") or cls.preset
        if chosen not in PRESETS:  # to be refused by the parser, in its words
            return cls()
        return replace(apply_preset(cls(), chosen), preset=chosen)

    def run(self) -> None:
        _require_packages(training=True)
        if self.model == "unet":
            require("monai", "medical")
        from torchsonic.lab.runs.volumes import run_experiment

        found: list[float] = []
        make_folder(self.out)
        for config in self._runs():
            folder = self.out / config.name
            print(f"{config.data}, {config.model}, seed {config.training.seed}: {folder}")
            with training_errors_in_words("smaller --batch or --patch, or --accumulate"), warnings_in_one_line():
                results = run_experiment(config, folder)
            _print_results(results)
            found += [results["dice"]] if results and results["dice"] is not None else []
        if len(found) > 1:
            print(f"mean Dice over {len(found)} runs: {sum(found) / len(found):.3f}")

    def _runs(self) -> list[VolumesConfig]:
        if self.all_folds and self.split is not None:
            raise UserError("--all-folds and --split exclude each other")
        shared = {f.name: getattr(self, f.name) for f in fields(VolumesConfig)}
        return [
            VolumesConfig(**{**shared, "fold": fold, "training": replace(self.training, seed=seed)})
            for fold in (range(self.folds) if self.all_folds else (self.fold,))
            for seed in self.seeds or (self.training.seed,)
        ]


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
        _require_packages(training=False)
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

    if not results:  # another process than the first
        return
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
