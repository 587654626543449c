"""SynthShape and HalliGalli: one model, trained on one fold with one seed, tested clean and perturbed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, get_args

import torch

from torchsonic.lab.data import HalliGalli
from torchsonic.lab.data.ranges import check_ranges
from torchsonic.lab.metrics import count_flops
from torchsonic.lab.metrics.robustness import RESOLUTIONS, score_perturbations, score_resolutions, score_samples
from torchsonic.lab.runs import folder as run_folder
from torchsonic.lab.runs.halligalli import HALLIGALLI_PRESETS, HALLIGALLI_TRAIN, TEST_NOISE, score_corners, task_options
from torchsonic.lab.runs.protocols import FOLDS, OWN, Protocol, ProtocolName, Split
from torchsonic.lab.runs.released import RELEASED
from torchsonic.lab.runs.run import Experiment, run
from torchsonic.lab.runs.settings import choose_preset, parse_settings
from torchsonic.lab.training import Fit, SegmentationTask, TrainingConfig
from torchsonic.lab.training.progress import counting_progress
from torchsonic.lab.training.segmentation import NumberedSamples
from torchsonic.models import PretrainedModel, create_model

if TYPE_CHECKING:
    from lightning_fabric import Fabric

__all__ = [
    "MODELS",
    "PROTOCOLS",
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
    "read_config",
    "repeats",
    "run_experiment",
    "test_indices",
    "usual_settings",
]

TaskName = Literal["synthshape", "halligalli"]
ModelName = Literal["sonicnet", "orbitnet", "convnet", "vit", "s4nd", "niff", "gfnet"]
MODELS: tuple[str, ...] = get_args(ModelName)
OWN_NORM = ("vit", "orbitnet")  # tokens are normalised one by one, fields over a group as one
PROTOCOLS: Mapping[str, Protocol] = {"own": OWN, "released": RELEASED}


@dataclass(frozen=True, kw_only=True)
class SyntheticConfig:
    """One run of SynthShape or HalliGalli."""

    before: ClassVar[Mapping[str, Any]] = {"unseen": 0.0}
    """What runs did that are older than a setting."""

    task: TaskName = "synthshape"
    """Task to train on."""
    model: ModelName = "sonicnet"
    """Network to train; all but orbitnet have 64 channels and the paper's parameter counts."""
    protocol: ProtocolName = "own"
    """Scenes, tests and loss of SynthShape: our own, or those of the authors' released script."""
    fold: int = 0
    """Fold to hold out for testing, 0 to 4; only for our own SynthShape."""
    test_samples: int = 400
    """Number of samples to test on."""
    hold_out: float = 0.0
    """Hold this share of the training samples out of training and test on them instead, to choose settings."""
    unseen: float = 0.0
    """Never train on this share of HalliGalli's arrangements of shapes, chosen by the seed; test on them separately."""
    perturbed: bool = True
    """Test SynthShape only on clean images, not on perturbed ones or other grids; enough to choose settings."""
    noise: float | None = None
    """Largest standard deviation of noise on training images; by default 0.12 for HalliGalli, none for SynthShape."""
    turn: float = 0.0
    """Rotate training images about their centre by random angles up to this, in degrees; only for SynthShape."""
    depth: int | None = None
    """Number of blocks; 4 for SynthShape and 1 for HalliGalli by default."""
    form: Literal["post", "pre"] = "post"
    """Normalise after (post) or before (pre) the operator; SonicNet only."""
    norm: Literal["group", "channel"] | None = None
    """GroupNorm (group), the default for SynthShape; or LayerNorm of each pixel (channel), the one for HalliGalli."""
    variant: Literal["exact", "paper"] = "exact"
    """Variant of SonicNet's operator: exact, or as in the paper."""
    padding: Literal["circular", "zeros", "reflect"] | None = None
    """What surrounds an image, in a margin as wide; by default SonicNet's zeros, and HalliGalli wraps around."""
    standardise: bool | None = None
    """Standardise each channel before SonicNet's operators; on by default for SynthShape."""
    bank: Literal["broad", "far", "released"] | None = None
    """SonicNet's initial modes: decay from one pixel up (broad; SynthShape's default), long (far), or as released."""
    training: TrainingConfig = field(default_factory=TrainingConfig)
    """Training loop."""

    def __post_init__(self) -> None:
        if self.task == "halligalli" and self.protocol != "own":
            raise ValueError(f"protocol must be own for HalliGalli, which was not released, got {self.protocol}")
        protocol = PROTOCOLS[self.protocol]
        if not 0 <= self.fold < FOLDS:
            raise ValueError(f"fold must be 0 to {FOLDS - 1}, got {self.fold}")
        if self.fold and (self.task == "halligalli" or protocol.folds == 1):
            which = "HalliGalli" if self.task == "halligalli" else "the released protocol"
            raise ValueError(f"fold must be 0 for {which}, which has no folds, got {self.fold}; use seeds")
        check_ranges(self, "[1, inf)", "test_samples", "depth")
        check_ranges(self, "[0, 1)", "hold_out")
        check_ranges(self, "[0, 0.5]", "unseen")
        check_ranges(self, "[0, inf)", "noise")
        check_ranges(self, "[0, 180]", "turn")
        if self.turn and self.task == "halligalli":
            raise ValueError(f"turn must be 0 for HalliGalli, whose labels are of one place, got {self.turn:g}")
        if self.unseen and self.task == "synthshape":
            raise ValueError(f"unseen must be 0 for SynthShape, whose test scenes are all unseen, got {self.unseen:g}")
        if self.noise is not None and self.protocol != "own":
            raise ValueError(f"noise belongs to our own protocol; the {self.protocol} one has its own, so leave it out")
        if not (self.perturbed or self.task == "synthshape"):
            raise ValueError("perturbed must be true for HalliGalli, which is always tested with noise")
        most = protocol.most_tests
        if self.task == "synthshape" and most is not None and self.test_samples > most:
            raise ValueError(f"test_samples must be at most {most}, the size of a fold, got {self.test_samples}")
        changed = [n for n, usual in _SONIC_DEFAULTS.items() if getattr(self, n) not in (usual, _FORMER.get(n))]
        if changed and self.model != "sonicnet":
            raise ValueError(f"{changed[0]} belongs to sonicnet, not to {self.model}")

    @property
    def name(self) -> str:
        """Folder of the run within a collection of runs."""
        parts = [self.model, *([self.protocol] if self.protocol != "own" else [])]
        usual = usual_settings(self.protocol, self.model)
        parts += [str(getattr(self, name)) for name, value in usual.items() if getattr(self, name) != value]
        parts += [self.norm] if self.norm else []
        words = {"held": self.hold_out or None, "unseen": self.unseen or None}
        words |= {"noise": self.noise, "turn": self.turn or None}
        parts += [f"{word}{value:g}" for word, value in words.items() if value is not None]
        return f"{self.task}/{'-'.join(parts)}/fold{self.fold}-seed{self.training.seed}"


