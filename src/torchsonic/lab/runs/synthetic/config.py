"""Settings of a run on synthetic scenes, its presets, and how both are read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

from torchsonic.lab.runs import folder as run_folder
from torchsonic.lab.runs.settings import choose_preset, parse_settings
from torchsonic.lab.training import TrainingConfig

__all__ = [
    "FOLDS",
    "MODELS",
    "POOL",
    "PRESETS",
    "ModelName",
    "SyntheticConfig",
    "TaskName",
    "apply_preset",
    "parse_config",
    "protocol",
    "read_config",
]

TaskName = Literal["synthshape", "halligalli"]
ModelName = Literal["sonicnet", "convnet", "vit", "s4nd", "niff", "gfnet"]
MODELS: tuple[str, ...] = get_args(ModelName)

# The paper's pool is not given; 5 folds of 400 scenes.
POOL, FOLDS = 2000, 5


@dataclass(frozen=True, kw_only=True)
class SyntheticConfig:
    """One run of SynthShape or HalliGalli."""

    task: TaskName = "synthshape"
    """Which task."""
    model: ModelName = "sonicnet"
    """Which network; all have 64 channels, the paper's parameter counts and the same frame."""
    fold: int = 0
    """Fold held out for testing, 0 to 4; SynthShape only."""
    test_samples: int = 400
    """Samples of the test."""
    depth: int | None = None
    """Blocks; 4 for SynthShape, 1 for HalliGalli by default."""
    form: Literal["post", "pre"] = "post"
    """Norm behind or before the operator; SonicNet only."""
    norm: Literal["group", "channel"] | None = None
    """GroupNorm, the default for SynthShape, or LayerNorm over the channels of each pixel, that for HalliGalli."""
    variant: Literal["exact", "paper"] = "exact"
    """Of SonicNet's operator."""
    padding: Literal["circular", "zeros", "reflect"] | None = None
    """What surrounds an image, as far as it is wide; by default SonicNet's margin of zeros, and HalliGalli wraps."""
    standardise: bool | None = None
    """Whether SonicNet's operators see each channel with mean 0 and variance 1; for SynthShape by default."""
    bank: Literal["broad", "far"] | None = None
    """Of SonicNet's initial modes: decay from one pixel on, the default for SynthShape, or long ones only."""
    training: TrainingConfig = field(default_factory=TrainingConfig)
    """The loop's settings."""

    def __post_init__(self) -> None:
        if not 0 <= self.fold < FOLDS:
            raise ValueError(f"fold must be 0 to {FOLDS - 1}, got {self.fold}")
        if self.task == "halligalli" and self.fold:
            raise ValueError(f"fold must be 0 for HalliGalli, which has no folds, got {self.fold}; use seeds")
        if self.test_samples < 1:
            raise ValueError(f"test_samples must be at least 1, got {self.test_samples}")
        most = POOL // FOLDS
        if self.task == "synthshape" and self.test_samples > most:
            raise ValueError(f"test_samples must be at most {most}, the size of a fold, got {self.test_samples}")
        if self.depth is not None and self.depth < 1:
            raise ValueError(f"depth must be at least 1, got {self.depth}")
        settings = {n: getattr(self, n) for n in _SONIC_DEFAULTS}
        changed = [n for n, value in settings.items() if value not in (_SONIC_DEFAULTS[n], _FORMER.get(n))]
        if changed and self.model != "sonicnet":
            raise ValueError(f"{changed[0]} belongs to sonicnet, not to {self.model}")

    @property
    def name(self) -> str:
        """Folder of the run within a collection of runs."""
        parts = [self.model, *[str(getattr(self, n)) for n, v in _SONIC_DEFAULTS.items() if getattr(self, n) != v]]
        parts += [self.norm] if self.norm else []
        return f"{self.task}/{'-'.join(parts)}/fold{self.fold}-seed{self.training.seed}"


_FORMER = {"padding": "circular"}  # former defaults, which the settings of older runs hold whatever the network
_SONIC_DEFAULTS = {"form": "post", "variant": "exact", "padding": None, "standardise": None, "bank": None}

# One block learns to read the corners by turning its modes towards them, so these learn faster than elsewhere.
_CORNERS = {"learning_rate": 5e-3, "mode_lr_scale": 0.1}
_SMOKE = {"steps": 20, "batch": 4, "checkpoint_every": 10, "log_every": 2}


def _halligalli(**training: Any) -> Mapping[str, Any]:
    return {"test_samples": 1000, "training": {**_CORNERS, **training}}


# What a preset changes, by task; the same for every model.
PRESETS: Mapping[str, Mapping[TaskName, Mapping[str, Any]]] = {
    "smoke": {"synthshape": {"test_samples": 20, "training": _SMOKE}, "halligalli": _halligalli(**_SMOKE)},
    "demo": {
        "synthshape": {"test_samples": 60, "training": {"steps": 200, "batch": 8}},
        "halligalli": _halligalli(steps=6000, batch=32),
    },
    "quick": {
        "synthshape": {"training": {"steps": 600, "batch": 8}},
        "halligalli": _halligalli(steps=10000, batch=32),
    },
    "paper": {
        "synthshape": {"training": {"steps": 1000 * (POOL * (FOLDS - 1) // FOLDS) // 32, "batch": 32}},
        "halligalli": _halligalli(steps=50000, batch=32),
    },
}
PAPER_SEEDS = 5


def protocol(preset: str, task: TaskName) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Seeds and folds of a preset: five of each in the paper, though HalliGalli has no folds; else one."""
    if preset != "paper":
        return (0,), (0,)
    return tuple(range(PAPER_SEEDS)), tuple(range(FOLDS)) if task == "synthshape" else (0,)


def apply_preset(config: SyntheticConfig, preset: str) -> SyntheticConfig:
    """A configuration with a preset's settings."""
    return choose_preset(config, {name: tasks[config.task] for name, tasks in PRESETS.items()}, preset)


def read_config(folder: Path) -> SyntheticConfig:
    """The configuration of a run."""
    return run_folder.read_config(folder, SyntheticConfig)


def parse_config(saved: Mapping[str, Any]) -> SyntheticConfig:
    """A configuration as ``results.json`` holds it."""
    return parse_settings(SyntheticConfig, saved, "config")
