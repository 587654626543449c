# ruff: noqa: N803 (constants of a kernel)
# type: ignore (a language of its own)
"""From stored parameters to physical ones and their gain on a GPU: one kernel forward and one backward.

The equations are those of :mod:`torchsonic.engine.parameters`. There are only M numbers of each kind, so one program
takes all modes, some at a time, and the nodes of the quadrature beside them.
"""

from __future__ import annotations

import math

import triton
import triton.language as tl

from torchsonic.spectral.gain import least_power
from torchsonic.spectral.parameters import shortest, smallest

__all__ = ["BLOCK", "physical", "physical_adjoint"]

BLOCK = 16  # modes at a time
SHORTEST, SMALLEST = tl.constexpr(shortest()), tl.constexpr(smallest())
LEAST_POWER = tl.constexpr(least_power())
PI = tl.constexpr(math.pi)


@triton.jit
def _softplus(x):
    """``log(1 + e^x)``, and its slope."""
    e = tl.exp(-tl.abs(x))
    rounded = 1 + e  # the quotient corrects for what is lost here
    log1p = tl.where(rounded == 1, e, tl.log(rounded) * (e / tl.where(rounded == 1, 1, rounded - 1)))
    return tl.maximum(x, 0.0) + log1p, tl.where(x > 0, 1.0, e) / rounded


@triton.jit
def _tanh(x):
    """Of any number, and its slope; small ones cancel in the formula and have a series."""
    e, s = tl.exp(-2 * tl.abs(x)), x * x
    series = x * (1 + s * (-1 / 3 + s * (2 / 15 + s * (-17 / 315 + s * (62 / 2835 - s * (1382 / 155925))))))
    whole = tl.where(x < 0, -1.0, 1.0) * (1 - e) / (1 + e)
    return tl.where(s < 0.0025, series, whole), 4 * e / ((1 + e) * (1 + e))


@triton.jit
def _angle(y, x):
    """``atan2(y, x)`` for ``y > 0``: three halvings of the angle, and a series."""
    size = tl.maximum(y, tl.abs(x))
    y, flat = y / size, tl.abs(x) / size
    t = y / (flat + tl.sqrt(flat * flat + y * y))
    t = t / (1 + tl.sqrt(1 + t * t))
    t = t / (1 + tl.sqrt(1 + t * t))
    t = t / (1 + tl.sqrt(1 + t * t))
    s = t * t
    series = 1 / 9 + s * (-1 / 11 + s * (1 / 13 + s * (-1 / 15 + s * (1 / 17))))
    angle = 16 * t * (1 + s * (-1 / 3 + s * (1 / 5 + s * (-1 / 7 + s * series))))
    return tl.where(x < 0, PI - angle, angle)


@triton.jit
def _load_numbers(
    raw_direction, raw_scale, raw_damping, raw_oscillation, raw_transverse, m, inside, AXES: tl.constexpr
):
    u0 = tl.load(raw_direction + m * AXES, mask=inside, other=1.0)
    u1 = tl.load(raw_direction + m * AXES + 1, mask=inside & (AXES > 1), other=0.0)
    u2 = tl.load(raw_direction + m * AXES + 2, mask=inside & (AXES > 2), other=0.0)
    scale, damping = tl.load(raw_scale + m, mask=inside, other=0.0), tl.load(raw_damping + m, mask=inside, other=0.0)
    turn, tau = (
        tl.load(raw_oscillation + m, mask=inside, other=0.0),
        tl.load(raw_transverse + m, mask=inside, other=0.0),
    )
    return u0, u1, u2, scale, damping, turn, tau


@triton.jit
def _unit(u0, u1, u2):
    """Direction and length; vectors without one become the first axis."""
    length = tl.sqrt(u0 * u0 + u1 * u1 + u2 * u2)
    lost = length < SHORTEST
    whole = tl.where(lost, 1.0, length)
    return tl.where(lost, 1.0, u0 / whole), tl.where(lost, 0.0, u1 / whole), tl.where(lost, 0.0, u2 / whole), length


@triton.jit
def _power(v0, v1, v2, scale, damping, turn, tau, spacing, nodes, weights, radius_factor, AXES: tl.constexpr):
    """The mean power of a response, and what its gradient needs; a row for each mode, a column for each node."""
    d0, d1, d2 = tl.load(spacing), tl.load(spacing + 1), tl.load(spacing + 2)
    step = tl.sqrt(v0 * d0 * v0 * d0 + v1 * d1 * v1 * d1 + v2 * d2 * v2 * d2)
    reach = scale / step * PI
    radius = (step if AXES == 3 else step * step) * radius_factor
    p = damping[:, None] + (tau * radius)[:, None] * nodes[None, :]
    height = 2 * reach[:, None] * p
    width = ((turn - reach) * (turn + reach))[:, None] + p * p
    share = _angle(height, width) / height
    return tl.sum(share * weights[None, :], 1), step, reach, radius, p, height, width, share


