"""Settings of a training run: frozen, typed, saved with the run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from torchsonic.lab.data.ranges import check_ranges


@dataclass(frozen=True, kw_only=True)
class TrainingConfig:
    """How a model is trained, whatever the task."""

    steps: int = 1000
    """Training steps."""
    batch: int = 32
    """Samples per step, summed over all processes and accumulated parts."""
    accumulate: int = 1
    """Split each batch into this many parts, computed one after another, to save memory."""
    optimiser: Literal["adamw", "sgd"] = "adamw"
    """Optimiser: AdamW, or SGD with momentum."""
    momentum: float = 0.9
    """Momentum of SGD."""
    nesterov: bool = True
    """Use plain momentum with SGD instead of Nesterov momentum."""
    learning_rate: float = 1e-2
    """Peak learning rate."""
    schedule: Literal["one-cycle", "one-cycle-momentum", "staircase"] = "one-cycle"
    """Learning rate schedule: one-cycle rises and falls along cosines; one-cycle-momentum is PyTorch's OneCycleLR,
    which also cycles AdamW's momentum; staircase repeatedly drops tenfold."""
    stair: float = 1 / 3
    """Fraction of the training between two drops of the staircase."""
    mode_lr_scale: float = 0.01
    """Learning rate of the modes of Sonic layers, relative to that of other parameters."""
    weight_decay: float = 1e-4
    """Weight decay."""
    decay: Literal["matrices", "all"] = "matrices"
    """What decays: matrices, but no vectors and modes, or all parameters."""
    warmup: float = 0.3
    """Fraction of the training during which the learning rate rises."""
    clip: float = 1.0
    """Clip the norm of the gradient to this value; 0 turns clipping off."""
    ema: float = 0.0
    """Decay of a moving average of the weights, which is then tested and saved; 0 turns it off."""
    precision: Literal["fp32", "bf16", "fp16"] = "fp32"
    """Data type of activations; weights stay in float32."""
    seed: int = 0
    """Seed for weights, data and dropout."""
    workers: int = 0
    """Number of processes that prepare data; it does not change the data."""
    accelerator: str = "auto"
    """Device, as Lightning Fabric names it: auto, cpu, cuda or mps."""
    devices: int = 1
    """Number of processes on this machine; torchrun sets it itself."""
    nodes: int = 1
    """Number of machines."""
    strategy: Literal["ddp", "fsdp"] = "ddp"
    """How processes share the work: each has a copy of the model (ddp), or a part of it to save memory (fsdp)."""
    timeout: float = 30.0
    """Minutes that a process waits for the others before it fails."""
    log_every: int = 10
    """Steps between log lines."""
    evaluate_every: int = 0
    """Steps between evaluations, the best of which is kept; 0 evaluates once, at the end."""
    checkpoint_every: int = 200
    """Steps between checkpoints."""
    keep_every: int = 0
    """Steps between copies of the weights to keep, for looking at the training afterwards; 0 keeps none."""
    loggers: tuple[Literal["tensorboard", "wandb"], ...] = ()
    """Loggers to use besides the JSON lines."""

    def __post_init__(self) -> None:
        counts = ("steps", "batch", "accumulate", "devices", "nodes", "log_every", "checkpoint_every")
        strengths = ("workers", "evaluate_every", "keep_every", "clip", "weight_decay", "mode_lr_scale")
        check_ranges(self, "[1, inf)", *counts)
        check_ranges(self, "[0, inf)", "seed", *strengths)
        check_ranges(self, "[0, 1)", "ema", "warmup", "momentum")
        check_ranges(self, "(0, inf)", "learning_rate", "timeout")
        check_ranges(self, "(0, 1]", "stair")
        if self.optimiser != "sgd" and (self.momentum != 0.9 or not self.nesterov):
            raise ValueError("momentum and nesterov belong to sgd, not to adamw")
        if self.optimiser == "sgd" and self.nesterov and self.momentum == 0.0:
            raise ValueError("momentum 0 leaves nothing for nesterov to do; switch it off or set a momentum")
        if self.schedule != "staircase" and self.stair != 1 / 3:
            raise ValueError(f"stair belongs to the staircase, not to the {self.schedule} schedule")
        if self.schedule == "one-cycle-momentum" and self.optimiser != "adamw":
            raise ValueError(f"schedule one-cycle-momentum belongs to adamw, not to {self.optimiser}; use one-cycle")
