"""Classification of arrays, signals or small images, tested as they are and at other sampling rates."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from torchsonic.baselines import SteerableCNN
from torchsonic.functional import resample
from torchsonic.lab.data.arrays import Arrays, move_images, read_arrays
from torchsonic.lab.data.draws import number_generator
from torchsonic.lab.data.ranges import check_ranges
from torchsonic.lab.metrics import count_flops
from torchsonic.lab.runs.folder import load_model, read_config
from torchsonic.lab.runs.images.network import read_options
from torchsonic.lab.runs.run import Experiment, run
from torchsonic.lab.runs.settings import choose_preset
from torchsonic.lab.training import Fit, TrainingConfig
from torchsonic.lab.training.task import place_in_epoch
from torchsonic.models import Classifier, create_model, list_models, model_entry
from torchsonic.spectral.spacing import spacing_values

if TYPE_CHECKING:
    from lightning_fabric import Fabric

__all__ = ["PRESETS", "ArrayExperiment", "ArraysConfig", "apply_preset", "load_run", "run_experiment", "score_rates"]

TEST_BATCH = 250
GLANCE = 1000
"""Samples that are scored at the end of training, before all are tested."""
BENDS = 4
"""Points per axis at which images are bent."""
PRESETS: Mapping[str, Mapping[str, Any]] = {
    "smoke": {"test_samples": 50, "training": {"steps": 6, "batch": 8, "checkpoint_every": 3, "log_every": 1}},
    "quick": {"training": {"steps": 2000, "batch": 64}},
}


@dataclass(frozen=True, kw_only=True)
class ArraysConfig:
    """One run on arrays of samples and their classes."""

    before: ClassVar[Mapping[str, Any]] = {"bend": 0.0}
    """What runs did that are older than a setting."""

    data: Path = Path("data")
    """Folder with train.npz and test.npz, each with x, (N, C, length) or (N, C, height, width), and y, (N,)."""
    model: str = "orbit_tiny"
    """Network for classification, see 'torchsonic models', or steerable, which uses escnn's layers."""
    model_options: tuple[str, ...] = ()
    """Arguments of the network as name=value, such as widths=8,16 group=C12."""
    hold_out: float = 0.0
    """Hold this share of the training samples out of training and test on them instead, to choose settings."""
    test_samples: int | None = None
    """Test at most this many samples; all by default."""
    rates: tuple[float, ...] = ()
    """Also test at these multiples of the sampling rate: told the spacing, not told, and resampled back."""
    turn: float = 0.0
    """Rotate training images by random angles up to this, in degrees."""
    scale: float = 0.0
    """Scale training images at random by up to this share."""
    shift: float = 0.0
    """Shift training images at random by up to this share of their width."""
    bend: float = 0.0
    """Bend training images smoothly, each point by up to about this share of their width."""
    label_smoothing: float = 0.0
    """Share of the label that is spread over all classes."""
    training: TrainingConfig = field(default_factory=TrainingConfig)
    """Training loop."""

    def __post_init__(self) -> None:
        known = [name for name in list_models() if model_entry(name)[0].task != "segmentation"] + ["steerable"]
        if self.model not in known:
            raise ValueError(f"model must be one of {', '.join(known)}, got {self.model!r}")
        if self.model == "steerable" and self.model_options:
            raise ValueError("model_options belong to networks of the registry, not to steerable; leave them out")
        check_ranges(self, "[0, 1)", "hold_out", "scale", "label_smoothing")
        check_ranges(self, "[1, inf)", "test_samples")
        check_ranges(self, "(0, inf)", "rates")
        check_ranges(self, "[0, 180]", "turn")
        check_ranges(self, "[0, 1]", "shift", "bend")

    @property
    def moves(self) -> bool:
        """Whether training images are changed at random."""
        return any((self.turn, self.scale, self.shift, self.bend))

    @property
    def name(self) -> str:
        """Folder of the run within a collection of runs."""
        words = re.sub(r"[^\w.,=-]+", "-", " ".join([self.model, *self.model_options]))
        words += f"-held{self.hold_out:g}" if self.hold_out else ""
        return f"arrays/{self.data.resolve().name}/{words}/seed{self.training.seed}"


class ArrayBatch(NamedTuple):
    """Samples ``(B, C, *size)`` and their classes ``(B,)``."""

    x: Tensor
    y: Tensor


class ArrayTask:
    """Cross-entropy on changed samples, each a function of the seed and its number; scored by the accuracy."""

    def __init__(self, train: Arrays, test: Arrays, config: ArraysConfig) -> None:
        self.train, self.test, self.config = train, test, config

    def batch(self, step: int, samples: range) -> ArrayBatch:
        """Some samples of a step."""
        config, seed = self.config, self.config.training.seed
        numbers = [step * config.training.batch + place for place in samples]
        places = torch.tensor([place_in_epoch(len(self.train), seed, number) for number in numbers])
        x = self.train.values(places)
        if config.moves:
            count = 4 + 2 * BENDS**2
            draws = np.array([number_generator(seed, number, purpose=1).uniform(-1, 1, count) for number in numbers])
            angle, scale, shift, bend = torch.from_numpy(draws).to(x.dtype).split([1, 1, 2, 2 * BENDS**2], dim=1)
            x = move_images(
                x, config.turn * angle[:, 0], 1 + config.scale * scale[:, 0], config.shift * shift,
                config.bend * bend.unflatten(1, (2, BENDS, BENDS)) if config.bend else None,
            )  # fmt: skip
        return ArrayBatch(x, self.train.y[places])

    def loss(self, model: nn.Module, batch: ArrayBatch) -> Tensor:
        """Loss of a batch."""
        return F.cross_entropy(model(batch.x).float(), batch.y, label_smoothing=self.config.label_smoothing)

    def evaluate(self, model: nn.Module) -> dict[str, float]:
        """Accuracy on the samples to test on."""
        return {"score": score_rates(model, self.test)[0]["accuracy"]}


