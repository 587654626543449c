"""``torchsonic train images``, ``evaluate images`` and ``predict images``: classification of photographs."""

from __future__ import annotations

import json
import sys
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

from torchsonic.cli.command import (
    UserError,
    check_device,
    make_folder,
    option_value,
    require,
    warnings_in_one_line,
)
from torchsonic.cli.train import TrainCommand
from torchsonic.lab.runs.images import PRESETS, ImagesConfig, apply_init, apply_preset

__all__ = ["EvaluateImages", "PredictImages", "TrainImages"]

PRINTED = ("Top-1, percent", "Top-1 lost relative to the training size, percent")
"""Tables of the report that a console shows, too."""


@dataclass(frozen=True, kw_only=True)
class TrainImages(TrainCommand, ImagesConfig):
    """Train a network on folders of images, train/CLASS/ and val/CLASS/, and test it."""

    preset: Literal["smoke", "quick", "imagenet-50m"] = "quick"
    """Steps and sizes: smoke takes less than a minute, quick about 25 (small networks); imagenet-50m is the paper's."""

    config_class: ClassVar[type] = ImagesConfig
    presets: ClassVar[Collection[str]] = PRESETS
    apply_preset = staticmethod(apply_preset)
    thrift: ClassVar[str] = "smaller --batch or --image-size, or --accumulate"

    @classmethod
    def with_preset(cls, arguments: Sequence[str]) -> Any:
        """Those of the run that the arguments name, too."""
        command, init = super().with_preset(arguments), option_value(arguments, "--init")
        return command if init is None else apply_init(command, Path(init))

    def run(self) -> None:
        require("PIL", "images")
        from torchsonic.lab.runs.images import run_experiment

        self.train(run_experiment, lambda c: f"{c.data}, {c.label}", _print_results)


def _print_results(results: dict[str, Any]) -> None:
    print(f"top-1 {results['top1']:.1%}, top-5 {results['top5']:.1%} of {results['images']['test']} images")
    if results["left_out"]:
        print(f"{len(results['left_out'])} unreadable images were left out: {', '.join(list(results['left_out'])[:5])}")
    if results["replaced"]:
        print(f"{len(results['replaced'])} training images could not be read and were replaced by the next")
    print(
        f"{results['parameters']:,} parameters, {results['seconds']:.0f} s of training, "
        f"{results['samples_per_second']:.1f} images/s, {results['data_wait']:.1%} of the time waiting for data"
    )


@dataclass(frozen=True, kw_only=True)
class EvaluateImages:
    """Test finished runs at several image sizes, told the spacing and not, and write a report beside the paper's."""

    positional: ClassVar[tuple[str, ...]] = ("runs",)

    runs: tuple[Path, ...]
    """Folders of finished runs of 'torchsonic train images'; seeds of one network share a row."""
    resolutions: str = "96,128,160,192,224"
    """Pixels on a side, with commas; the training size is always tested."""
    data: Path | None = None
    """Where the images of the runs lie, if not where they lay in training."""
    control: bool = False
    """Test networks that cannot be told the spacing also on images resized back to the training size."""
    strict: bool = False
    """Refuse unreadable images instead of leaving them out with a warning."""
    cache_gb: float = 4.0
    """Memory for decoded images."""
    device: str = "cpu"
    """Where the networks compute: cpu, cuda, mps."""
    out: Path = Path("evaluation")
    """Folder for the report."""

    def run(self) -> None:
        require("PIL", "images")
        require("matplotlib", "viz")
        require("rich", "cli")
        if not self.runs:
            raise UserError("name at least one run of 'torchsonic train images'")
        sizes = self._sizes()
        check_device(self.device)
        out = make_folder(self.out)
        from torchsonic.lab.report import print_document, write_document
        from torchsonic.lab.report.image_sizes import make_page, score_runs
        from torchsonic.models import PretrainedError

        try:
            with warnings_in_one_line():
                report = score_runs(
                    self.runs,
                    sizes,
                    data=self.data,
                    control=self.control,
                    strict=self.strict,
                    cache_gb=self.cache_gb,
                    device=self.device,
                )
            document = make_page(report)
            written = write_document(document, out)
        except (OSError, PretrainedError, ValueError, RuntimeError) as error:
            raise UserError(str(error)) from error
        print_document(document, sections=PRINTED)
        print("written:", written[0])

    def _sizes(self) -> tuple[int, ...]:
        try:
            sizes = tuple(int(word) for word in self.resolutions.split(",") if word.strip())
        except ValueError:
            sizes = ()
        if not sizes or min(sizes) < 8:
            raise UserError(f"--resolutions must be sizes of at least 8 with commas, got {self.resolutions!r}")
        return sizes


@dataclass(frozen=True, kw_only=True)
class PredictImages:
    """Print the likeliest classes of image files, or of all images in folders."""

    positional: ClassVar[tuple[str, ...]] = ("folder", "files")

    folder: Path
    """Folder of a run of 'torchsonic train images', or of its saved model alone."""
    files: tuple[Path, ...]
    """Image files and folders of these."""
    top: int = 5
    """How many classes of each image."""
    size: int | None = None
    """Pixels on a side; those of training by default. A network that takes the spacing is told it."""
    json: bool = False
    """Print JSON: a list of {"file": .., "top": [{"class": .., "probability": ..}, ..]}."""
    strict: bool = False
    """Refuse unreadable images instead of leaving them out with a warning."""
    device: str = "cpu"
    """Where the network computes: cpu, cuda, mps."""

    def run(self) -> None:
        require("PIL", "images")
        from torchsonic.lab.runs.images import list_files, load_run, predict_files
        from torchsonic.models import PretrainedError

        if not self.files:
            raise UserError("name at least one image or folder")
        if self.top < 1:
            raise UserError(f"--top must be at least 1, got {self.top}")
        if self.size is not None and self.size < 8:
            raise UserError(f"--size must be at least 8, got {self.size}")
        check_device(self.device)
        try:
            model, config, classes = load_run(self.folder)
            model.to(self.device)
        except (OSError, PretrainedError, ValueError, TypeError, KeyError) as error:
            raise UserError(f"{self.folder} holds no finished run on images: {error}") from error
        try:
            files = list_files(self.files)
            with warnings_in_one_line():
                options: dict[str, Any] = {"top": self.top, "size": self.size, "strict": self.strict}
                rows = predict_files(model, config, classes, files, **options)
        except (OSError, ValueError) as error:
            raise UserError(str(error)) from error
        if len(rows) < len(files):
            print(f"{len(files) - len(rows)} of {len(files)} images could not be read", file=sys.stderr)
        if self.json:
            print(json.dumps(rows, indent=1))
        else:
            for row in rows:
                words = ", ".join(f"{answer['class']} {answer['probability']:.1%}" for answer in row["top"])
                print(f"{row['file']}: {words}")
        if not rows:
            raise UserError("no image could be read")
