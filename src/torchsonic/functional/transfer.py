"""Mode responses and gains.

A mode is an oriented resolvent. With ``p = -Re a + tau |w_perp|^2 > 0`` and ``q = s (w.v) - Im a``,

    T(w) = 1 / (p + i q),       |T| <= 1 / |Re a|.

Across the direction, ``|w_perp|^2`` is the sum of the squared components ``w_i v_j - w_j v_i`` (i < j): they vanish
on the mode's own ridge without the cancellation that ``|w|^2 - (w.v)^2`` suffers in float32.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from torchsonic.functional.fixed import fixed, pi
from torchsonic.functional.frequency import Spacing, as_spacing, constant
from torchsonic.functional.limits import UNLIMITED, ResponseLimits, limit_response

__all__ = ["Modes", "grid_gain", "mode_response", "reference_gain", "response_matrix", "spacing_frame"]

NUM_QUADRATURE_NODES = 32


class Modes(NamedTuple):
    """The physical parameters of a Sonic operator: all that is needed to rebuild it.

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


def mode_response(omega: Tensor, direction: Tensor, scale: Tensor, pole: Tensor, transverse: Tensor) -> Tensor:
    r"""Response of each mode at any frequencies.

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
    # Products of numbers, not of matrices: those autocast would round to half precision.
    column = (slice(None), *[None] * (omega.dim() - 1))
    v, w = [component[column] for component in direction.unbind(-1)], omega.unbind(-1)
    along = sum((a * b for a, b in zip(v, w, strict=True)), start=direction.new_zeros(()))
    pairs = combinations(range(len(w)), 2)
    across = sum(((v[j] * w[i] - v[i] * w[j]).square() for i, j in pairs), start=torch.zeros_like(along))
    p = transverse[column] * across - pole.real[column]
    q = scale[column] * along - pole.imag[column]
    return torch.complex(p, q).reciprocal()


def response_matrix(
    omega: Tensor,
    modes: Modes,
    *,
    hermitian: bool = True,
    cutoff: Tensor | None = None,
    limits: ResponseLimits = UNLIMITED,
) -> Tensor:
    r"""The symbol of the real operator, one K x C matrix per frequency.

    .. math:: \hat H(\omega) = \tfrac12\Big[\sum_m C_{km} g_m T_m(\omega) B_{mc}
              + \overline{\sum_m C_{km} g_m T_m(-\omega) B_{mc}}\Big]

    Taking the real part of a convolution in space is taking this Hermitian part of its symbol.

    Parameters
    ----------
    omega
        ``(..., D)``.
    hermitian
        ``False`` leaves out the second term: the symbol of the complex operator.
    cutoff, limits
        Limits of ``g_m T_m``, if it has any; see :mod:`torchsonic.functional.limits`.

    Returns
    -------
    Tensor
        ``(..., K, C)``, complex.
    """
    limits.check(cutoff)

    def symbol(frequencies: Tensor) -> Tensor:
        response = mode_response(frequencies, modes.direction, modes.scale, modes.pole, modes.transverse)
        gained = torch.einsum("m,m...->m...", modes.gain.to(response.dtype), response)
        gained = limit_response(gained, frequencies, cutoff, limits)
        return torch.einsum("km,m...,mc->...kc", modes.mix_out, gained, modes.mix_in)

    return 0.5 * (symbol(omega) + symbol(-omega).conj()) if hermitian else symbol(omega)


def _transverse_quadrature(num_axes: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Nodes ``rho^2`` and weights of the mean over the transverse ball of radius 1.

    Across a mode the integrand varies over ``sqrt(|Re a| / tau)``, which may be a small part of the radius, so the
    Gauss-Legendre nodes are pulled towards the centre by ``rho = t^3``.
    """
    nodes, weights = np.polynomial.legendre.leggauss(NUM_QUADRATURE_NODES)
    t, weights = 0.5 * (nodes + 1), 0.5 * weights
    dimension = num_axes - 1
    density = dimension * t ** (3 * (dimension - 1)) * 3 * t**2  # d(rho^dimension)
    return tuple((t**6).tolist()), tuple((weights * density).tolist())


