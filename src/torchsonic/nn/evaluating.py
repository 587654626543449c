"""A model in evaluation mode for a while."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn

__all__ = ["evaluating"]


@contextmanager
def evaluating(model: nn.Module) -> Iterator[nn.Module]:
    """Put a model in evaluation mode for a block of code; behind it each part, frozen ones too, is as it was."""
    training = {module: module.training for module in model.modules()}
    try:
        yield model.eval()
    finally:
        for module, mode in training.items():
            module.training = mode
