"""Runs on photographs: training, prediction, and tests at several image sizes."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

from torchsonic.cli.command import OnDevice, UserError, make_folder, option_value, publish
from torchsonic.cli.train import TrainCommand, training_line
from torchsonic.lab.runs.images import PRESETS, ImagesConfig, apply_init
from torchsonic.lab.runs.images.config import Size, rows_and_columns
from torchsonic.lab.runs.images.run import ImageExperiment

PRINTED = ("Top-1, percent", "Top-1 lost relative to the training size, percent")
"""Tables of the report that are also printed."""


@dataclass(frozen=True, kw_only=True)
class TrainImages(TrainCommand, ImagesConfig):
    """Train a classifier on images in train/CLASS/ and val/CLASS/."""

    preset: Literal["smoke", "quick", "imagenet-50m"] = "quick"
    """Steps and sizes. smoke takes less than a minute, quick about 25 with small networks; imagenet-50m follows the
    paper."""

    needs = ("PIL", *TrainCommand.needs)
    config_class: ClassVar[type] = ImagesConfig
    experiment = ImageExperiment
    presets = PRESETS
    thrift: ClassVar[str] = "a smaller --batch or --image-size, or --accumulate"

    @classmethod
    def with_preset(cls, arguments: Sequence[str]) -> Any:
        """Those of the run that the arguments name, too."""
        command, init = super().with_preset(arguments), option_value(arguments, "--init")
        return command if init is None else apply_init(command, Path(init))

    def title(self, config: Any) -> str:
        return f"{config.data}, {config.label}"

    def show(self, results: dict[str, Any]) -> None:
        print(f"top-1 {results['top1']:.1%}, top-5 {results['top5']:.1%} of {results['images']['test']} images")
        for row in results["rows"]:
            words = ", ".join(f"{name} {value:.1%}" for name, value in row.items() if name != "size")
            print(f"top-1, size {row['size']}: {words}")
        if results["left_out"]:
            print("unreadable images left out:", ", ".join(results["left_out"]))
        if results["replaced"]:
            print(f"{len(results['replaced'])} training images could not be read and were replaced by the next")
        print(f"{training_line(results, 'images')}, {results['data_wait']:.1%} of the time waiting for data")


@dataclass(frozen=True, kw_only=True)
class EvaluateImages(OnDevice):
    """Test classifiers at several image sizes."""

    runs: tuple[Path, ...]
    """Folders of finished runs; seeds of one network share a row."""
    resolutions: str = "96,128,160,192,224"
    """Image sizes in pixels, separated by commas: squares such as 96, or rows and columns such as 64x128. The training
    size is always tested."""
    data: Path | None = None
    """Folder of the images, if they have moved since training."""
    control: bool = False
    """Also test networks that cannot be told the spacing on images resized back to the training size."""
    strict: bool = False
    """Stop at the first unreadable image instead of skipping it with a warning."""
    cache_gb: float = 4.0
    """Memory for decoded images, in GB."""
    out: Path = Path("evaluation")
    """Folder for the report."""

    needs = ("PIL", "matplotlib", "rich")
    positional = ("runs",)

    def run(self) -> None:
        if not self.runs:
            raise UserError("name at least one run of 'torchsonic train images'")
        sizes = self._sizes()
        self.check_device()
        make_folder(self.out)
        from torchsonic.lab.report.image_sizes import make_page, score_runs

        options = {"control": self.control, "strict": self.strict, "cache_gb": self.cache_gb}
        report = score_runs(self.runs, sizes, data=self.data, device=self.device, **options)
        publish(make_page(report), self.out, sections=PRINTED)

    def _sizes(self) -> tuple[Size, ...]:
        try:
            shapes = [rows_and_columns(word.strip()) for word in self.resolutions.split(",") if word.strip()]
        except ValueError:
            shapes = []
        if not shapes:
            raise UserError(
                "--resolutions must be sizes of at least 8, such as 96 or 64x128, separated by commas, got "
                f"{self.resolutions!r}"
            )
        return tuple(rows if rows == columns else f"{rows}x{columns}" for rows, columns in shapes)


@dataclass(frozen=True, kw_only=True)
class PredictImages(OnDevice):
    """Print the most likely classes of images."""

    folder: Path
    """Folder of a run on images, or of its saved model."""
    files: tuple[Path, ...] = ()
    """Images and folders of images; the same as --data."""
    data: tuple[Path, ...] = ()
    """Images and folders of images."""
    out: Path | None = None
    """JSON file for the predictions, which are then not printed."""
    top: int = 5
    """Number of classes to print for each image."""
    size: int | None = None
    """Image size in pixels; by default as in training. A network that takes the spacing is told it."""
    json: bool = False
    """Print JSON: a list of {"file": .., "top": [{"class": .., "probability": ..}, ..]}."""
    strict: bool = False
    """Stop at the first unreadable image instead of skipping it with a warning."""

    needs = ("PIL", "rich")
    positional = ("folder", "files")

    def run(self) -> None:
        from torchsonic.lab.report.runs import count
        from torchsonic.lab.runs.images import list_files, load_run, predict_files
        from torchsonic.lab.training.progress import counting_progress

        if not self.files + self.data:
            raise UserError("--data: name at least one image or folder")
        if self.top < 1:
            raise UserError(f"--top must be at least 1, got {self.top}")
        if self.size is not None and self.size < 8:
            raise UserError(f"--size must be at least 8, got {self.size}")
        self.check_device()
        if self.out is not None:
            make_folder(self.out.parent)
        model, config, classes = load_run(self.folder)
        files = list_files(self.files + self.data)
        options: dict[str, Any] = {"top": self.top, "size": self.size, "strict": self.strict}
        if self.out is None:  # what is printed may go to a file, where a bar has no place
            print(f"predicting {count(len(files), 'image')} ...", file=sys.stderr)
        with counting_progress("predicting", len(files), show=self.out is not None) as advance:
            rows = predict_files(model.to(self.device), config, classes, files, advance=advance, **options)
        if len(rows) < len(files):
            print(f"{len(files) - len(rows)} of {len(files)} images could not be read", file=sys.stderr)
        self._answer(rows)
        if not rows:
            raise UserError("no image could be read")

    def _answer(self, rows: list[dict[str, Any]]) -> None:
        if self.out is not None:
            self.out.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
            print(f"{len(rows)} predictions written to {self.out}")
        elif self.json:
            print(json.dumps(rows, indent=1))
        else:
            for row in rows:
                words = ", ".join(f"{answer['class']} {answer['probability']:.1%}" for answer in row["top"])
                print(f"{row['file']}: {words}")
