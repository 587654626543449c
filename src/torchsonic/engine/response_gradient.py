r"""Gradients of the modes' parameters, from moments over the band.

Autograd could differentiate :func:`torchsonic.spectral.response.respond`, with many passes over arrays of (modes x
frequencies). But ``p`` and ``q`` are polynomials in the frequency, so a few sums suffice. With

    dL = Re sum_w G dT,     T = g / (p + iq),     E = G T^2 / g,     dL = Re sum_w (G T dg / g - E (dp + i dq)),

    e = sum E,      m_i = sum w_i E,      S_ij = sum w_i w_j E      and      K = tr(S) 1 - S

(like a tensor of inertia: ``v^T K v = sum E |w_perp|^2``), the gradients are

    damping  -Re e,   oscillation  -Im e,   scale  Im m.v,   tau  -Re v^T K v,   v  Im(m) s - 2 tau Re(K) v,

and that of the gain follows, since T does not change when g, damping, oscillation, scale and tau grow together.
"""

from __future__ import annotations

from functools import cache
from itertools import product

import torch
from torch import Tensor

from torchsonic.spectral.band import Band
from torchsonic.spectral.constants import constant, made_once
from torchsonic.spectral.response import ModeShape
from torchsonic.spectral.spacing import widest_float

__all__ = ["inverse_gain", "response_gradient", "with_gain"]

# Largest gradient. The chain rule still multiplies by units of length, and float32 must stay finite.
LARGEST_GRADIENT = 1e24


def response_gradient(
    grad: Tensor, response: Tensor, shape: ModeShape, spacing: Tensor, band: Band, *, both_signs: bool
) -> ModeShape:
    """Gradients of the modes' parameters except their cutoffs.

    Parameters
    ----------
    grad
        The *conjugate* gradient ``G`` of the responses, ``(G, M, ..)``.
    response
        As it was evaluated, before its limits; with an extra entry per unsigned Nyquist bin if ``both_signs``.
    spacing
        ``(1, D)``, or one row per sample.
    """
    num_axes, v = band.num_axes, shape.direction
    wide = widest_float(grad.device)  # sums cancel, and squares of large responses overflow
    change = grad.to(wide.to_complex(), copy=True).mul_(response).mul_(response)
    inverse = inverse_gain(shape)
    moments = _moments(change, band, both_signs=both_signs) * inverse[..., None]
    steps = spacing.to(wide)[:, None, None].pow(constant(_negative_powers(num_axes), grad.device, wide)).prod(-1)
    parts = torch.view_as_real(moments * steps).flatten(-2) @ constant(_selection(num_axes), grad.device, wide)
    inertia_and_first = parts[..., 2:].unflatten(-1, (num_axes + 1, num_axes))
    turned = (inertia_and_first * v[..., None, :]).sum(-1)
    turning, along = turned[..., :-1], turned[..., -1]
    across = (v * turning).sum(-1)
    first = inertia_and_first[..., -1, :] * shape.scale[..., None]
    grad_direction = torch.addcmul(first, shape.transverse[..., None], turning, value=2)
    grads = torch.stack([along, parts[..., 0], parts[..., 1], across], -1)
    return with_gain(grads, grad_direction, shape, inverse)


def inverse_gain(shape: ModeShape) -> Tensor:
    """``1 / g``, and 0 for a dropped mode: its gain is zero, and it gets no gradient."""
    return shape.gain.reciprocal().nan_to_num_(posinf=0.0)


def with_gain(grads: Tensor, grad_direction: Tensor, shape: ModeShape, inverse: Tensor) -> ModeShape:
    """All gradients, bounded; ``grads (G, M, 4)`` are those of scale, damping, oscillation and transverse.

    ``inverse`` is :func:`inverse_gain`.
    """
    _, *numbers = shape.aligned()[:5]
    grad_gain = (torch.stack(numbers, -1) * grads).sum(-1) * -inverse
    found = torch.cat([grads, grad_gain[..., None], grad_direction], -1).clamp_(-LARGEST_GRADIENT, LARGEST_GRADIENT)
    found = found.to(shape.scale.dtype)
    return ModeShape(found[..., 5:], *found[..., :5].unbind(-1))


def _moments(values: Tensor, band: Band, *, both_signs: bool) -> Tensor:
    """``sum w_1^{n_1} .. w_D^{n_D} values`` over a band at unit spacing, powers 0 to 2, ``(G, M, 3^D)``."""
    for axis in reversed(range(band.num_axes)):
        values = (values @ _powers(band, axis, values.device, values.dtype, both_signs)).movedim(-1, 2)
    return values.flatten(2)


@made_once
def _powers(band: Band, axis: int, device: torch.device, dtype: torch.dtype, both_signs: bool) -> Tensor:
    """Powers 0, 1, 2 of an axis's frequencies at unit spacing, ``(n, 3)``."""
    steps = torch.ones(1, band.num_axes, device=device, dtype=dtype.to_real())
    omega = band.omega(steps, dtype=steps.dtype, both_signs=both_signs)[axis][0]
    return torch.stack([torch.ones_like(omega), omega, omega.square()], -1).to(dtype)


@cache
def _negative_powers(num_axes: int) -> tuple[tuple[float, ...], ...]:
    return tuple(tuple(-float(n) for n in powers) for powers in product(range(3), repeat=num_axes))


@cache
def _selection(num_axes: int) -> tuple[tuple[float, ...], ...]:
    """The matrix that takes real and imaginary parts of moments, ``(.., 3^D 2)``, to what the gradients need.

    Its columns give ``-Re e``, ``-Im e``, the rows of ``-Re K`` and ``Im m``.
    """
    rows = []
    for powers in product(range(3), repeat=num_axes):
        pairs = product(range(num_axes), repeat=2)
        second = [tuple((d == i) + (d == j) for d in range(num_axes)) == powers for i, j in pairs]
        on_trace = sum(powers) == 2 and 2 in powers
        inertia = [float(s) - float(on_trace and k % (num_axes + 1) == 0) for k, s in enumerate(second)]
        first = [float(powers[d] == 1 == sum(powers)) for d in range(num_axes)]
        total = -float(sum(powers) == 0)
        rows.append((total, 0.0, *inertia, *[0.0] * num_axes))
        rows.append((0.0, total, *[0.0] * num_axes**2, *first))
    return tuple(rows)
