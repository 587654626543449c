"""Gains that give every mode the same power."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from torchsonic.spectral.constants import constant, fixed, pi
from torchsonic.spectral.response import mode_response
from torchsonic.spectral.spacing import Spacing, as_spacing

__all__ = ["grid_gain", "least_power", "reference_gain", "transverse_quadrature"]

NUM_QUADRATURE_NODES = 32


def _compute_quadrature(num_axes: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Nodes ``rho^2`` and weights of the mean over the transverse ball of radius 1.

    Across a mode the integrand varies over ``sqrt(|Re a| / tau)``, which may be a small fraction of the radius, so
    ``rho = t^3`` moves the Gauss-Legendre nodes towards the centre.
    """
    nodes, weights = np.polynomial.legendre.leggauss(NUM_QUADRATURE_NODES)
    t, weights = 0.5 * (nodes + 1), 0.5 * weights
    dimension = num_axes - 1
    density = dimension * t ** (3 * (dimension - 1)) * 3 * t**2  # d(rho^dimension)
    return tuple((t**6).tolist()), tuple((weights * density).tolist())


_QUADRATURE = {num_axes: _compute_quadrature(num_axes) for num_axes in (2, 3)}


@fixed
def transverse_quadrature(num_axes: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Nodes and weights across a mode, computed at import."""
    return _QUADRATURE[num_axes]


@fixed
def least_power() -> float:
    """Lower bound of a mean power: gains are then at most 1e12, and their gradients finite in float32."""
    return 1e-24


def reference_gain(direction: Tensor, scale: Tensor, pole: Tensor, transverse: Tensor, spacing: Spacing) -> Tensor:
    r"""Gain that gives every mode unit mean power in the Nyquist cell of a reference spacing.

    .. math:: g_m^{-2} = \langle |T_m|^2 \rangle
       = \Big\langle \frac{\operatorname{atan2}(2 s\Omega p,\; p^2 + b^2 - s^2\Omega^2)}{2 s\Omega p}
       \Big\rangle_{\omega_\perp}, \qquad b = \operatorname{Im} a

    The mean is taken over a cell of the Nyquist box's volume that is aligned with the mode: in closed form along ``v``,
    where a mode can resonate sharply, and by quadrature over a ball across ``v``. A lattice of samples would miss
    narrow resonances, and the gain would jump as a pole passes between its points. The result agrees with the mean over
    the box itself within a few per cent for isotropic references, and within a third for very anisotropic ones. It
    depends on the parameters alone, not on the grid of the input.

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
        nodes, weights = (constant(a, device, dtype) for a in transverse_quadrature(num_axes))
        # The cell keeps the volume of the reference Nyquist box; in 3-D its cross-section is a disc of equal area.
        step_across = (steps.prod() / step_along) ** (1 / (num_axes - 1))
        radius = pi() / step_across * (1 if num_axes == 2 else 2 / pi() ** 0.5)
        p = damping[:, None] + (transverse * radius.square())[:, None] * nodes
    height, width = 2 * reach[:, None] * p, p.square() + (oscillation.square() - reach.square())[:, None]
    # Scaling both sides leaves the angle alone and keeps the squares in its gradient from overflowing.
    size = torch.maximum(height, width.abs()).detach()
    power = torch.atan2(height / size, width / size) / height
    mean = power[:, 0] if weights is None else (power * weights).sum(-1)  # autocast would round a matrix product
    return mean.clamp_min(least_power()).rsqrt()


def grid_gain(omega: Tensor, direction: Tensor, scale: Tensor, pole: Tensor, transverse: Tensor) -> Tensor:
    """The paper's gain: inverse root mean square of each response over the frequencies of the current grid.

    It changes with the grid, so an operator with this gain is not resolution-invariant.

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
