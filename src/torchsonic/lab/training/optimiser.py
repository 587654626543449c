"""The optimiser of a run, its learning rates as functions of the step, so that there is no state to save, and averages.

The moving average of the weights is made by hand: ``torch.optim.swa_utils`` makes a deep copy of the module, which FSDP
refuses.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from torchsonic.lab.training.config import TrainingConfig
from torchsonic.nn import parameter_groups

FIRST, LAST = 1 / 25, 1e-4
TORCH_LAST, MOMENTUM = FIRST * 1e-4, (0.95, 0.85)  # the defaults of torch.optim.lr_scheduler.OneCycleLR


def make_optimiser(model: nn.Module, config: TrainingConfig) -> torch.optim.Optimizer:
    """The optimiser with modes in a group of their own; ``peak`` remembers each group's highest rate."""
    groups = parameter_groups(
        model, config.learning_rate, weight_decay=config.weight_decay, mode_lr_scale=config.mode_lr_scale
    )
    for group in groups:
        group["peak"] = group["lr"]
        if config.decay == "all":
            group["weight_decay"] = config.weight_decay
    if config.optimiser == "sgd":
        return torch.optim.SGD(groups, lr=config.learning_rate, momentum=config.momentum, nesterov=config.nesterov)
    return torch.optim.AdamW(groups, lr=config.learning_rate)


def set_rate(optimiser: torch.optim.Optimizer, step: int, config: TrainingConfig) -> float:
    """Set the learning rates of a step, and the momentum if it follows; returns the rate of ordinary weights."""
    momentum = None
    if config.schedule == "staircase":
        factor = staircase(step, config.steps, config.warmup, config.stair)
    elif config.schedule == "one-cycle-momentum":
        factor, momentum = torch_one_cycle(step, config.steps, config.warmup)
    else:
        factor = one_cycle(step, config.steps, config.warmup)
    for group in optimiser.param_groups:
        group["lr"] = group["peak"] * factor
        if momentum is not None:
            group["betas"] = (momentum, group["betas"][1])
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
    return _along_cosine(low, high, part)


def torch_one_cycle(step: int, steps: int, warmup: float) -> tuple[float, float]:
    r"""Learning rate at a step over its highest value, and momentum, as PyTorch's ``OneCycleLR`` sets them by default.

    Its peak comes one step earlier than that of :func:`one_cycle`, and its end is lower.

    Examples
    --------
    >>> [round(number, 3) for step in (0, 2, 9) for number in torch_one_cycle(step, 10, 0.3)]
    [0.04, 0.95, 1.0, 0.85, 0.0, 0.95]
    """
    peak, (high, low) = warmup * steps - 1, MOMENTUM
    if step < peak:
        part = step / peak
        return _along_cosine(FIRST, 1.0, part), _along_cosine(high, low, part)
    part = (step - peak) / (steps - 1 - peak)
    return _along_cosine(1.0, TORCH_LAST, part), _along_cosine(low, high, part)


def _along_cosine(start: float, end: float, part: float) -> float:
    return start + (end - start) * (1 - math.cos(math.pi * min(1.0, part))) / 2


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


class MovingAverage:
    """``average <- decay * average + (1 - decay) * weights`` after each step; quicker at first.

    Statistics of batch norms are averaged as the weights are: those of other weights would not fit them.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay = decay
        self.weights = {name: value.clone() for name, value in _numbers(model).items()}

    @torch.no_grad()
    def update(self, model: nn.Module, step: int) -> None:
        """Take the weights behind the given step in."""
        decay = min(self.decay, (1 + step) / (10 + step))
        for name, value in _numbers(model).items():
            self.weights[name].lerp_(value, 1 - decay)

    @contextmanager
    def applied(self, model: nn.Module) -> Iterator[None]:
        """Let the model have the averaged weights for a while."""
        own = {name: value.clone() for name, value in _numbers(model).items()}
        try:
            self.copy_to(model)
            yield
        finally:
            _copy(model, own)

    def copy_to(self, model: nn.Module) -> None:
        """Give a model the averaged weights."""
        _copy(model, self.weights)

    def state_dict(self) -> dict[str, Tensor]:
        return self.weights

    def load_state_dict(self, state: dict[str, Tensor], model: nn.Module) -> None:
        """Take up an average; what it does not hold, as the statistics of older runs, is that of the model."""
        for name, value in _numbers(model).items():
            self.weights[name].copy_(state.get(name, value))


def _numbers(model: nn.Module) -> dict[str, Tensor]:
    """Parameters and floating-point buffers, in the model's own memory."""
    return {name: value for name, value in model.state_dict().items() if value.is_floating_point()}


@torch.no_grad()
def _copy(model: nn.Module, weights: dict[str, Tensor]) -> None:
    for name, value in _numbers(model).items():
        value.copy_(weights[name])
