"""Stochastic depth: leaving residual branches out at random."""

from __future__ import annotations

import torch
from torch import Tensor, nn

__all__ = ["DropPath"]


class DropPath(nn.Module):
    """Leave a branch out for a sample with the given probability, in training; keep its expectation."""

    def __init__(self, probability: float = 0.0) -> None:
        super().__init__()
        if not 0.0 <= probability < 1.0:
            raise ValueError(f"probability must be in [0, 1), got {probability}")
        self.probability = probability

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.probability == 0.0:
            return x
        kept = torch.rand(x.shape[0], *[1] * (x.dim() - 1), device=x.device) >= self.probability
        return x * (kept.to(x.dtype) / (1 - self.probability))

    def extra_repr(self) -> str:
        return f"{self.probability}"