@triton.jit
def physical(
    raw_direction, raw_scale, raw_damping, raw_oscillation, raw_transverse, limit, table, direction, scale, damping,
    oscillation, transverse, gain, num_modes, unit, radius_factor,
    AXES: tl.constexpr, NODES: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Physical parameters and gain; ``table`` holds three spacings, the nodes and their weights."""
    node = tl.arange(0, NODES)
    nodes, weights = tl.load(table + 3 + node), tl.load(table + 3 + NODES + node)
    for start in range(0, num_modes, BLOCK):
        m = start + tl.arange(0, BLOCK)
        inside = m < num_modes
        u0, u1, u2, s, a, b, t = _load_numbers(
            raw_direction, raw_scale, raw_damping, raw_oscillation, raw_transverse, m, inside, AXES
        )
        v0, v1, v2, _ = _unit(u0, u1, u2)
        s, a, b, t = (_softplus(s)[0] + SMALLEST) * unit, _softplus(a)[0] + SMALLEST, _tanh(b)[0], _softplus(t)[0]
        b, t = b * tl.load(limit), t * unit * unit
        power, _, _, _, _, _, _, _ = _power(v0, v1, v2, s, a, b, t, table, nodes, weights, radius_factor, AXES)
        tl.store(direction + m * AXES, v0, mask=inside)
        tl.store(direction + m * AXES + 1, v1, mask=inside & (AXES > 1))
        tl.store(direction + m * AXES + 2, v2, mask=inside & (AXES > 2))
        tl.store(scale + m, s, mask=inside)
        tl.store(damping + m, a, mask=inside)
        tl.store(oscillation + m, b, mask=inside)
        tl.store(transverse + m, t, mask=inside)
        tl.store(gain + m, 1 / tl.sqrt(tl.maximum(power, LEAST_POWER)), mask=inside)


@triton.jit
def physical_adjoint(
    raw_direction, raw_scale, raw_damping, raw_oscillation, raw_transverse, limit, table, grads, direction, scale,
    damping, oscillation, transverse, by_limit, num_modes, unit, radius_factor,
    AXES: tl.constexpr, NODES: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Gradients of the stored parameters from ``grads (M, AXES + 5)`` of the physical ones."""
    node = tl.arange(0, NODES)
    nodes, weights = tl.load(table + 3 + node), tl.load(table + 3 + NODES + node)
    rho = tl.load(limit)
    total = rho * 0
    for start in range(0, num_modes, BLOCK):
        m = start + tl.arange(0, BLOCK)
        inside = m < num_modes
        u0, u1, u2, s, a, b, t = _load_numbers(
            raw_direction, raw_scale, raw_damping, raw_oscillation, raw_transverse, m, inside, AXES
        )
        v0, v1, v2, length = _unit(u0, u1, u2)
        s, scale_slope = _softplus(s)
        a, damping_slope = _softplus(a)
        t, tau_slope = _softplus(t)
        part, part_slope = _tanh(b)
        s, a, b, t = (s + SMALLEST) * unit, a + SMALLEST, part * rho, t * unit * unit
        power, step, reach, radius, p, height, width, share = _power(
            v0, v1, v2, s, a, b, t, table, nodes, weights, radius_factor, AXES
        )
        row = grads + m * (AXES + 5)
        g0 = tl.load(row, mask=inside, other=0.0)
        g1 = tl.load(row + 1, mask=inside & (AXES > 1), other=0.0)
        g2 = tl.load(row + 2, mask=inside & (AXES > 2), other=0.0)
        row += AXES
        by_scale, by_damping = tl.load(row, mask=inside, other=0.0), tl.load(row + 1, mask=inside, other=0.0)
        by_turn, by_tau = tl.load(row + 2, mask=inside, other=0.0), tl.load(row + 3, mask=inside, other=0.0)
        by_gain = tl.load(row + 4, mask=inside, other=0.0)
        # The gradient of the mean power, zero where it is clamped; 1 / (w + i h) without a square that could overflow.
        gain = 1 / tl.sqrt(tl.maximum(power, LEAST_POWER))
        by_power = tl.where(power > LEAST_POWER, -0.5 * by_gain * gain * gain * gain, 0.0)
        size = tl.maximum(height, tl.abs(width))
        w, h = width / size, height / size
        inverse = 1 / ((w * w + h * h) * size)
        tilt = -h * inverse / reach[:, None]
        by_p = ((w * inverse - share) / p + tilt) * weights[None, :]
        of_damping = tl.sum(by_p, 1) * by_power
        of_tau = tl.sum(by_p * nodes[None, :], 1) * radius * by_power
        of_turn = tl.sum(tilt / p * weights[None, :], 1) * b * by_power
        # The gain grows with scale, damping, oscillation and tau together, which gives its derivative by the scale.
        stretch = by_gain * gain - of_damping * a - of_turn * b - of_tau * t
        by_step = (of_tau * t * (4 - AXES) - stretch) / (step * step)
        d0, d1, d2 = tl.load(table), tl.load(table + 1), tl.load(table + 2)
        g0, g1, g2 = g0 + by_step * v0 * d0 * d0, g1 + by_step * v1 * d1 * d1, g2 + by_step * v2 * d2 * d2
        along = g0 * v0 + g1 * v1 + g2 * v2
        turned = tl.where(length < SHORTEST, 0.0, 1 / tl.maximum(length, SHORTEST))
        by_turn += of_turn
        total += tl.sum(tl.where(inside, part * by_turn, 0.0))
        tl.store(direction + m * AXES, (g0 - along * v0) * turned, mask=inside)
        tl.store(direction + m * AXES + 1, (g1 - along * v1) * turned, mask=inside & (AXES > 1))
        tl.store(direction + m * AXES + 2, (g2 - along * v2) * turned, mask=inside & (AXES > 2))
        tl.store(scale + m, (by_scale + stretch / s) * unit * scale_slope, mask=inside)
        tl.store(damping + m, (by_damping + of_damping) * damping_slope, mask=inside)
        tl.store(oscillation + m, by_turn * rho * part_slope, mask=inside)
        tl.store(transverse + m, (by_tau + of_tau) * unit * unit * tau_slope, mask=inside)
    tl.store(by_limit, total)
