"""The samples that a run on synthetic scenes learns from and is tested on."""

from __future__ import annotations

from typing import Any

from torchsonic.lab.data import HalliGalli, SynthShape
from torchsonic.lab.runs.synthetic.config import FOLDS, POOL, SyntheticConfig, TaskName
from torchsonic.lab.training import SegmentationTask

__all__ = ["TEST_NOISE", "make_data", "make_task", "test_indices"]

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
