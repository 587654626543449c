"""``torchsonic train`` and ``evaluate`` for SynthShape and HalliGalli."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, ClassVar, Literal

from torchsonic.cli.command import UserError, option_value, require, training_errors_in_words
from torchsonic.lab.runs.synthetic import PRESETS, SyntheticConfig, TaskName, apply_preset, protocol

__all__ = ["EvaluateSynthetic", "TrainHalliGalli", "TrainSynthShape"]

RUNS = Path("runs")
Preset = Literal["smoke", "demo", "quick", "paper"]


@dataclass(frozen=True, kw_only=True)
class _TrainSynthetic(SyntheticConfig):
    preset: Preset = "quick"
    """Steps, batch and samples: smoke takes a minute, demo a few, quick about eight; paper is the full protocol."""
    seeds: tuple[int, ...] = ()
    """Several seeds, one run after another, instead of --seed."""
    folds: tuple[int, ...] = ()
    """Several folds, likewise, instead of --fold."""
    out: Path = RUNS
    """Folder of runs; each run has its own in it, and goes on if it was stopped."""

    task_name: ClassVar[TaskName]
    hidden: ClassVar[tuple[str, ...]] = ("task",)  # the command's own name says it

    @classmethod
    def with_preset(cls, arguments: Sequence[str]) -> Any:
        """The defaults of the preset that the arguments name, over which further options then win."""
        chosen = option_value(arguments, "--preset") or cls.preset
        if chosen not in PRESETS:  # to be refused by the parser, in its words
            return cls(task=cls.task_name)
        config = replace(apply_preset(cls(task=cls.task_name), chosen), preset=chosen)
        if chosen != "paper":
            return config
        seeds, folds = protocol(chosen, cls.task_name)
        return replace(config, seeds=seeds, folds=folds)

    def run(self) -> None:
        require("lightning_fabric", "train")
        require("rich", "train")
        from torchsonic.lab.runs.synthetic import run_experiment

        for config in self._runs():
            folder = self.out / config.name
            print(f"{config.task}, {config.model}, fold {config.fold}, seed {config.training.seed}: {folder}")
            with training_errors_in_words("smaller --batch, or --accumulate"):
                results = run_experiment(config, folder)
            _print_results(results)

    def _runs(self) -> list[SyntheticConfig]:
        shared = {f.name: getattr(self, f.name) for f in fields(SyntheticConfig)}
        try:
            return [
                SyntheticConfig(**{**shared, "fold": fold, "training": replace(self.training, seed=seed)})
                for fold in self.folds or (self.fold,)
                for seed in self.seeds or (self.training.seed,)
            ]
        except ValueError as error:
            raise UserError(str(error)) from error


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

    if not results:  # another process than the first
        return
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
