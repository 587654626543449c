"""The two responses of a mode by real arithmetic alone, for runtimes without complex numbers.

On ``U = P + iQ`` and ``V = P - iQ`` the coupling of half spectra is diagonal,

    Re w + i Im w = T_a U,      Re w - i Im w = T_abar V,      T_a = T1 + i T2,  T_abar = T1 - i T2,

two complex products instead of four. The paper's half spectrum has ``T1 = T_a`` and ``T2 = -i T_a``: there the first is
``2 T_a U`` and the second vanishes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from torchsonic.export.lowering.symbolic import blend_signs, one_sided_omega, two_sided_omega
from torchsonic.spectral.band import Band
from torchsonic.spectral.limits import UNLIMITED, ResponseLimits, band_factor, saturation
from torchsonic.spectral.response import ModeShape, Symmetry, column, denominator, on_grid, responses_on_band

Parts = tuple[Tensor, Tensor]


class RealResponses(NamedTuple):
    """Real and imaginary parts of ``T_a`` and ``T_abar``, ``(G, M, n_1 .. n_D)``; no second on the half spectrum."""

    a: Parts
    abar: Parts | None

    def each(self, change: Callable[[Tensor], Tensor]) -> RealResponses:
        """Apply a function to every part."""
        a, abar = (None if t is None else (change(t[0]), change(t[1])) for t in self)
        assert a is not None
        return RealResponses(a, abar)

    @property
    def scale(self) -> float:
        """By which coupled signals are to be multiplied: the mean of two, or one alone."""
        return 1.0 if self.abar is None else 0.5


def constant_responses(
    shape: ModeShape, spacing: Tensor, band: Band, symmetry: Symmetry, limits: ResponseLimits, dtype: torch.dtype
) -> RealResponses:
    """Responses on a band of known size, in the precision of their parameters, then rounded to ``dtype``."""

    def parts(oscillation: Tensor) -> Parts:
        t = responses_on_band(shape._replace(oscillation=oscillation), spacing, band, symmetry, limits)
        return t.real.to(dtype).contiguous(), t.imag.to(dtype).contiguous()

    return RealResponses(parts(shape.oscillation), parts(-shape.oscillation) if symmetry == "real" else None)


def evaluate_real(
    shape: ModeShape, spacing: Tensor, band: Band, symmetry: Symmetry, limits: ResponseLimits = UNLIMITED
) -> RealResponses:
    """Responses of all modes on a band whose sizes may be symbols."""
    exact = symmetry == "real"
    omega = on_grid((two_sided_omega if exact else one_sided_omega)(band, spacing, shape.scale.dtype))

    def resolvent(shape: ModeShape) -> Parts:
        """``g / (p + i q)`` within its limits."""
        p, q = denominator(omega, shape)
        factor = column(shape.gain, len(omega)) / (p * p + q * q)
        if limits.band_order > 0:
            assert shape.cutoff is not None
            factor = factor * band_factor(omega, shape.cutoff, limits.band_order)
        real, imaginary = p * factor, -q * factor
        if limits.magnitude > 0:
            within = saturation((real * real + imaginary * imaginary).sqrt(), limits)
            real, imaginary = real * within, imaginary * within
        return (blend_signs(real, band), blend_signs(imaginary, band)) if exact else (real, imaginary)

    conjugate = shape._replace(oscillation=-shape.oscillation)
    return RealResponses(resolvent(shape), resolvent(conjugate) if exact else None)


def real_grid_gain(shape: ModeShape, spacing: Tensor, size: tuple[int, ...]) -> Tensor:
    """The paper's gain, :func:`torchsonic.functional.grid_gain`, for any spacings ``(G, D)``: ``(G, M)``."""
    omega = on_grid(one_sided_omega(Band(size, size), spacing, shape.scale.dtype))
    p, q = denominator(omega, shape)
    return (p.square() + q.square()).reciprocal().flatten(2).mean(-1).rsqrt()


def _times(t: Parts, z: Parts) -> Parts:
    return t[0] * z[0] - t[1] * z[1], t[0] * z[1] + t[1] * z[0]


def couple_real(p: Parts, q: Parts, responses: RealResponses) -> tuple[Parts, Parts]:
    """``T1 P - T2 Q`` and ``T1 Q + T2 P``, each divided by ``responses.scale``."""
    u = _times(responses.a, (p[0] - q[1], p[1] + q[0]))
    if responses.abar is None:
        return u, (u[1], -u[0])
    v = _times(responses.abar, (p[0] + q[1], p[1] - q[0]))
    return (u[0] + v[0], u[1] + v[1]), (u[1] - v[1], v[0] - u[0])
