"""``torchsonic train`` and ``evaluate`` for SynthShape and HalliGalli."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Literal

from torchsonic.cli.command import UserError, require, training_errors_in_words
from torchsonic.cli.train import TrainCommand
from torchsonic.lab.runs.synthetic import PRESETS, SyntheticConfig, TaskName, apply_preset, protocol

__all__ = ["EvaluateSynthetic", "TrainHalliGalli", "TrainSynthShape"]

Preset = Literal["smoke", "demo", "quick", "paper"]


@dataclass(frozen=True, kw_only=True)
class _TrainSynthetic(TrainCommand, SyntheticConfig):
    preset: Preset = "quick"
    """Steps, batch and samples: smoke takes a minute, demo a few, quick about eight; paper is the full protocol."""
    folds: tuple[int, ...] = ()
    """Several folds, one run after another, instead of --fold."""

    config_class: ClassVar[type] = SyntheticConfig
    presets: ClassVar[Collection[str]] = PRESETS
    thrift: ClassVar[str] = "smaller --batch, or --accumulate"
    task_name: ClassVar[TaskName]
    hidden: ClassVar[tuple[str, ...]] = ("task",)  # the command's own name says it

    @classmethod
    def blank(cls) -> Any:
        return cls(task=cls.task_name)

    @staticmethod
    def apply_preset(command: Any, preset: str) -> Any:
        seeds, folds = protocol(preset, command.task) if preset == "paper" else ((), ())
        return replace(apply_preset(command, preset), seeds=seeds, folds=folds)

    def folds_to_train(self) -> Sequence[int]:
        return self.folds or (self.fold,)

    def run(self) -> None:
        from torchsonic.lab.runs.synthetic import run_experiment

        self.train(run_experiment, lambda c: f"{c.task}, {c.model}, fold {c.fold}", _print_results)


@dataclass(frozen=True, kw_only=True)
class TrainSynthShape(_TrainSynthetic):
    """Train a network on SynthShape and test it under perturbations."""

    task_name: ClassVar[TaskName] = "synthshape"


@dataclass(frozen=True, kw_only=True)
class TrainHalliGalli(_TrainSynthetic):
    """Train one block on HalliGalli and test it clean and under noise."""

    task_name: ClassVar[TaskName] = "halligalli"


@dataclass(frozen=True, kw_only=True)
class EvaluateSynthetic:
    """Test the model of a finished run again."""

    positional: ClassVar[tuple[str, ...]] = ("folder",)

    folder: Path
    """Folder of the run."""

    def run(self) -> None:
        require("rich", "train")
        from torchsonic.io import read_json, write_json
        from torchsonic.lab.runs.lock import locked
        from torchsonic.lab.runs.provenance import describe_run
        from torchsonic.lab.runs.synthetic import evaluate_run, load_run

        path = self.folder / "results.json"
        try:
            model, config = load_run(self.folder)
            results = read_json(path)
        except (OSError, ValueError) as error:
            raise UserError(f"{self.folder} holds no finished run: {error}") from error
        tested = describe_run(seed=config.training.seed, device=next(model.parameters()).device)
        with training_errors_in_words(""), locked(self.folder):
            results.update(evaluate_run(model, config), tested=tested)
            write_json(path, results)
        _print_results(results)


def _print_results(results: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table("test", "level", "Dice", "told the spacing", title=f"{results['model']} on {results['task']}")
    if results["task"] == "synthshape":
        table.add_row("clean", "", f"{results['clean']:.3f}", "")
    for row in results["rows"]:
        told = row.get("told")
        table.add_row(row["test"], f"{row['level']:g}", f"{row['dice']:.3f}", "" if told is None else f"{told:.3f}")
    console = Console()
    console.print(table)
    console.print(
        f"{results['parameters']:,} parameters, {results['seconds']:.0f} s of training, "
        f"{results['samples_per_second']:.1f} samples/s"
    )
