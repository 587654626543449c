"""From stored numbers, which an optimiser may move anywhere, to the physical parameters of modes.

``s = softplus(.) d``, ``Re a = -softplus(.)``, ``Im a = rho tanh(.)``, ``tau = softplus(.) d^2`` and ``v = u / |u|``,
where ``d`` is the reference length: stored numbers have no units.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from torchsonic.spectral.constants import constant, fixed

__all__ = ["inverse_softplus", "physical", "reference_length", "shortest", "smallest", "unit_vectors"]


@fixed
def smallest() -> float:
    """Keeps ``1 / |Re a|`` and ``1 / s`` finite when softplus underflows; far below any useful value."""
    return 1e-6


@fixed
def shortest() -> float:
    """Vectors shorter than this have no direction."""
    return 1e-12


def inverse_softplus(value: Tensor) -> Tensor:
    """The number whose softplus is ``value > 0``."""
    return value + torch.log(-torch.expm1(-value))


def unit_vectors(raw: Tensor) -> Tensor:
    """``u / |u|`` over the last axis; a zero vector becomes the first axis and gets no gradient."""
    first = constant((1.0, *[0.0] * (raw.shape[-1] - 1)), raw.device, raw.dtype)
    lost = raw.detach().abs().amax(-1, keepdim=True) < shortest()
    return F.normalize(torch.where(lost, first, raw), dim=-1, eps=shortest())


def reference_length(spacing: Sequence[float]) -> float:
    """The unit of the dimensionless parameters: the geometric mean of the reference spacing."""
    return math.exp(sum(math.log(step) for step in spacing) / len(spacing))


def physical(raw: Sequence[Tensor], spacing: Sequence[float]) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Direction ``(M, D)``, scale, damping, oscillation and transverse ``(M,)``.

    Parameters
    ----------
    raw
        The same five as they are stored, followed by the limit ``rho`` of oscillation.
    """
    direction, scale, damping, oscillation, transverse, limit = raw
    unit = reference_length(spacing)
    return (
        unit_vectors(direction),
        (F.softplus(scale) + smallest()) * unit,
        F.softplus(damping) + smallest(),
        limit * torch.tanh(oscillation),
        F.softplus(transverse) * unit**2,
    )
