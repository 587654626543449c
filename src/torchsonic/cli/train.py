"""What the commands that train have in common: presets, seeds, one run after another."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, ClassVar

from torchsonic.cli.command import (
    UserError,
    make_folder,
    option_value,
    require,
    training_errors_in_words,
    warnings_in_one_line,
)

__all__ = ["TrainCommand"]


@dataclass(frozen=True, kw_only=True)
class TrainCommand:
    """Mixed into the configuration of a task, whose fields then are options."""

    seeds: tuple[int, ...] = ()
    """Several seeds, one run after another, instead of --seed."""
    out: Path = Path("runs")
    """Folder of runs; each run has its own in it, and goes on if it was stopped."""

    config_class: ClassVar[type]
    presets: ClassVar[Collection[str]]
    apply_preset: ClassVar[Callable[[Any, str], Any]]
    thrift: ClassVar[str]
    """Options that save memory."""

    @classmethod
    def with_preset(cls, arguments: Sequence[str]) -> Any:
        """The defaults of the preset that the arguments name, over which further options then win."""
        chosen = option_value(arguments, "--preset") or cls.preset  # type: ignore[attr-defined]
        if chosen not in cls.presets:  # to be refused by the parser, in its words
            return cls.blank()
        return replace(cls.apply_preset(cls.blank(), chosen), preset=chosen)

    @classmethod
    def blank(cls) -> Any:
        """The command without any option."""
        return cls()

    def folds_to_train(self) -> Sequence[int | None]:
        """Folds, one after another; ``None`` for tasks that have none."""
        return (None,)

    def configs(self) -> list[Any]:
        """The configurations of all runs, fold by fold and seed by seed."""
        own: Any = self
        shared = {field.name: getattr(own, field.name) for field in fields(self.config_class)}
        seeds = self.seeds or (own.training.seed,)
        if min(seeds) < 0:
            raise UserError(f"--seeds must not be negative, got {', '.join(map(str, seeds))}")
        folds = [{} if fold is None else {"fold": fold} for fold in self.folds_to_train()]
        try:
            return [
                self.config_class(**{**shared, **fold, "training": replace(own.training, seed=seed)})
                for fold in folds
                for seed in seeds
            ]
        except ValueError as error:
            raise UserError(str(error)) from error

    def train(
        self, run_experiment: Callable[..., dict[str, Any]], title: Callable[[Any], str], show: Callable[[Any], None]
    ) -> list[dict[str, Any]]:
        """Train all configurations; the results of each, which are empty on all processes but the first."""
        require("lightning_fabric", "train")
        require("rich", "train")
        configs, found = self.configs(), []
        make_folder(self.out)
        for config in configs:
            folder = self.out / config.name
            print(f"{title(config)}, seed {config.training.seed}: {folder}")
            with training_errors_in_words(self.thrift), warnings_in_one_line():
                found.append(run_experiment(config, folder))
            if found[-1]:
                show(found[-1])
        return found
