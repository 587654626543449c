"""Limits on the responses: a band limit and a largest magnitude for each mode.

With the gained response ``g T`` of a mode,

    band limit        T' = T / (1 + (|w| / w_c)^{2n})          Butterworth's roll-off at the cutoff w_c
    hard limit        T' = T min(1, L / |T|)
    soft limit        T' = T (L / |T|) tanh(|T| / L)

in this order. Gradients are *conjugate* ones: ``dL = Re(G dT)``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

__all__ = ["UNLIMITED", "ResponseLimits", "band_factor", "limit_backward", "limit_response", "saturation"]

# Below this fraction of the limit the derivative of the soft limit comes from its series, since the formula cancels.
SERIES_BELOW = 0.1
# Coefficients 2 k c_k of (u sech^2 u - tanh u) / u^3, where tanh u = sum c_k u^(2k+1).
SERIES = (-2 / 3, 8 / 15, -34 / 105, 496 / 2835, -2764 / 31185)
TINY = 1e-20
# Responses below this fraction of the limit are left unchanged by it to the last digit.
NEGLIGIBLE = 1e-12


class ResponseLimits(NamedTuple):
    """Limits on the responses; none by default.

    Attributes
    ----------
    band_order
        Butterworth order ``n`` of the band limit, 0 for none; the cutoffs are given separately.
    magnitude
        Largest ``|g T|``, 0 for no limit.
    soft
        Limit the magnitude smoothly, like a hyperbolic tangent, instead of clipping it.
    """

    band_order: int = 0
    magnitude: float = 0.0
    soft: bool = False

    @property
    def active(self) -> bool:
        return self.band_order > 0 or self.magnitude > 0

    def check(self, cutoff: Tensor | None) -> None:
        """Refuse values out of range, and cutoffs without a band limit or the reverse."""
        if isinstance(self.band_order, bool) or self.band_order != int(self.band_order) or self.band_order < 0:
            raise ValueError(f"limits.band_order must be a whole number >= 0, got {self.band_order}")
        if not 0 <= self.magnitude < math.inf:
            raise ValueError(f"limits.magnitude must be a finite number >= 0, got {self.magnitude}")
        if self.soft and self.magnitude == 0:
            raise ValueError("limits.soft=True needs limits.magnitude > 0")
        # Two cases instead of one comparison of truth values, which a compiler's symbols do not have.
        if cutoff is None if self.band_order > 0 else cutoff is not None:
            raise ValueError(
                f"cutoff frequencies and limits.band_order > 0 go together, got band_order={self.band_order} and "
                f"{'no cutoff' if cutoff is None else 'a cutoff'}"
            )


UNLIMITED = ResponseLimits()


def band_factor(omega: Sequence[Tensor], cutoff: Tensor, order: int) -> Tensor:
    """``1 / (1 + (|w| / w_c)^{2n})``, ``(G, M, ..)``, for frequencies that broadcast to it and cutoffs ``(G, M)``.

    Computed as a sigmoid of logarithms, which neither overflows nor has a pole at ``w = 0``.
    """
    squared = omega[0].square()
    for w in omega[1:]:
        squared = squared + w.square()
    cutoff = cutoff.reshape(*cutoff.shape, *[1] * (squared.dim() - 2))
    return torch.sigmoid(order * (2 * cutoff.log() - squared.log()))


def saturation(magnitude: Tensor, limits: ResponseLimits) -> Tensor:
    """The factor that brings responses of the given magnitudes within the limit."""
    part = magnitude.clamp_min(TINY) / limits.magnitude
    return part.tanh() / part if limits.soft else part.clamp_min(1.0).reciprocal()


def limit_response(response: Tensor, omega: Sequence[Tensor], cutoff: Tensor | None, limits: ResponseLimits) -> Tensor:
    """Limit responses; differentiable any number of times.

    Parameters
    ----------
    response
        Gain included, complex, ``(G, M, ..)``.
    omega
        D frequencies that broadcast against the responses.
    cutoff
        ``(G, M)`` in radians per length, or ``None`` without a band limit.
    """
    if limits.band_order > 0:
        assert cutoff is not None
        response = response * band_factor(omega, cutoff, limits.band_order)
    if limits.magnitude > 0:
        # Second derivatives of a magnitude grow as its inverse and overflow where responses vanish.
        least = NEGLIGIBLE * limits.magnitude
        magnitude = response.masked_fill(response.detach().abs() < least, least).abs()
        response = response * saturation(magnitude, limits)
    return response


def limit_backward(
    grad: Tensor, response: Tensor, omega: Sequence[Tensor], cutoff: Tensor | None, limits: ResponseLimits
) -> tuple[Tensor, Tensor | None]:
    """Conjugate gradient of what :func:`limit_response` was given, and the gradient ``(G, M)`` of the cutoffs."""
    factor, banded = None, response
    if limits.band_order > 0:
        assert cutoff is not None
        factor = band_factor(omega, cutoff, limits.band_order)
        banded = response * factor
    if limits.magnitude > 0:
        grad = _saturation_backward(grad, banded, limits)
    if factor is None:
        return grad, None
    assert cutoff is not None
    # d factor / d w_c = factor (1 - factor) 2n / w_c
    change = (grad * banded).real * (1 - factor)
    return grad * factor, change.flatten(2).sum(-1) * (2 * limits.band_order) / cutoff


def _saturation_backward(grad: Tensor, response: Tensor, limits: ResponseLimits) -> Tensor:
    """``G = phi G' + (phi' / |T|) Re(G' T) conj(T)`` for ``T' = phi(|T|) T``."""
    part = response.abs().clamp_min(TINY) / limits.magnitude
    if limits.soft:
        tanh = part.tanh()
        square, series = part.square(), torch.zeros_like(part)
        for coefficient in reversed(SERIES):
            series = series * square + coefficient
        exact = (part * (1 - tanh.square()) - tanh) / (part * square).clamp_min(TINY)
        phi, slope = tanh / part, torch.where(part < SERIES_BELOW, series, exact)
    else:
        phi = part.clamp_min(1.0).reciprocal()
        slope = torch.where(part > 1, -(phi**3), 0.0)
    along = (grad * response).real * slope / limits.magnitude**2
    return phi * grad + along * response.conj()
