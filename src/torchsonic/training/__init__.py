"""One training loop for every task: configuration, losses, checkpoints, logs."""

from torchsonic.training.checkpoint import CheckpointError
from torchsonic.training.config import TrainingConfig
from torchsonic.training.fabric import make_fabric, wait_for_first
from torchsonic.training.loop import Fit, fit
from torchsonic.training.segmentation import SegmentationTask
from torchsonic.training.task import Task

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