_FORMER = {"padding": "circular"}  # former defaults, which the settings of older runs hold whatever the network
_SONIC_DEFAULTS = {"form": "post", "variant": "exact", "padding": None, "standardise": None, "bank": None}


def usual_settings(protocol: str, model: str) -> dict[str, Any]:
    """SonicNet's settings as a protocol has them by default; those of other networks never change."""
    return {**_SONIC_DEFAULTS, **(PROTOCOLS[protocol].sonicnet if model == "sonicnet" else {})}


def repeats(preset: str, task: TaskName, protocol: ProtocolName = "own") -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Seeds and folds of a preset: five of each in the paper, where there are folds; else one."""
    if preset != "paper":
        return (0,), (0,)
    return tuple(range(5)), tuple(range(PROTOCOLS[protocol].folds)) if task == "synthshape" else (0,)


def apply_preset(config: SyntheticConfig, preset: str) -> SyntheticConfig:
    """A configuration with the settings that a preset and the protocol make."""
    protocol = PROTOCOLS[config.protocol]
    presets = protocol.presets if config.task == "synthshape" else HALLIGALLI_PRESETS
    config = choose_preset(config, presets, preset)
    return replace(config, **protocol.sonicnet) if config.model == "sonicnet" else config


def read_config(folder: Path) -> SyntheticConfig:
    """The configuration of a run."""
    return run_folder.read_config(folder, SyntheticConfig)


def parse_config(saved: Mapping[str, Any]) -> SyntheticConfig:
    """A configuration as ``results.json`` holds it."""
    return parse_settings(SyntheticConfig, saved, "config")


def make_data(task: TaskName, protocol: ProtocolName = "own", seed: int = 0) -> NumberedSamples:
    """The endless set of a task's samples; the released protocol has another one for each seed."""
    return PROTOCOLS[protocol].scenes(seed) if task == "synthshape" else HalliGalli()


