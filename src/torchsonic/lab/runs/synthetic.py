"""SynthShape and HalliGalli: one model, trained on one fold with one seed, tested clean and perturbed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import torch

from torchsonic.lab.data import PERTURBATIONS, HalliGalli, SynthShape, perturb
from torchsonic.lab.data.ranges import check_ranges
from torchsonic.lab.metrics import count_flops
from torchsonic.lab.metrics.robustness import RESOLUTIONS, score_perturbations, score_resolutions, score_samples
from torchsonic.lab.runs import folder as run_folder
from torchsonic.lab.runs.run import Experiment, run
from torchsonic.lab.runs.settings import choose_preset, parse_settings
from torchsonic.lab.training import Fit, SegmentationTask, TrainingConfig
from torchsonic.lab.training.progress import counting_progress
from torchsonic.models import PretrainedModel, create_model

if TYPE_CHECKING:
    from lightning_fabric import Fabric

__all__ = [
    "MODELS",
    "PRESETS",
    "TEST_NOISE",
    "ModelName",
    "SyntheticConfig",
    "TaskName",
    "apply_preset",
    "evaluate_run",
    "load_run",
    "make_data",
    "make_model",
    "make_task",
    "parse_config",
    "protocol",
    "read_config",
    "run_experiment",
    "test_indices",
]

TaskName = Literal["synthshape", "halligalli"]
ModelName = Literal["sonicnet", "orbitnet", "convnet", "vit", "s4nd", "niff", "gfnet"]
MODELS: tuple[str, ...] = get_args(ModelName)
OWN_NORM = ("vit", "orbitnet")  # tokens are normalised one by one, fields over a group as one

# The paper's pool is not given; 5 folds of 400 scenes.
POOL, FOLDS = 2000, 5


@dataclass(frozen=True, kw_only=True)
class SyntheticConfig:
    """One run of SynthShape or HalliGalli."""

    task: TaskName = "synthshape"
    """Task to train on."""
    model: ModelName = "sonicnet"
    """Network to train; all but orbitnet have 64 channels and the paper's parameter counts."""
    fold: int = 0
    """Fold to hold out for testing, 0 to 4; SynthShape only."""
    test_samples: int = 400
    """Number of samples to test on."""
    depth: int | None = None
    """Number of blocks; 4 for SynthShape and 1 for HalliGalli by default."""
    form: Literal["post", "pre"] = "post"
    """Normalise after (post) or before (pre) the operator; SonicNet only."""
    norm: Literal["group", "channel"] | None = None
    """GroupNorm (group), the default for SynthShape, or LayerNorm of each pixel (channel), that for HalliGalli."""
    variant: Literal["exact", "paper"] = "exact"
    """Variant of SonicNet's operator: exact, or as in the paper."""
    padding: Literal["circular", "zeros", "reflect"] | None = None
    """What surrounds an image, as far as it is wide; by default SonicNet's margin of zeros, and HalliGalli wraps."""
    standardise: bool | None = None
    """Standardise each channel before SonicNet's operators; on by default for SynthShape."""
    bank: Literal["broad", "far"] | None = None
    """SonicNet's initial modes: decay from one pixel up (broad), the default for SynthShape, or long decay (far)."""
    training: TrainingConfig = field(default_factory=TrainingConfig)
    """Training loop."""

    def __post_init__(self) -> None:
        if not 0 <= self.fold < FOLDS:
            raise ValueError(f"fold must be 0 to {FOLDS - 1}, got {self.fold}")
        if self.task == "halligalli" and self.fold:
            raise ValueError(f"fold must be 0 for HalliGalli, which has no folds, got {self.fold}; use seeds")
        check_ranges(self, "[1, inf)", "test_samples", "depth")
        most = POOL // FOLDS
        if self.task == "synthshape" and self.test_samples > most:
            raise ValueError(f"test_samples must be at most {most}, the size of a fold, got {self.test_samples}")
        changed = [n for n, usual in _SONIC_DEFAULTS.items() if getattr(self, n) not in (usual, _FORMER.get(n))]
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


# HalliGalli has 625 scenes, which training may all see; the samples of the test are other draws of them.
HALLIGALLI_TRAIN = 20000
HALLIGALLI_NOISE = 0.12
TEST_NOISE = 0.1


def make_data(task: TaskName) -> SynthShape | HalliGalli:
    """The endless set of a task's samples."""
    return SynthShape() if task == "synthshape" else HalliGalli()


