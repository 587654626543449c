"""Limits on the responses: a band limit and a largest magnitude for each mode.

With the gained response ``g T`` of a mode,

    band limit        T' = T / (1 + (|w| / w_c)^{2n})          Butterworth's roll-off at the cutoff w_c
    hard limit        T' = T min(1, L / |T|)
    soft limit        T' = T (L / |T|) tanh(|T| / L)

in this order. The band factor is real and even in ``w``, so it multiplies ``T1`` and ``T2`` of :mod:`pair` alike. The
magnitude belongs to ``T_a = T1 + i T2`` and ``T_abar = T1 - i T2``, each for itself. Gradients are *conjugate* ones, as
in :mod:`pair`: ``dL = Re(G dT)``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from torchsonic.functional.grid import column, outer_sum

__all__ = [
    "UNLIMITED",
    "ResponseLimits",
    "band_on_grid",
    "limit_backward",
    "limit_pair",
    "limit_response",
    "limit_responses",
    "saturation",
]

# Below this part of the limit the derivative of the soft limit is taken from its series: the formula cancels.
SERIES_BELOW = 0.1
# Coefficients 2 k c_k of (u sech^2 u - tanh u) / u^3, where tanh u = sum c_k u^(2k+1).
SERIES = (-2 / 3, 8 / 15, -34 / 105, 496 / 2835, -2764 / 31185)
TINY = 1e-20
# Responses below this part of the limit are not changed by it, in any digit.
NEGLIGIBLE = 1e-12


class ResponseLimits(NamedTuple):
    """What limits the responses; by default nothing does.

    Attributes
    ----------
    band_order
        Butterworth order ``n`` of the band limit, 0 for none; its cutoffs are a tensor of their own.
    magnitude
        Largest ``|g T|``, 0 for none.
    soft
        Approach the largest magnitude as a hyperbolic tangent does, instead of being cut there.
    """

    band_order: int = 0
    magnitude: float = 0.0
    soft: bool = False

    @property
    def active(self) -> bool:
        return self.band_order > 0 or self.magnitude > 0

    def check(self, cutoff: Tensor | None) -> None:
        """Refuse what has no meaning."""
        if isinstance(self.band_order, bool) or self.band_order != int(self.band_order) or self.band_order < 0:
            raise ValueError(f"limits.band_order must be a whole number >= 0, got {self.band_order}")
        if not 0 <= self.magnitude < math.inf:
            raise ValueError(f"limits.magnitude must be a finite number >= 0, got {self.magnitude}")
        if self.soft and self.magnitude == 0:
            raise ValueError("limits.soft=True needs limits.magnitude > 0")
        # Not compared as truth values, which a compiler's symbols are not.
        if cutoff is None if self.band_order > 0 else cutoff is not None:
            raise ValueError(
                f"cutoff frequencies and limits.band_order > 0 belong together, got band_order={self.band_order} and "
                f"{'no cutoff' if cutoff is None else 'a cutoff'}"
            )


UNLIMITED = ResponseLimits()


def _band_factor(squared: Tensor, cutoff: Tensor, order: int) -> Tensor:
    """``1 / (1 + (|w| / w_c)^{2n})`` by a sigmoid of logarithms: no overflow, and no pole at ``w = 0``."""
    return torch.sigmoid(order * (2 * cutoff.log() - squared.log()))


def band_on_grid(omega: Sequence[Tensor], cutoff: Tensor, order: int) -> Tensor:
    """The factor for axes ``(G, n_d)`` and cutoffs ``(G, M)``: ``(G, M, n_1 .. n_D)``."""
    num_axes = len(omega)
    squared = outer_sum([w.square()[:, None] for w in omega], range(num_axes), num_axes)
    return _band_factor(squared, column(cutoff, num_axes), order)


def saturation(magnitude: Tensor, limits: ResponseLimits) -> Tensor:
    """The factor that brings a response of the given magnitude within the largest one."""
    part = magnitude.clamp_min(TINY) / limits.magnitude
    return part.tanh() / part if limits.soft else part.clamp_min(1.0).reciprocal()


def _saturated(response: Tensor, limits: ResponseLimits) -> Tensor:
    """A complex response within the largest magnitude; autograd can follow, any number of times."""
    # Second derivatives of a magnitude grow as its inverse and overflow where responses vanish.
    least = NEGLIGIBLE * limits.magnitude
    magnitude = response.masked_fill(response.detach().abs() < least, least).abs()
    return response * saturation(magnitude, limits)


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


def _apart(t1: Tensor, t2: Tensor) -> tuple[Tensor, Tensor]:
    """``T_a`` and ``T_abar``."""
    return t1 + 1j * t2, t1 - 1j * t2


def limit_responses(
    responses: Sequence[Tensor], omega: Sequence[Tensor], cutoff: Tensor | None, limits: ResponseLimits
) -> list[Tensor]:
    """Limit ``[T1, T2]`` of the exact operator, or ``[T]`` of the half spectrum; autograd can follow.

    Parameters
    ----------
    responses
        Gain included, each ``(G, M, n_1 .. n_D)``.
    omega
        Frequencies of each axis, ``(G, n_d)``.
    cutoff
        ``(G, M)`` in radians per length, or ``None`` without a band limit.
    """
    limited = list(responses)
    if limits.band_order > 0:
        assert cutoff is not None
        factor = band_on_grid(omega, cutoff, limits.band_order)
        limited = [t * factor for t in limited]
    if limits.magnitude > 0 and len(limited) == 1:
        limited = [_saturated(limited[0], limits)]
    elif limits.magnitude > 0:
        a, abar = (_saturated(t, limits) for t in _apart(limited[0], limited[1]))
        limited = [0.5 * (a + abar), -0.5j * (a - abar)]
    return limited


def limit_pair(
    pair: tuple[Tensor, Tensor],
    omega: Sequence[Tensor],
    cutoff: Tensor | None,
    limits: ResponseLimits,
    *,
    half: bool = False,
) -> tuple[Tensor, Tensor]:
    """``T1`` and ``T2`` within their limits; on the half spectrum ``T2 = -i T1`` follows from the first."""
    if not limits.active:
        return pair
    if half:
        (t1,) = limit_responses(pair[:1], omega, cutoff, limits)
        return t1, t1 * -1j
    t1, t2 = limit_responses(pair, omega, cutoff, limits)
    return t1, t2


def limit_backward(
    grads: Sequence[Tensor],
    responses: Sequence[Tensor],
    omega: Sequence[Tensor],
    cutoff: Tensor | None,
    limits: ResponseLimits,
) -> tuple[list[Tensor], Tensor | None]:
    """Conjugate gradients of what :func:`limit_responses` got, and the gradient ``(G, M)`` of the cutoffs."""
    factor, banded = None, list(responses)
    if limits.band_order > 0:
        assert cutoff is not None
        factor = band_on_grid(omega, cutoff, limits.band_order)
        banded = [t * factor for t in banded]
    if limits.magnitude > 0 and len(banded) == 1:
        grads = [_saturation_backward(grads[0], banded[0], limits)]
    elif limits.magnitude > 0:
        # T1 = (T_a + T_abar) / 2 and T2 = (T_a - T_abar) / 2i
        outer = 0.5 * (grads[0] - 1j * grads[1]), 0.5 * (grads[0] + 1j * grads[1])
        parts = zip(outer, _apart(banded[0], banded[1]), strict=True)
        a, abar = (_saturation_backward(g, t, limits) for g, t in parts)
        grads = [a + abar, 1j * (a - abar)]
    if factor is None:
        return list(grads), None
    assert cutoff is not None
    # d factor / d w_c = factor (1 - factor) 2n / w_c
    change = sum((g * t).real for g, t in zip(grads, banded, strict=True)) * (1 - factor)
    grad_cutoff = change.flatten(2).sum(-1) * (2 * limits.band_order) / cutoff
    return [g * factor for g in grads], grad_cutoff


def limit_response(response: Tensor, omega: Tensor, cutoff: Tensor | None, limits: ResponseLimits) -> Tensor:
    """Limit gained responses ``(M, ...)`` at any frequencies ``(..., D)``, with cutoffs ``(M,)``."""
    if limits.band_order > 0:
        assert cutoff is not None
        squared = omega.square().sum(-1)
        response = response * _band_factor(squared, column(cutoff, squared.dim()), limits.band_order)
    return _saturated(response, limits) if limits.magnitude > 0 else response
