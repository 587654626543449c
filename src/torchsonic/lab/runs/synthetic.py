"""SynthShape and HalliGalli: one model, trained on one fold with one seed, tested clean and perturbed.

A run is a folder: ``config.json``, ``log.jsonl``, ``checkpoints/``, ``model/`` and, in the end, ``results.json``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, get_args

import torch

from torchsonic.io import write_json
from torchsonic.lab.data import PERTURBATIONS, HalliGalli, SynthShape, perturb
from torchsonic.lab.metrics import count_flops, count_parameters
from torchsonic.lab.metrics.robustness import (
    RESOLUTIONS,
    score_perturbations,
    score_resolutions,
    score_samples,
)
from torchsonic.lab.runs.provenance import describe_run
from torchsonic.lab.runs.resume import origins, refuse_changes
from torchsonic.lab.runs.saved_config import plain_config
from torchsonic.lab.training import Fit, SegmentationTask, TrainingConfig, fit, make_fabric, wait_for_first
from torchsonic.models import PretrainedModel, create_model, from_pretrained

__all__ = ["MODELS", "PRESETS", "SyntheticConfig", "evaluate_run", "run_experiment"]

TaskName = Literal["synthshape", "halligalli"]
ModelName = Literal["sonicnet", "convnet", "vit", "s4nd", "niff", "gfnet"]
MODELS: tuple[str, ...] = get_args(ModelName)

# The paper's pool is not given; 5 folds of 400 scenes. HalliGalli has 625 scenes, which training may all see; the
# samples of the test are other draws of them.
POOL, FOLDS = 2000, 5
HALLIGALLI_TRAIN, HALLIGALLI_TEST = 20000, 1000
HALLIGALLI_NOISE = 0.12
TEST_NOISE = 0.1
BANKS: Mapping[str, Mapping[str, Any]] = {
    "broad": {},
    "far": {"field": 128.0, "bank": {"shortest_decay": 16.0, "width_to_length": 0.01}},
}


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
    padding: Literal["circular", "zeros", "reflect"] = "circular"
    """What SonicNet's operator sees beyond the border."""
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
        changed = [name for name, value in _SONIC_DEFAULTS.items() if getattr(self, name) != value]
        if changed and self.model != "sonicnet":
            raise ValueError(f"{changed[0]} belongs to sonicnet, not to {self.model}")

    @property
    def name(self) -> str:
        """Folder of the run within a collection of runs."""
        parts = [self.model, *[str(getattr(self, n)) for n, v in _SONIC_DEFAULTS.items() if getattr(self, n) != v]]
        parts += [self.norm] if self.norm else []
        return f"{self.task}/{'-'.join(parts)}/fold{self.fold}-seed{self.training.seed}"


_SONIC_DEFAULTS = {"form": "post", "variant": "exact", "padding": "circular", "standardise": None, "bank": None}

# One block learns to read the corners by turning its modes towards them, so these learn faster than elsewhere.
_HALLIGALLI = {"learning_rate": 5e-3, "mode_lr_scale": 0.1, "test_samples": HALLIGALLI_TEST}