def make_task(config: SyntheticConfig) -> SegmentationTask:
    """Data, loss and score of a run."""
    data, training = make_data(config.task), config.training
    shared: dict[str, Any] = {"batch": training.batch, "seed": training.seed}
    if not isinstance(data, HalliGalli):
        train = [index for index in range(POOL) if index % FOLDS != config.fold]
        return SegmentationTask(data, train, test_indices(config), **shared)
    # The answer is one bit for each image, which Dice adds nothing to.
    shared |= {"noise": HALLIGALLI_NOISE, "background": True, "dice": 0.0, "window": data.window()}
    return SegmentationTask(data, range(HALLIGALLI_TRAIN), test_indices(config), **shared)


def test_indices(config: SyntheticConfig) -> list[int]:
    """Numbers of the samples that a run is tested on.

    SynthShape: scenes of the fold that it was not trained on. HalliGalli: other draws of the 625 scenes, all of which
    training sees too, with other noise.
    """
    if config.task == "halligalli":
        return list(range(HALLIGALLI_TRAIN, HALLIGALLI_TRAIN + config.test_samples))
    return [index for index in range(POOL) if index % FOLDS == config.fold][: config.test_samples]


BANKS: Mapping[str, Mapping[str, Any]] = {
    "broad": {},
    "far": {"field": 128.0, "bank": {"shortest_decay": 16.0, "width_to_length": 0.01}},
}


class SyntheticExperiment(Experiment[SyntheticConfig, PretrainedModel]):
    """Segmentation of SynthShape or HalliGalli."""

    kind = "synthetic"
    may_change = ("test_samples",)

    def prepare(self, folder: Path, fabric: Fabric, *, show: bool) -> PretrainedModel:
        return make_model(self.config)

    def task(self, *, show: bool) -> SegmentationTask:
        return make_task(self.config)

    def test(self, model: PretrainedModel, *, show: bool) -> dict[str, Any]:
        return evaluate_run(model, self.config, show=show)

    def describe(self, model: PretrainedModel, result: Fit) -> dict[str, Any]:
        example = make_data(self.config.task).samples([0])[0].to(next(model.parameters()).device)
        return {"task": self.config.task, "model": self.config.model, "flops": count_flops(model, example)}


def run_experiment(config: SyntheticConfig, folder: Path, *, show: bool = True) -> dict[str, Any]:
    """Train, test and save; see :func:`torchsonic.lab.runs.run.run`."""
    return run(SyntheticExperiment(config), folder, show=show)


def make_model(config: SyntheticConfig) -> PretrainedModel:
    """The network of a run; its weights are drawn from the run's seed."""
    torch.manual_seed(config.training.seed)
    arguments: dict[str, Any] = {"num_classes": make_data(config.task).num_classes}
    arguments["depth"] = config.depth or (4 if config.task == "synthshape" else 1)
    norm = config.norm or ("group" if config.task == "synthshape" else "channel")
    options: dict[str, Any] = {} if config.model in OWN_NORM else {"norm": norm}
    if config.model == "sonicnet":
        bank = config.bank or ("broad" if config.task == "synthshape" else "far")
        standardise = config.task == "synthshape" if config.standardise is None else config.standardise
        options |= {"form": config.form, "variant": config.variant}
        padding = config.padding or ("circular" if config.task == "halligalli" else None)
        options |= {"padding": None, "padding_mode": padding} if padding else {}
        options |= {"standardise": standardise, **BANKS[bank]}
    arguments |= {"head_norm": norm, "backbone_options": options}
    return create_model(f"synthshape_{config.model}", **arguments)


def evaluate_run(model: PretrainedModel, config: SyntheticConfig, *, show: bool = True) -> dict[str, Any]:
    """Scores of a trained model: ``clean``, and ``rows`` under perturbations (noise only for HalliGalli)."""
    data, indices = make_data(config.task), test_indices(config)
    is_corners = isinstance(data, HalliGalli)
    model.eval()
    shared: dict[str, Any] = {"num_classes": data.num_classes, "background": is_corners}
    shared |= {"window": data.window()} if is_corners else {}
    clean = score_samples(model, data.samples, indices, **shared)
    if not is_corners:
        total = sum(len(perturbation.levels) for perturbation in PERTURBATIONS.values()) + len(RESOLUTIONS)
        with counting_progress("testing", total, show=show) as advance:
            rows = score_perturbations(model, data, indices, advance=advance)
            rows += score_resolutions(model, data, indices, advance=advance)
        return {"clean": clean, "rows": rows}

    def noisy(chosen: Any) -> Any:
        image, label = data.samples(chosen)
        return perturb(image, label, "noise", TEST_NOISE, seed=int(chosen[0]))

    scores = {0.0: clean, TEST_NOISE: score_samples(model, noisy, indices, **shared)}
    rows = [{"test": "halligalli", "level": level, "dice": dice} for level, dice in scores.items()]
    return {"clean": clean, "rows": rows}


def load_run(folder: Path) -> tuple[PretrainedModel, SyntheticConfig]:
    """The trained model of a run and its configuration."""
    return run_folder.load_model(folder), read_config(folder)
