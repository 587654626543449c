"""One training loop for every task: configuration, losses, checkpoints, logs."""

from torchsonic.lab.training.checkpoint import CheckpointError
from torchsonic.lab.training.config import TrainingConfig
from torchsonic.lab.training.fabric import make_fabric, wait_for_first
from torchsonic.lab.training.loop import Fit, fit
from torchsonic.lab.training.segmentation import SegmentationTask
from torchsonic.lab.training.task import Task

__all__ = [
    "CheckpointError",
    "Fit",
    "SegmentationTask",
    "Task",
    "TrainingConfig",
    "fit",
    "make_fabric",
    "wait_for_first",
]