# What a preset changes, by task; the same for every model.
PRESETS: Mapping[str, Mapping[TaskName, Mapping[str, Any]]] = {
    "smoke": {
        "synthshape": {"steps": 20, "batch": 4, "test_samples": 20, "checkpoint_every": 10, "log_every": 2},
        "halligalli": {**_HALLIGALLI, "steps": 20, "batch": 4, "checkpoint_every": 10, "log_every": 2},
    },
    "demo": {
        "synthshape": {"steps": 200, "batch": 8, "test_samples": 60},
        "halligalli": {**_HALLIGALLI, "steps": 6000, "batch": 32},
    },
    "quick": {
        "synthshape": {"steps": 600, "batch": 8},
        "halligalli": {**_HALLIGALLI, "steps": 10000, "batch": 32},
    },
    "paper": {
        "synthshape": {"steps": 1000 * (POOL * (FOLDS - 1) // FOLDS) // 32, "batch": 32},
        "halligalli": {**_HALLIGALLI, "steps": 50000, "batch": 32},
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
    if preset not in PRESETS:
        raise ValueError(f"preset must be one of {', '.join(PRESETS)}, got {preset!r}")
    changes = dict(PRESETS[preset][config.task])
    own = {name: changes.pop(name) for name in ("test_samples",) if name in changes}
    return replace(config, **own, training=replace(config.training, **changes))


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


def make_model(config: SyntheticConfig) -> PretrainedModel:
    """The network of a run; its weights are drawn from the run's seed."""
    torch.manual_seed(config.training.seed)
    arguments: dict[str, Any] = {"num_classes": make_data(config.task).num_classes}
    arguments["depth"] = config.depth or (4 if config.task == "synthshape" else 1)
    norm = config.norm or ("group" if config.task == "synthshape" else "channel")
    options: dict[str, Any] = {} if config.model == "vit" else {"norm": norm}  # tokens are always normalised one by one
    if config.model == "sonicnet":
        bank = config.bank or ("broad" if config.task == "synthshape" else "far")
        standardise = config.task == "synthshape" if config.standardise is None else config.standardise
        options |= {"form": config.form, "variant": config.variant, "padding_mode": config.padding}
        options |= {"standardise": standardise, **BANKS[bank]}
    arguments |= {"head_norm": norm, "backbone_options": options}
    return create_model(f"synthshape_{config.model}", **arguments)


def run_experiment(config: SyntheticConfig, folder: Path, *, show: bool = True) -> dict[str, Any]:
    """Train, test and save; goes on where an earlier run in the folder stopped.

    Returns
    -------
    dict
        What ``results.json`` holds.
    """
    fabric = make_fabric(config.training)
    fabric.launch()
    run = describe_run(seed=config.training.seed, device=fabric.device)
    model, task = make_model(config), make_task(config)
    refuse_changes(folder, plain_config(config), may_change=("test_samples",))
    folder.mkdir(parents=True, exist_ok=True)
    fabric.barrier()  # no process may find what the first one is about to write
    if fabric.is_global_zero:
        write_json(folder / "config.json", asdict(config))
    result = fit(model, task, config.training, folder, fabric=fabric, show=show)
    results: dict[str, Any] = {}
    if fabric.is_global_zero:
        model.save_pretrained(folder / "model")
        results = {**_describe(config, model, result), **evaluate_run(model, config, show=show)}
        results |= origins(folder, run)
        write_json(folder / "results.json", results)
    wait_for_first(fabric)
    return results


def _describe(config: SyntheticConfig, model: PretrainedModel, result: Fit) -> dict[str, Any]:
    example = make_data(config.task).samples([0])[0].to(next(model.parameters()).device)
    return {
        "task": config.task,
        "model": config.model,
        "config": asdict(config),
        "seconds": result.seconds,
        "samples_per_second": result.step * config.training.batch / max(result.seconds, 1e-9),
        "parameters": count_parameters(model),
        "flops": count_flops(model, example),
    }


def evaluate_run(model: PretrainedModel, config: SyntheticConfig, *, show: bool = True) -> dict[str, Any]:
    """Scores of a trained model: ``clean``, and ``rows`` under perturbations (noise only for HalliGalli)."""
    from torchsonic.lab.training.progress import counting_progress

    data, indices = make_data(config.task), test_indices(config)
    background = config.task == "halligalli"
    model.eval()
    shared: dict[str, Any] = {"num_classes": data.num_classes, "background": background}
    if isinstance(data, HalliGalli):
        shared["window"] = data.window()
    clean = score_samples(model, data.samples, indices, **shared)
    if config.task == "synthshape":
        total = sum(len(perturbation.levels) for perturbation in PERTURBATIONS.values()) + len(RESOLUTIONS)
        with counting_progress("testing", total, show=show) as advance:
            rows = score_perturbations(model, data, indices, advance=advance)
            rows += score_resolutions(model, data, indices, advance=advance)
        return {"clean": clean, "rows": rows}

    def noisy(chosen: Any) -> Any:
        image, label = data.samples(chosen)
        return perturb(image, label, "noise", TEST_NOISE, seed=int(chosen[0]))

    return {
        "clean": clean,
        "rows": [
            {"test": "halligalli", "level": 0.0, "dice": clean},
            {"test": "halligalli", "level": TEST_NOISE, "dice": score_samples(model, noisy, indices, **shared)},
        ],
    }


def read_config(folder: Path) -> SyntheticConfig:
    """The configuration of a run."""
    return parse_config(json.loads((folder / "config.json").read_text(encoding="utf-8")))


def parse_config(saved: Mapping[str, Any]) -> SyntheticConfig:
    """A configuration as JSON holds it; a setting that is younger has its default."""
    training = {**saved["training"], "loggers": tuple(saved["training"]["loggers"])}
    return SyntheticConfig(**{**saved, "training": TrainingConfig(**training)})


def load_run(folder: Path) -> tuple[PretrainedModel, SyntheticConfig]:
    """The trained model of a run and its configuration."""
    return from_pretrained(folder / "model"), read_config(folder)