class ArrayExperiment(Experiment[ArraysConfig, Classifier]):
    """Classification of arrays."""

    kind = "arrays"
    may_change = ("data", "test_samples", "rates")
    train: Arrays
    tested: Arrays

    def prepare(self, folder: Path, fabric: Fabric, *, show: bool) -> Classifier:
        config = self.config
        self.train, self.tested = split_arrays(config)
        if self.train.x.dim() == 3 and config.moves:
            raise ValueError(
                f"turn, scale, shift and bend belong to images, but {config.data} has signals; leave them out"
            )
        torch.manual_seed(config.training.seed)
        sizes: dict[str, Any] = {"in_channels": self.train.x.shape[1], "num_classes": int(self.train.y.max()) + 1}
        if config.model == "steerable":
            return SteerableCNN(**sizes)
        model = create_model(config.model, **sizes, **read_options(config.model, config.model_options))
        assert isinstance(model, Classifier)
        return model

    def task(self, *, show: bool) -> ArrayTask:
        # All samples are tested after the loop, so its own score needs them only if it chooses the best step by it.
        count = len(self.tested) if self.config.training.evaluate_every else min(len(self.tested), GLANCE)
        return ArrayTask(self.train, self.tested.take(torch.arange(count)), self.config)

    def test(self, model: Classifier, *, show: bool) -> dict[str, Any]:
        start = time.perf_counter()
        accuracy = score_rates(model, self.tested)[0]["accuracy"]
        pace = 1e3 * (time.perf_counter() - start) / len(self.tested)
        rows = score_rates(model, self.tested, self.config.rates)
        sizes = {"train": len(self.train), "test": len(self.tested)}
        return {"accuracy": accuracy, "rows": rows, "samples": sizes, "test_milliseconds": pace}

    def describe(self, model: Classifier, result: Fit) -> dict[str, Any]:
        example = self.train.values(slice(1)).to(next(model.parameters()).device)
        label = " ".join([self.config.model, *self.config.model_options])
        return {"task": "arrays", "model": label, "flops": count_flops(model, example)}


def split_arrays(config: ArraysConfig) -> tuple[Arrays, Arrays]:
    """Samples to learn from and to test on; the last ones of the training file if some are held out."""
    train = read_arrays(config.data / "train.npz")
    if config.hold_out:
        count = round(len(train) * config.hold_out)
        if not 0 < count < len(train):
            raise ValueError(f"hold_out={config.hold_out} leaves nothing to learn from or to test on")
        train, test = train.take(torch.arange(len(train) - count)), train.take(torch.arange(-count, 0))
    else:
        test = read_arrays(config.data / "test.npz")
    if test.x.shape[1:] != train.x.shape[1:] or test.y.max() > train.y.max():
        raise ValueError(f"{config.data}: train.npz and test.npz differ in channels, size or classes")
    return train, test.take(torch.arange(min(len(test), config.test_samples or len(test))))


@torch.no_grad()
def score_rates(model: nn.Module, samples: Arrays, rates: tuple[float, ...] = (1.0,)) -> list[dict[str, float]]:
    """Accuracy on samples at each sampling rate, band-limited.

    ``accuracy``: not told; ``told`` the spacing, for networks that take it; ``back``: resampled to the training rate.
    """
    model.eval()
    device, size = next(model.parameters()).device, tuple(samples.x.shape[2:])
    takes_spacing = getattr(model, "takes_spacing", False)
    own = spacing_values(getattr(model, "arguments", {}).get("spacing", 1.0), len(size))
    rows: list[dict[str, float]] = []
    for rate in rates:
        new = tuple(round(n * rate) for n in size)
        ways = ["accuracy"] if new == size else ["accuracy", *(["told"] if takes_spacing else []), "back"]
        hits = dict.fromkeys(ways, 0)
        for start in range(0, len(samples), TEST_BATCH):
            places = slice(start, start + TEST_BATCH)
            x, y = samples.values(places).to(device), samples.y[places].to(device)
            moved = x if new == size else resample(x, new)
            for way in ways:
                told = {"spacing": [s * n / m for s, n, m in zip(own, size, new, strict=True)]} if way == "told" else {}
                found = model(resample(moved, size) if way == "back" else moved, **told).argmax(1)
                hits[way] += int((found == y).sum())
        rows.append({"rate": rate, **{way: count / len(samples) for way, count in hits.items()}})
    return rows


def run_experiment(config: ArraysConfig, folder: Path, *, show: bool = True) -> dict[str, Any]:
    """Train, test and save; see :func:`torchsonic.lab.runs.run.run`."""
    return run(ArrayExperiment(config), folder, show=show)


def apply_preset(config: ArraysConfig, preset: str) -> ArraysConfig:
    """A configuration with a preset's settings."""
    return choose_preset(config, PRESETS, preset)


def load_run(folder: Path) -> tuple[Classifier, ArraysConfig]:
    """The trained network of a run and its configuration."""
    model = load_model(folder)
    assert isinstance(model, Classifier)
    return model, read_config(folder, ArraysConfig)