_QUADRATURE = {num_axes: _transverse_quadrature(num_axes) for num_axes in (2, 3)}


@fixed
def _quadrature(num_axes: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
    return _QUADRATURE[num_axes]


@fixed
def _least_power() -> float:
    """Of a response over the reference cell: its gain is at most 1e12, and the gain's gradient finite in float32."""
    return 1e-24


def reference_gain(direction: Tensor, scale: Tensor, pole: Tensor, transverse: Tensor, spacing: Spacing) -> Tensor:
    r"""Gain that gives every mode unit mean power in the Nyquist cell of a reference spacing.

    .. math:: g_m^{-2} = \langle |T_m|^2 \rangle
       = \Big\langle \frac{\operatorname{atan2}(2 s\Omega p,\; p^2 + b^2 - s^2\Omega^2)}{2 s\Omega p}
       \Big\rangle_{\omega_\perp}, \qquad b = \operatorname{Im} a

    The mean runs over the Nyquist cell turned into the mode's direction, of equal volume: along ``v``, where a mode can
    resonate sharply, in closed form; across ``v`` by quadrature over a ball. A lattice of samples would miss narrow
    resonances and make the gain jump as a pole passes between its points. On isotropic references it agrees with the
    mean over the box itself within a few per cent, on very anisotropic ones within a third. It depends on the
    parameters alone, never on the grid at hand.

    Parameters
    ----------
    direction, scale, pole, transverse
        See :class:`Modes`.
    spacing
        Reference spacing, a number or one per axis.

    Returns
    -------
    Tensor
        ``(M,)``.
    """
    num_axes, dtype, device = direction.shape[-1], direction.dtype, direction.device
    steps = as_spacing(spacing, num_axes, device=device)[0].to(dtype)
    step_along = (direction * steps).square().sum(-1).sqrt()
    reach = scale * (pi() / step_along)
    damping, oscillation = -pole.real, pole.imag
    if num_axes == 1:
        p, weights = damping[:, None], None
    else:
        nodes, weights = (constant(a, device, dtype) for a in _quadrature(num_axes))
        # The cell keeps the volume of the reference Nyquist box; in 3-D its cross-section is a disc of equal area.
        step_across = (steps.prod() / step_along) ** (1 / (num_axes - 1))
        radius = pi() / step_across * (1 if num_axes == 2 else 2 / pi() ** 0.5)
        p = damping[:, None] + (transverse * radius.square())[:, None] * nodes
    height, width = 2 * reach[:, None] * p, p.square() + (oscillation.square() - reach.square())[:, None]
    # An angle does not change with the size of the triangle, but the squares in its gradient overflow.
    size = torch.maximum(height, width.abs()).detach()
    power = torch.atan2(height / size, width / size) / height
    mean = power[:, 0] if weights is None else (power * weights).sum(-1)  # autocast would round a matrix product
    return mean.clamp_min(_least_power()).rsqrt()


def grid_gain(omega: Tensor, direction: Tensor, scale: Tensor, pole: Tensor, transverse: Tensor) -> Tensor:
    """The paper's gain: inverse root mean square of each response over the frequencies of the current grid.

    It changes with the grid, so the operator built with it is not resolution-invariant.

    Parameters
    ----------
    omega
        Frequencies of the grid, ``(..., D)``.

    Returns
    -------
    Tensor
        ``(M,)``.
    """
    response = mode_response(omega, direction, scale, pole, transverse)
    power = torch.view_as_real(response).square().sum(-1)
    return power.mean(dim=tuple(range(1, power.dim()))).rsqrt()


def spacing_frame(direction: Tensor, spacing: Sequence[float] | Tensor) -> Tensor:
    """The paper's rescaled directions ``D^-1 v / |D^-1 v|``: ``(M, D)`` and ``(G, D)`` give ``(G, M, D)``."""
    steps = torch.as_tensor(spacing, dtype=direction.dtype, device=direction.device).reshape(-1, 1, direction.shape[-1])
    return torch.nn.functional.normalize(direction / steps, dim=-1)
