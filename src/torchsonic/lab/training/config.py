"""Settings of a training run: frozen, typed, saved with the run."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

__all__ = ["TrainingConfig"]


@dataclass(frozen=True, kw_only=True)
class TrainingConfig:
    """How a model is trained, whatever the task."""

    steps: int = 1000
    """Optimiser steps."""
    batch: int = 32
    """Samples per step, over all processes and accumulated parts together."""
    accumulate: int = 1
    """Parts a batch is split into, one after another, to save memory."""
    optimiser: Literal["adamw", "sgd"] = "adamw"
    """AdamW, or SGD with momentum."""
    momentum: float = 0.9
    """Of SGD."""
    nesterov: bool = True
    """Whether the momentum of SGD is Nesterov's."""
    learning_rate: float = 1e-2
    """Highest rate of the schedule."""
    schedule: Literal["one-cycle", "staircase"] = "one-cycle"
    """Rise and fall along cosines, or rise and be divided by ten again and again."""
    stair: float = 1 / 3
    """Part of the steps between two divisions of the staircase."""
    mode_lr_scale: float = 0.01
    """Rate of the modes of Sonic layers, relative to the others'."""
    weight_decay: float = 1e-4
    """Of matrices; vectors and modes have none."""
    warmup: float = 0.3
    """Part of the steps in which the rate rises."""
    clip: float = 1.0
    """Largest norm of the gradient; 0 does not clip."""
    ema: float = 0.0
    """Decay of a moving average of the weights, which is then evaluated and saved; 0 keeps none."""
    precision: Literal["fp32", "bf16", "fp16"] = "fp32"
    """Of activations; weights stay in float32."""
    seed: int = 0
    """Of weights, data and dropout."""
    workers: int = 0
    """Processes that prepare data; the data does not depend on it."""
    accelerator: str = "auto"
    """Device as Lightning Fabric names it: auto, cpu, cuda, mps."""
    devices: int = 1
    """Processes on this machine; under torchrun, its own number is used."""
    nodes: int = 1
    """Machines."""
    strategy: Literal["ddp", "fsdp"] = "ddp"
    """What several processes have: copies of the model, or parts of it (FSDP2), which saves memory."""
    timeout: float = 30.0
    """Minutes that a process waits for the others before it takes them for lost and ends with an error."""
    log_every: int = 10
    """Steps between lines of the log."""
    evaluate_every: int = 0
    """Steps between evaluations, of which the best is kept; 0 evaluates once at the end."""
    checkpoint_every: int = 200
    """Steps between checkpoints."""
    keep_every: int = 0
    """Steps between copies of the weights that are all kept, for looking at a training afterwards; 0 keeps none."""
    loggers: tuple[Literal["tensorboard", "wandb"], ...] = ()
    """Further logs beside the JSON lines."""

    def __post_init__(self) -> None:
        for name in ("steps", "batch", "accumulate", "devices", "nodes", "log_every", "checkpoint_every"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        for name in ("seed", "workers", "evaluate_every", "keep_every", "clip", "weight_decay", "mode_lr_scale"):
            if not 0 <= getattr(self, name) < math.inf:
                raise ValueError(f"{name} must not be negative, nor infinite, got {getattr(self, name)}")
        for name in ("ema", "warmup", "momentum"):
            if not 0.0 <= getattr(self, name) < 1.0:
                raise ValueError(f"{name} must be in [0, 1), got {getattr(self, name)}")
        for name in ("learning_rate", "timeout"):
            if not 0 < getattr(self, name) < math.inf:
                raise ValueError(f"{name} must be positive and finite, got {getattr(self, name)}")
        if not 0.0 < self.stair <= 1.0:
            raise ValueError(f"stair must be in (0, 1], got {self.stair}")
        if self.optimiser != "sgd" and (self.momentum != 0.9 or not self.nesterov):
            raise ValueError("momentum and nesterov belong to sgd, not to adamw")
        if self.optimiser == "sgd" and self.nesterov and self.momentum == 0.0:
            raise ValueError("momentum 0 leaves nothing to nesterov; switch it off or give a momentum")
        if self.schedule != "staircase" and self.stair != 1 / 3:
            raise ValueError("stair belongs to the staircase, not to the one-cycle schedule")
