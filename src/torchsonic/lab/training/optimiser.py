"""The optimiser of a run, and its learning rates as functions of the step, so that there is no state to save."""

from __future__ import annotations

import math

import torch
from torch import nn

from torchsonic.lab.training.config import TrainingConfig
from torchsonic.nn import parameter_groups

__all__ = ["make_optimiser", "one_cycle", "set_rate", "staircase"]

FIRST, LAST = 1 / 25, 1e-4


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


def one_cycle(step: int, steps: int, warmup: float) -> float:
    r"""Learning rate at a step over its highest value.

    Cosines from 1/25 up to 1 during the first ``warmup`` part of the steps, and from 1 down to 1e-4.

    Examples
    --------
    >>> [round(one_cycle(step, 11, 0.3), 2) for step in (0, 3, 10)]
    [0.04, 1.0, 0.0]
    """
    peak, last = warmup * (steps - 1), max(1, steps - 1)
    if step < peak:
        low, high, part = FIRST, 1.0, step / peak
    else:
        low, high, part = 1.0, LAST, (step - peak) / max(1e-9, last - peak)
    return low + (high - low) * (1 - math.cos(math.pi * min(1.0, part))) / 2


def staircase(step: int, steps: int, warmup: float, stair: float) -> float:
    r"""Learning rate at a step over its highest value: 1, divided by ten after each ``stair`` part of the steps.

    During the first ``warmup`` part it rises from 1/25 as that of :func:`one_cycle` does.

    Examples
    --------
    >>> [round(staircase(step, 9, 0.0, 1 / 3), 3) for step in (0, 2, 3, 8)]
    [1.0, 1.0, 0.1, 0.01]
    """
    if step < warmup * (steps - 1):
        return one_cycle(step, steps, warmup)
    return 0.1 ** math.floor(step / (stair * steps) + 1e-9)
