"""Evaluation mode for a block of code."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn

__all__ = ["evaluating"]


@contextmanager
def evaluating(model: nn.Module) -> Iterator[nn.Module]:
    """Put a model in evaluation mode for a block of code; afterwards every module has its own mode again."""
    training = {module: module.training for module in model.modules()}
    try:
        yield model.eval()
    finally:
        for module, mode in training.items():
            module.training = mode
