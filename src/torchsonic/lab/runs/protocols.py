"""What a run on SynthShape learns from and is tested by: our protocol, and what the released one has to supply."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from torchsonic.lab.data.synthetic import PERTURBATIONS, SynthShape
from torchsonic.lab.data.synthetic.perturbations import Perturbation
from torchsonic.lab.training.segmentation import NumberedSamples

ProtocolName = Literal["own", "released"]
Split = tuple[Sequence[int], Sequence[int]]

# The paper's pool is not given; 5 folds of 400 scenes.
POOL, FOLDS = 2000, 5


@dataclass(frozen=True, kw_only=True)
class Protocol:
    """Scenes, perturbations and loss, and which settings belong to them."""

    title: str
    folds: int
    most_tests: int | None
    """Samples that can be tested on, if there is an end to them."""
    scenes: Callable[[int], NumberedSamples]
    """The endless set of samples, by the seed of a run."""
    split: Callable[[int, int, int], Split]
    """Numbers to learn from and to test on, by fold, samples that training asks for, and samples of the test."""
    presets: Mapping[str, Mapping[str, Any]]
    """Settings of a run, by the name of a preset."""
    sonicnet: Mapping[str, Any] = field(default_factory=dict)
    """Settings of a run that SonicNet has by default."""
    backbones: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Options of the other networks' backbones."""
    task: Mapping[str, Any] = field(default_factory=dict)
    """Options of :class:`torchsonic.lab.training.SegmentationTask`: weights, loss and score."""
    perturbations: Mapping[str, Perturbation] = field(default_factory=lambda: PERTURBATIONS)
    at_resolutions: bool = True
    """Whether scenes can be rendered, and so tested, on other grids."""


def _split(fold: int, asked: int, tests: int) -> Split:
    held_out = [index for index in range(POOL) if index % FOLDS == fold]
    return [index for index in range(POOL) if index % FOLDS != fold], held_out[:tests]


SMOKE = {"steps": 20, "batch": 4, "checkpoint_every": 10, "log_every": 2}
OWN = Protocol(
    title="SynthShape",
    folds=FOLDS,
    most_tests=POOL // FOLDS,
    scenes=lambda seed: SynthShape(),  # the same for all runs
    split=_split,
    presets={
        "smoke": {"test_samples": 20, "training": SMOKE},
        "demo": {"test_samples": 60, "training": {"steps": 200, "batch": 8}},
        "quick": {"training": {"steps": 600, "batch": 8}},
        "paper": {"training": {"steps": 1000 * (POOL * (FOLDS - 1) // FOLDS) // 32, "batch": 32}},
    },
)
