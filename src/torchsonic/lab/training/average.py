"""A moving average of the weights.

By hand: ``torch.optim.swa_utils`` makes a deep copy of the module, which FSDP refuses.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

__all__ = ["MovingAverage"]


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