def _data_of(config: SyntheticConfig) -> NumberedSamples:
    data = make_data(config.task, config.protocol, config.training.seed)
    if isinstance(data, HalliGalli):
        return replace(data, unseen=config.unseen, split=config.training.seed)
    return data


def _split(config: SyntheticConfig) -> Split:
    training = config.training
    return PROTOCOLS[config.protocol].split(config.fold, training.steps * training.batch, config.test_samples)


def make_task(config: SyntheticConfig) -> SegmentationTask:
    """Data, loss and score of a run."""
    data, training = _data_of(config), config.training
    options: dict[str, Any] = {"batch": training.batch, "seed": training.seed}
    if isinstance(data, HalliGalli):
        options |= task_options(data, config.noise)
    else:
        options |= {"noise": config.noise or 0.0, "turn": config.turn, **PROTOCOLS[config.protocol].task}
    return SegmentationTask(data, _learnt_and_held(config)[0], test_indices(config), **options)


def _learnt_and_held(config: SyntheticConfig) -> tuple[list[int], list[int]]:
    """Numbers of the samples that are not for testing: to learn from, and held out."""
    whole = list(range(HALLIGALLI_TRAIN) if config.task == "halligalli" else _split(config)[0])
    count = len(whole) - round(config.hold_out * len(whole))
    return whole[:count], whole[count:]


def test_indices(config: SyntheticConfig) -> Sequence[int]:
    """Numbers of the samples that a run is tested on.

    SynthShape: scenes that it was not trained on. HalliGalli: other draws of the scenes that training sees, with other
    noise, and as many of unseen arrangements. If samples are held out, those.
    """
    if config.hold_out:
        return _learnt_and_held(config)[1][: config.test_samples]
    if config.task == "halligalli":
        return range(HALLIGALLI_TRAIN, HALLIGALLI_TRAIN + config.test_samples)
    return _split(config)[1]


BANKS: Mapping[str, Mapping[str, Any]] = {
    "broad": {},
    "released": {"bank": "released"},
    "far": {"field": 128.0, "bank": {"shortest_decay": 16.0, "width_to_length": 0.01}},
}


class SyntheticExperiment(Experiment[SyntheticConfig, PretrainedModel]):
    """Segmentation of SynthShape or HalliGalli."""

    kind = "synthetic"
    may_change = ("test_samples", "perturbed")

    def prepare(self, folder: Path, fabric: Fabric, *, show: bool) -> PretrainedModel:
        return make_model(self.config)

    def task(self, *, show: bool) -> SegmentationTask:
        return make_task(self.config)

    def test(self, model: PretrainedModel, *, show: bool) -> dict[str, Any]:
        return evaluate_run(model, self.config, show=show)

    def describe(self, model: PretrainedModel, result: Fit) -> dict[str, Any]:
        example = _data_of(self.config).samples([0])[0].to(next(model.parameters()).device)
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
    options |= PROTOCOLS[config.protocol].backbones.get(config.model, {})
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
    data, indices, protocol = _data_of(config), test_indices(config), PROTOCOLS[config.protocol]
    model.eval()
    if isinstance(data, HalliGalli):
        # Settings are not chosen on unseen arrangements.
        return score_corners(model, data, indices, unseen=not config.hold_out, show=show)
    batch = protocol.task.get("score_batch")
    ways = protocol.perturbations if config.perturbed else {}
    at_resolutions = config.perturbed and protocol.at_resolutions
    total = 1 + sum(len(way.levels) for way in ways.values()) + at_resolutions * len(RESOLUTIONS)
    with counting_progress("testing", total, show=show) as advance:
        clean = score_samples(model, data.samples, indices, num_classes=data.num_classes, background=False, batch=batch)
        advance()
        rows = score_perturbations(model, data, indices, perturbations=ways, batch=batch, advance=advance)
        rows += score_resolutions(model, data, indices, advance=advance) if at_resolutions else []
    return {"clean": clean, "rows": rows}


def load_run(folder: Path) -> tuple[PretrainedModel, SyntheticConfig]:
    """The trained model of a run and its configuration."""
    return run_folder.load_model(folder), read_config(folder)
