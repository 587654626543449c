"""Between raw numbers, which an optimiser may move anywhere, and positive or unit ones."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from torchsonic.spectral.constants import constant, fixed

__all__ = ["inverse_softplus", "smallest", "unit_vectors"]


@fixed
def smallest() -> float:
    """Keeps 1 / |Re a| and 1 / s finite when softplus underflows; far below any useful value."""
    return 1e-6


@fixed
def _shortest() -> float:
    """Vectors shorter than this have no direction."""
    return 1e-12


def inverse_softplus(value: Tensor) -> Tensor:
    """The number whose softplus is ``value > 0``."""
    return value + torch.log(-torch.expm1(-value))


def unit_vectors(raw: Tensor) -> Tensor:
    """``u / |u|`` of the last axis; a vector without length points along the first axis and gets no gradient."""
    first = constant((1.0, *[0.0] * (raw.shape[-1] - 1)), raw.device, raw.dtype)
    lost = raw.detach().abs().amax(-1, keepdim=True) < _shortest()
    return F.normalize(torch.where(lost, first, raw), dim=-1, eps=_shortest())
