"""What the commands that train have in common: presets, seeds, one run after another."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

from torchsonic.cli.command import Command, UserError, make_folder, option_value, require
from torchsonic.lab.runs.run import Experiment, run
from torchsonic.lab.runs.settings import choose_preset


@dataclass(frozen=True, kw_only=True)
class TrainCommand(Command):
    """Mixed into the configuration of a task, whose fields then are options."""

    seed: tuple[int, ...] = (0,)
    """Seed for weights, data and dropout; several seeds are trained one after another."""
    out: Path = Path("runs")
    """Folder of runs. Each run gets its own subfolder; a stopped run continues."""

    needs = ("lightning_fabric", "rich")
    hidden: ClassVar[Collection[str]] = ("training.seed",)
    renamed: ClassVar = {"--seeds": "--seed"}
    config_class: ClassVar[type]
    experiment: ClassVar[type[Experiment]]
    presets: ClassVar[Collection[str]]

    @classmethod
    def with_preset(cls, arguments: Sequence[str]) -> Any:
        """The defaults of the preset that the arguments name, over which further options then win."""
        chosen = option_value(arguments, "--preset") or cls.preset  # type: ignore[attr-defined]
        if chosen not in cls.presets:  # to be refused by the parser, in its words
            return cls.blank(arguments)
        return replace(cls.apply_preset(cls.blank(arguments), chosen), preset=chosen)

    @classmethod
    def apply_preset(cls, command: Any, preset: str) -> Any:
        """The command with the settings of a preset."""
        return choose_preset(command, cls.presets, preset)  # type: ignore[arg-type]

    @classmethod
    def blank(cls, arguments: Sequence[str]) -> Any:
        """The command without any option but those among the arguments that presets depend on."""
        return cls()

    def folds_to_train(self) -> Sequence[int | None]:
        """Folds, one after another; ``None`` for tasks that have none."""
        return (None,)

    def configs(self) -> list[Any]:
        """The configurations of all runs, fold by fold and seed by seed."""
        shared = self.values_for(self.config_class)
        if not self.seed or min(self.seed) < 0:
            raise UserError(f"--seed must not be negative, got {', '.join(map(str, self.seed)) or 'none'}")
        folds = [{} if fold is None else {"fold": fold} for fold in self.folds_to_train()]
        return [
            self.config_class(**{**shared, **fold, "training": replace(shared["training"], seed=seed)})
            for fold in folds
            for seed in self.seed
        ]

    def title(self, config: Any) -> str:
        """What is trained on what."""
        return f"{config.data}, {config.model}"

    def show(self, results: dict[str, Any]) -> None:
        """Print what one run achieved."""
        raise NotImplementedError

    def run(self) -> None:
        """Train all configurations, and show their results, which are empty on all processes but the first."""
        configs, found = self.configs(), []
        make_folder(self.out)
        for config in configs:
            folder = self.out / config.name
            print(f"{self.title(config)}, seed {config.training.seed}: {folder}")
            found.append(run(self.experiment(config), folder))
            if found[-1]:
                self.show(found[-1])
        dice = [results["dice"] for results in found if results and results.get("dice") is not None]
        if len(dice) > 1:
            print(f"mean Dice over {len(dice)} runs: {sum(dice) / len(dice):.3f}")


@dataclass(frozen=True, kw_only=True)
class TrainFolds(TrainCommand):
    """Mixed into the configuration of a segmentation, which has folds."""

    all_folds: bool = False
    """Train the whole cross-validation, one fold after another, instead of --fold."""

    thrift = "a smaller --batch or --patch, or --accumulate"

    def folds_to_train(self: Any) -> Sequence[int]:
        if self.model == "unet":
            require("monai")
        if self.all_folds and self.split is not None:
            raise UserError("--all-folds and --split cannot be combined; leave one out")
        return range(self.folds) if self.all_folds else (self.fold,)


def training_line(results: dict[str, Any], unit: str = "samples") -> str:
    """What a training took."""
    return (
        f"{results['parameters']:,} parameters, {results['seconds']:.0f} s of training, "
        f"{results['samples_per_second']:.1f} {unit}/s"
    )
