r"""Responses of the modes.

A mode is an oriented resolvent. With ``p = -Re a + tau |w_perp|^2 > 0`` and ``q = s (w.v) - Im a``,

    T(w) = g / (p + i q),       |T| <= g / |Re a|.

``|w_perp|^2`` is computed as the sum of the squares of ``w_i v_j - w_j v_i`` (i < j), which vanish along the mode's
direction without the cancellation that ``|w|^2 - (w.v)^2`` suffers in float32.

Frequencies are D tensors that broadcast against ``(G, M, ..)``: the axes of a grid (:func:`on_grid`) or any points.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from torchsonic.spectral.band import Band
from torchsonic.spectral.constants import fixed
from torchsonic.spectral.limits import UNLIMITED, ResponseLimits, limit_response
from torchsonic.spectral.nyquist import average_signs

__all__ = [
    "ModeShape",
    "Modes",
    "Symmetry",
    "column",
    "denominator",
    "grid_omega",
    "mode_response",
    "on_grid",
    "respond",
    "responses_on_band",
    "spacing_frame",
    "turn_directions",
]

Symmetry = Literal["real", "half"]


@fixed
def _largest() -> float:
    """Squares of larger numbers overflow float32; responses this far out are zero in any dtype."""
    return 1e18


class Modes(NamedTuple):
    """The physical parameters of a Sonic operator: everything needed to rebuild it.

    Attributes
    ----------
    direction
        Unit vectors ``v``, ``(M, D)``.
    scale
        ``s > 0`` in units of length, ``(M,)``.
    pole
        ``a`` with negative real part, complex, ``(M,)``.
    transverse
        ``tau >= 0`` in units of length squared, ``(M,)``.
    gain
        Factor ``g`` on each response, ``(M,)``.
    mix_in, mix_out
        ``B (M, C)`` and ``C (K, M)``, complex.
    """

    direction: Tensor
    scale: Tensor
    pole: Tensor
    transverse: Tensor
    gain: Tensor
    mix_in: Tensor
    mix_out: Tensor


class ModeShape(NamedTuple):
    """Physical parameters of the responses: ``direction (G, M, D)``, all others ``(G, M)``; G is 1 or the batch size.

    ``damping`` and ``oscillation`` are ``-Re a`` and ``Im a``. ``cutoff`` is for a band limit; see
    :mod:`torchsonic.spectral.limits`. A mode with zero gain is skipped and gets no gradient, not even for its gain.
    """

    direction: Tensor
    scale: Tensor
    damping: Tensor
    oscillation: Tensor
    transverse: Tensor
    gain: Tensor
    cutoff: Tensor | None = None

    def select(self, samples: slice, modes: slice) -> ModeShape:
        """Some modes of some samples; parameters shared by the batch stay shared."""
        return self.each(lambda t: t[:, modes] if t.shape[0] == 1 else t[samples, modes])

    def turned(self, orientation: Tensor | None) -> ModeShape:
        """The same modes on the axes of an array with an orientation; see :func:`turn_directions`."""
        return self._replace(direction=turn_directions(self.direction, orientation))

    def aligned(self) -> ModeShape:
        """The same parameters with one row per sample each, if any has; rows that were shared are repeated."""
        rows = [t.shape[0] for t in self if t is not None and t.shape[0] != 1]
        return self.each(lambda t: t.expand(rows[0], *t.shape[1:])) if rows else self

    def each(self, change: Callable[[Tensor], Tensor]) -> ModeShape:
        """Apply a function to every tensor."""
        return ModeShape(*[None if t is None else change(t) for t in self])  # type: ignore[arg-type]


def turn_directions(direction: Tensor, orientation: Tensor | None) -> Tensor:
    """Directions in space, ``R^T v`` along the axes of an array: ``(G, M, D)`` and ``(G, D, D)``, G 1 or the batch."""
    return direction if orientation is None else direction @ orientation.to(direction)


def column(values: Tensor, num_axes: int) -> Tensor:
    """Append ``num_axes`` axes of length 1 to numbers per mode ``(.., M)``."""
    return values.reshape(*values.shape, *[1] * num_axes)


def on_grid(omega: Sequence[Tensor]) -> list[Tensor]:
    """Frequencies of the axes of a grid, ``(G, n_d)`` each, as D tensors ``(G, 1, 1 .. n_d .. 1)``."""
    return [
        w.reshape(w.shape[0], 1, *[w.shape[1] if d == axis else 1 for d in range(len(omega))])
        for axis, w in enumerate(omega)
    ]


def grid_omega(spacing: Tensor, band: Band, symmetry: Symmetry, dtype: torch.dtype) -> list[Tensor]:
    """Frequencies of a band, ready to broadcast; the exact operator needs both signs of unsigned Nyquist bins."""
    return on_grid(band.omega(spacing, dtype=dtype, both_signs=symmetry == "real"))


def _bounded(value: Tensor) -> Tensor:
    return value.clamp(-_largest(), _largest())


def denominator(omega: Sequence[Tensor], shape: ModeShape) -> tuple[Tensor, Tensor]:
    """``p`` and ``q``, real, ``(G, M, ..)``."""
    num_axes, shape = omega[0].dim() - 2, shape.aligned()
    v = shape.direction.unbind(-1)
    weighted = (shape.direction * shape.transverse[..., None]).unbind(-1)
    slopes = (shape.direction * shape.scale[..., None]).unbind(-1)

    def along_axis(i: int) -> Tensor:
        """The frequencies of one axis times all their factors at once: ``s v_i``, and ``v_j, tau v_j`` for j != i."""
        others = [factor for j in range(len(v)) if j != i for factor in (v[j], weighted[j])]
        return _bounded(column(torch.stack([slopes[i], *others]), num_axes) * omega[i])

    terms = [along_axis(i) for i in range(len(omega))]
    q = terms[0][0] - column(shape.oscillation, num_axes)
    for term in terms[1:]:
        q = q + term[0]
    p = column(shape.damping, num_axes)
    if len(omega) == 1:  # nothing lies across, but the gradient must exist
        return p + 0 * column(shape.transverse, num_axes), q
    for i, j in combinations(range(len(omega)), 2):
        # The component across times itself times tau. Its square alone could overflow where p does not.
        across = terms[i][2 * j - 1 : 2 * j + 1] - terms[j][2 * i + 1 : 2 * i + 3]
        p = torch.addcmul(p, across[0], across[1])
    return p.clamp(max=_largest()), q


def respond(omega: Sequence[Tensor], shape: ModeShape) -> Tensor:
    """``T = g / (p + i q)``, complex, ``(G, M, ..)``, not limited."""
    p, q = denominator(omega, shape)
    return column(shape.gain, q.dim() - 2) / torch.complex(p.expand_as(q), q)


def responses_on_band(
    shape: ModeShape, spacing: Tensor, band: Band, symmetry: Symmetry = "real", limits: ResponseLimits = UNLIMITED
) -> Tensor:
    """Limited responses of all modes on a band, ``(G, M, *band.shape)``; differentiable any number of times."""
    omega = grid_omega(spacing, band, symmetry, shape.scale.dtype)
    response = limit_response(respond(omega, shape), omega, shape.cutoff, limits)
    return average_signs(response, band) if symmetry == "real" else response


def mode_response(omega: Tensor, direction: Tensor, scale: Tensor, pole: Tensor, transverse: Tensor) -> Tensor:
    r"""Response of each mode at the given frequencies.

    .. math:: T_m(\omega) = \frac{1}{i s_m (\omega\cdot v_m) - a_m + \tau_m |\omega - (\omega\cdot v_m) v_m|^2}

    Parameters
    ----------
    omega
        Frequencies, ``(..., D)``, radians per unit of length.
    direction, scale, pole, transverse
        ``(M, D)``, ``(M,)``, ``(M,)`` complex, ``(M,)``; see :class:`Modes`.

    Returns
    -------
    Tensor
        ``(M, ...)``, complex.

    Examples
    --------
    >>> omega = torch.zeros(1, 2)
    >>> mode_response(omega, torch.tensor([[1.0, 0.0]]), torch.ones(1), torch.tensor([-0.5 + 0j]), torch.ones(1))
    tensor([[2.+0.j]])

    References
    ----------
    The paper's equation for a single mode, section "Formulation".
    """
    given = (direction, scale, -pole.real, pole.imag, transverse, torch.ones_like(scale))
    return respond([w[None, None] for w in omega.unbind(-1)], ModeShape(*[t[None] for t in given]))[0]


def spacing_frame(direction: Tensor, spacing: Sequence[float] | Tensor) -> Tensor:
    """The paper's rescaled directions ``D^-1 v / |D^-1 v|``: ``(M, D)`` and ``(G, D)`` give ``(G, M, D)``."""
    steps = torch.as_tensor(spacing, dtype=direction.dtype, device=direction.device).reshape(-1, 1, direction.shape[-1])
    return torch.nn.functional.normalize(direction / steps, dim=-1)
