"""A moving average of the weights."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

__all__ = ["MovingAverage"]


class MovingAverage:
    """``average <- decay * average + (1 - decay) * weights`` after each step; quicker at first."""

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay = decay
        self.weights = {name: p.detach().clone() for name, p in model.named_parameters()}

    @torch.no_grad()
    def update(self, model: nn.Module, step: int) -> None:
        """Take the weights behind the given step in."""
        decay = min(self.decay, (1 + step) / (10 + step))
        for name, parameter in model.named_parameters():
            self.weights[name].lerp_(parameter.detach(), 1 - decay)

    @contextmanager
    def applied(self, model: nn.Module) -> Iterator[None]:
        """Let the model have the averaged weights for a while."""
        own = {name: p.detach().clone() for name, p in model.named_parameters()}
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

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        for name, value in state.items():
            self.weights[name].copy_(value)


@torch.no_grad()
def _copy(model: nn.Module, weights: dict[str, Tensor]) -> None:
    for name, parameter in model.named_parameters():
        parameter.copy_(weights[name])
