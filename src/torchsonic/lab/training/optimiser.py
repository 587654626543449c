"""The optimiser of a run."""

from __future__ import annotations

import torch
from torch import nn

from torchsonic.lab.training.config import TrainingConfig
from torchsonic.lab.training.schedule import one_cycle, staircase
from torchsonic.nn import parameter_groups

__all__ = ["make_optimiser", "set_rate"]


def make_optimiser(model: nn.Module, config: TrainingConfig) -> torch.optim.Optimizer:
    """The optimiser with modes in a group of their own; ``peak`` remembers each group's highest rate."""
    groups = parameter_groups(
        model, config.learning_rate, weight_decay=config.weight_decay, mode_lr_scale=config.mode_lr_scale
    )
    for group in groups:
        group["peak"] = group["lr"]
    if config.optimiser == "sgd":
        return torch.optim.SGD(groups, lr=config.learning_rate, momentum=config.momentum, nesterov=config.nesterov)
    return torch.optim.AdamW(groups, lr=config.learning_rate)


def set_rate(optimiser: torch.optim.Optimizer, step: int, config: TrainingConfig) -> float:
    """Set the learning rates of a step; returns that of ordinary weights."""
    if config.schedule == "staircase":
        factor = staircase(step, config.steps, config.warmup, config.stair)
    else:
        factor = one_cycle(step, config.steps, config.warmup)
    for group in optimiser.param_groups:
        group["lr"] = group["peak"] * factor
    return config.learning_rate * factor
