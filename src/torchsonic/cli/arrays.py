"""Runs on arrays (signals and small images), and digits to try them on."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

from torchsonic.cli.command import Command, UserError, make_folder
from torchsonic.cli.train import TrainCommand, training_line
from torchsonic.lab.runs.arrays import PRESETS, ArrayExperiment, ArraysConfig


@dataclass(frozen=True, kw_only=True)
class TrainArrays(TrainCommand, ArraysConfig):
    """Train a classifier on signals or small images in train.npz and test.npz."""

    preset: Literal["smoke", "quick"] = "quick"
    """Steps and sizes. smoke takes less than a minute; quick trains for 2,000 steps."""

    config_class: ClassVar[type] = ArraysConfig
    experiment = ArrayExperiment
    presets = PRESETS
    thrift: ClassVar[str] = "a smaller --batch, or --accumulate"

    def show(self, results: dict[str, Any]) -> None:
        print(f"accuracy {results['accuracy']:.2%} of {results['samples']['test']} samples")
        for row in results["rows"]:
            words = ", ".join(f"{name} {value:.2%}" for name, value in row.items() if name != "rate")
            print(f"at {row['rate']:g} times the rate: {words}")
        print(training_line(results))


@dataclass(frozen=True, kw_only=True)
class DataMnist(Command):
    """Write handwritten digits for 'train arrays': rotated, upright but tested rotated, and as sequences of pixels."""

    data: Path
    """Folder with the four MNIST files, train-images-idx3-ubyte.gz and so on."""
    out: Path = Path("data/mnist")
    """Folder for rotated/, upright/ and sequence/."""
    seed: int = 0
    """Seed for the angles and the choice of digits."""

    def run(self) -> None:
        from torchsonic.lab.data.arrays import write_arrays
        from torchsonic.lab.data.mnist import make_sets

        if not self.data.is_dir():
            raise UserError(f"--data: there is no folder {self.data}; name that of the four .gz files of MNIST")
        make_folder(self.out)
        print("reading and turning 70,000 digits ...", flush=True)
        for name, parts in make_sets(self.data, seed=self.seed).items():
            folder = make_folder(self.out / name)
            for part, arrays in parts.items():
                write_arrays(folder / f"{part}.npz", arrays)
            print("written:", folder, flush=True)
