"""The response of a mode as it acts on real signals, and its derivative.

For a mode's two real signals ``P = Re(B) x`` and ``Q = Im(B) x`` a complex response acts on half spectra as

    Re w = T1 P - T2 Q,      Im w = T1 Q + T2 P.

* ``symmetry="real"`` (the exact operator): ``T1 = (T_a + T_abar)/2`` and ``T2 = (T_a - T_abar)/2i`` with the conjugate
  pole ``abar``. With ``E = p + i s (w.v)``, ``p = -Re a + tau |w_perp|^2`` and ``b = Im a`` they are

      T1 = g E / (E^2 + b^2),     T2 = g b / (E^2 + b^2).

  A Nyquist bin without sign takes the mean over both signs.
* ``symmetry="half"`` (the paper's notes): the half spectrum is used as it is, ``T1 = T_a`` and ``T2 = -i T_a``.

These are hand-written because they run inside an operator that autograd does not see: nothing of size (modes x
frequencies) is kept between forward and backward.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import combinations
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from torchsonic.functional.frequency import Band
from torchsonic.functional.grid import column, outer_sum
from torchsonic.functional.limits import UNLIMITED, ResponseLimits, limit_backward, limit_pair
from torchsonic.functional.nyquist import average_signs, average_signs_backward

__all__ = [
    "ModeShape",
    "ResponsePair",
    "Responses",
    "Symmetry",
    "along_on_grid",
    "damping_on_grid",
    "evaluate_responses",
    "grid_omega",
    "plain_pair",
    "response_bytes",
]

Symmetry = Literal["real", "half"]

# Squares of larger numbers overflow float32; responses there are zero in every dtype used here.
LARGEST = 1e18
# What a gradient may be at most: the units of length that the chain rule still multiplies it by leave float32 finite.
LARGEST_GRADIENT = 1e24


class ModeShape(NamedTuple):
    """Physical parameters of the responses, each ``(G, M)`` but ``direction (G, M, D)``; G is 1 or the batch.

    ``cutoff`` is there if the responses have a band limit; see :mod:`torchsonic.functional.limits`. A mode of gain zero
    is left out: it gets no gradient, that of the gain included.
    """

    direction: Tensor
    scale: Tensor
    damping: Tensor
    oscillation: Tensor
    transverse: Tensor
    gain: Tensor
    cutoff: Tensor | None = None

    def select(self, groups: slice, modes: slice) -> ModeShape:
        """The given modes of the given samples; parameters shared by the batch stay shared."""
        return self.each(lambda t: t[:, modes] if t.shape[0] == 1 else t[groups, modes])

    def each(self, change: Callable[[Tensor], Tensor]) -> ModeShape:
        """Apply a function to every tensor that is there."""
        cutoff = None if self.cutoff is None else change(self.cutoff)
        return ModeShape(*[change(t) for t in self[:6]], cutoff=cutoff)


class Responses(NamedTuple):
    """``T1`` and ``T2``, complex, ``(G, M, n_1 .. n_D)``."""

    t1: Tensor
    t2: Tensor

    @property
    def num_bytes(self) -> int:
        return self.t1.nbytes + self.t2.nbytes


def response_bytes(num_modes: int, band: Band, dtype: torch.dtype) -> int:
    """Bytes of ``T1`` and ``T2`` of so many modes, shared by the batch, for samples of a real type."""
    return 2 * 2 * dtype.itemsize * num_modes * math.prod(band.shape)


def _across(omega: list[Tensor], direction: Tensor, i: int, j: int) -> Tensor:
    """``w_i v_j - w_j v_i`` on axes i and j, with length 1 on the others."""
    first = (direction[..., j : j + 1] * omega[i][:, None]).clamp(-LARGEST, LARGEST)
    second = (direction[..., i : i + 1] * -omega[j][:, None]).clamp(-LARGEST, LARGEST)
    return outer_sum([first, second], (i, j), len(omega))


def along_on_grid(omega: list[Tensor], shape: ModeShape) -> Tensor:
    """``u = s (w.v)``, ``(G, M, n_1 .. n_D)``."""
    num_axes = len(omega)
    slope = shape.scale[..., None] * shape.direction
    pieces = [(slope[..., d : d + 1] * w[:, None]).clamp(-LARGEST, LARGEST) for d, w in enumerate(omega)]
    return outer_sum(pieces, tuple(range(num_axes)), num_axes)


def _denominator(omega: list[Tensor], shape: ModeShape, *, split_root: bool = True) -> Tensor:
    """``E = p + i u`` on the grid, ``(G, M, n_1 .. n_D)``."""
    along = along_on_grid(omega, shape)
    return torch.complex(damping_on_grid(omega, shape, split_root=split_root).expand_as(along), along)


def damping_on_grid(omega: list[Tensor], shape: ModeShape, *, split_root: bool = True) -> Tensor:
    """``p = -Re a + tau |w_perp|^2``.

    Giving each factor of a square its root of ``tau`` keeps huge values in range, but a root has no derivative at zero.
    """
    num_axes = len(omega)
    p = column(shape.damping, num_axes)
    spread = shape.direction * shape.transverse.sqrt()[..., None] if split_root else shape.direction
    for i, j in combinations(range(num_axes), 2):
        component = _across(omega, spread, i, j)
        other = component if split_root else component * column(shape.transverse, num_axes)
        p = torch.addcmul(p, component, other)
    clamp = p.clamp_ if split_root and num_axes > 1 else p.clamp
    return clamp(max=LARGEST)


def _raw_pair(omega: list[Tensor], shape: ModeShape, symmetry: Symmetry) -> tuple[Tensor, Tensor]:
    num_axes = len(omega)
    e = _denominator(omega, shape)
    gain, b = column(shape.gain, num_axes), column(shape.oscillation, num_axes)
    if symmetry == "half":
        t1 = e.sub_(1j * b).reciprocal_().mul_(gain)
        return t1, t1 * -1j
    # E^2 + b^2 by its factors: near a resonance the squares would cancel digits that u - b keeps.
    r = torch.complex(e.real, e.imag + b).mul_(torch.complex(e.real, e.imag - b)).reciprocal_().mul_(gain)
    return e.mul_(r), r.mul_(b)


def plain_pair(
    omega: list[Tensor], shape: ModeShape, band: Band, symmetry: Symmetry, limits: ResponseLimits = UNLIMITED
) -> Responses:
    """``T1`` and ``T2`` by operations that autograd can follow, any number of times."""
    num_axes = len(omega)
    e = _denominator(omega, shape, split_root=False)
    gain, b = column(shape.gain, num_axes), column(shape.oscillation, num_axes)
    if symmetry == "half":
        t1 = gain / (e - 1j * b)
        return Responses(*limit_pair((t1, -1j * t1), omega, shape.cutoff, limits, half=True))
    r = gain / ((e + 1j * b) * (e - 1j * b))
    t1, t2 = limit_pair((e * r, r * b), omega, shape.cutoff, limits)
    return Responses(average_signs(t1, band), average_signs(t2, band))


def grid_omega(spacing: Tensor, band: Band, symmetry: Symmetry, dtype: torch.dtype) -> list[Tensor]:
    """The frequencies at which a response is evaluated; exact ones take unsigned Nyquist bins with both signs."""
    return band.omega(spacing, dtype=dtype, both_signs=symmetry == "real")


def evaluate_responses(
    shape: ModeShape, spacing: Tensor, band: Band, symmetry: Symmetry, limits: ResponseLimits = UNLIMITED
) -> Responses:
    """``T1`` and ``T2`` of all modes on a band."""
    omega = grid_omega(spacing, band, symmetry, shape.scale.dtype)
    pair = ResponsePair(omega, shape, band, symmetry, limits)
    return Responses(pair.t1, pair.t2)


class ResponsePair:
    """``T1`` and ``T2`` (gain included) of some modes on a band, and their derivative.

    Parameters
    ----------
    omega
        From :func:`grid_omega`.
    shape
        Parameters of the modes.

    Attributes
    ----------
    t1, t2
        Complex, ``(G, M, n_1 .. n_D)``.
    """

    def __init__(
        self,
        omega: list[Tensor],
        shape: ModeShape,
        band: Band,
        symmetry: Symmetry = "real",
        limits: ResponseLimits = UNLIMITED,
        *,
        differentiable: bool = False,
    ) -> None:
        self._omega = omega
        self._shape, self._band, self._symmetry, self._limits = shape, band, symmetry, limits
        raw = _raw_pair(self._omega, shape, symmetry)
        self._raw = raw if differentiable else None
        limited = limit_pair(raw, omega, shape.cutoff, limits, half=symmetry == "half")
        self.t1, self.t2 = limited if symmetry == "half" else (average_signs(t, band) for t in limited)

    def backward(self, grad_t1: Tensor, grad_t2: Tensor) -> ModeShape:
        """Gradients of the mode parameters from the *conjugate* gradients of ``T1`` and ``T2``, which are overwritten.

        With ``dT1 = A dE + F db`` and ``dT2 = F dE - A db``, where ``A = (T2^2 - T1^2)/g`` and ``F = -2 T1 T2/g``,
        only per-mode sums of the gradient of ``E`` against the frequencies remain.
        """
        assert self._raw is not None
        t1, t2 = self._raw
        num_axes = len(self._omega)
        # A dropped mode has gain zero: it gets no gradient, and its responses cannot be divided by the gain.
        gain = self._shape.gain
        inverse_gain = column(torch.where(gain == 0, 0.0, gain.reciprocal()), num_axes)
        if self._symmetry == "half":
            (grad_t,), grad_cutoff = self._unlimit([grad_t1.add_(grad_t2, alpha=-1j)], [t1])
            grad_t.mul_(inverse_gain)  # first: squares of large responses times large gradients would overflow
            grad_gain = _dot(t1, grad_t).real
            grad_e = t1.square().mul_(grad_t).neg_()
            # d(E - ib)/db = -i
            grad_oscillation = grad_e.imag.sum(tuple(range(2, 2 + num_axes)))
        else:
            grads = [average_signs_backward(g, self._band) for g in (grad_t1, grad_t2)]
            (grad_t1, grad_t2), grad_cutoff = self._unlimit(grads, [t1, t2])
            grad_t1.mul_(inverse_gain)
            grad_t2.mul_(inverse_gain)
            grad_gain = (_dot(t1, grad_t1) + _dot(t2, grad_t2)).real
            a = torch.addcmul(t2.square(), t1, t1, value=-1)
            f = t1 * t2
            grad_oscillation = (-2 * _dot(f, grad_t1) - _dot(a, grad_t2)).real
            grad_e = a.mul_(grad_t1).addcmul_(f, grad_t2, value=-2)
        grads = _sum_over_grid(self._omega, self._shape, grad_e, grad_oscillation, grad_gain)
        return grads._replace(cutoff=grad_cutoff)

    def _unlimit(self, grads: list[Tensor], responses: list[Tensor]) -> tuple[list[Tensor], Tensor | None]:
        """Take gradients back through the limits."""
        if not self._limits.active:
            return grads, None
        return limit_backward(grads, responses, self._omega, self._shape.cutoff, self._limits)


def _dot(a: Tensor, b: Tensor) -> Tensor:
    """``sum a b`` over the grid, ``(G, M)``.

    Not by einsum: a matrix product adds all terms in one run and loses digits on large grids; ``sum`` adds pairwise.
    """
    return (a * b).flatten(2).sum(-1)


def _sum_over_grid(
    omega: list[Tensor], shape: ModeShape, grad_e: Tensor, grad_oscillation: Tensor, grad_gain: Tensor
) -> ModeShape:
    """Chain ``E = p + i u`` back, ``p = damping + tau sum_ij (w_i v_j - w_j v_i)^2`` and ``u = s (w.v)``.

    ``grad_e`` is the conjugate gradient: its real part belongs to ``p``, its negative imaginary part to ``u``.
    """
    num_axes = len(omega)
    grad_p, grad_u = grad_e.real, grad_e.imag.neg()
    moment = torch.stack([(_project(grad_u, (d,)) * w[:, None]).sum(-1) for d, w in enumerate(omega)], dim=-1)
    grad_direction = shape.scale[..., None] * moment
    grad_transverse = torch.zeros_like(moment[..., 0])
    for i, j in combinations(range(num_axes), 2):
        component = _across(omega, shape.direction, i, j)
        component = component.squeeze(tuple(2 + d for d in range(num_axes) if d not in (i, j)))
        weighted = _project(grad_p, (i, j)) * component
        slope_j = (weighted.sum(3) * omega[i][:, None]).sum(-1)
        slope_i = (weighted.sum(2) * omega[j][:, None]).sum(-1)
        grad_transverse += shape.direction[..., j] * slope_j - shape.direction[..., i] * slope_i
        grad_direction[..., j] += 2 * shape.transverse * slope_j
        grad_direction[..., i] -= 2 * shape.transverse * slope_i
    return ModeShape(
        direction=grad_direction,
        scale=(shape.direction * moment).sum(-1),
        damping=grad_p.sum(tuple(range(2, 2 + num_axes))),
        oscillation=grad_oscillation,
        transverse=grad_transverse,
        gain=grad_gain,
    ).each(lambda g: g.clamp_(-LARGEST_GRADIENT, LARGEST_GRADIENT))


def _project(values: Tensor, kept: tuple[int, ...]) -> Tensor:
    dropped = tuple(d for d in range(2, values.dim()) if d - 2 not in kept)
    return values.sum(dropped) if dropped else values
