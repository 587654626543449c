# ruff: noqa: N803 (constants of a kernel)
# type: ignore (a language of its own)
r"""Coupling on GPUs: responses are evaluated in registers, wherever they are used, and never stored.

What :class:`torchsonic.engine.coupling.TorchCoupling` does with arrays of responses, :func:`couple` does in one pass.
Forward it reads ``Z`` and writes ``W``. Backward it reads ``Z`` and the gradient of ``W``, writes the gradient of ``Z``
in its place, and adds up the gradients of the modes' parameters. For reading, put
:mod:`torchsonic.spectral.plain` and :mod:`torchsonic.engine.response_gradient` beside this file.

On the full spectrum, ``W = T Z``. A mode as a pair of half spectra ``P, Q`` couples as

    W_P + i W_Q = T (P + i Q),      W_P - i W_Q = T' (P - i Q),

where ``T'`` is the response of the conjugate pole. The paper's notes have ``2 T`` and 0 instead. One program takes a
block of frequencies of one mode and one sample. Its sums go into a table, which one reduction adds up: the same result
every time.
"""

from __future__ import annotations

try:
    import triton
    import triton.language as tl
except ImportError as error:
    raise ImportError("kernels for GPUs need Triton: pip install triton==3.7.1") from error

__all__ = ["BLOCK", "INTERPRETED", "NUM_SUMS", "couple"]

INTERPRETED = triton.knobs.runtime.interpret
"""Whether kernels run on the CPU, step by step, as ``TRITON_INTERPRET=1`` asks for."""
BLOCK = 256
NUM_SUMS = 8  # scale, damping, oscillation, transverse, cutoff, three of the direction
LARGEST = tl.constexpr(1e18)  # squares of larger numbers overflow float32
TINY = tl.constexpr(1e-20)


@triton.jit
def _bounded(x):
    return tl.minimum(tl.maximum(x, -LARGEST), LARGEST)


@triton.jit
def _across(wi, vi, wj, vj, tau):
    """A component of the frequency across the mode, and the same times tau."""
    return _bounded(wi * vj) - _bounded(wj * vi), _bounded(wi * (vj * tau)) - _bounded(wj * (vi * tau))


@triton.jit
def _respond(w0, w1, w2, v0, v1, v2, scale, damping, oscillation, tau, gain):
    """``T = g / (p + i q)``, and the components across, which its derivative needs."""
    c01, d01 = _across(w0, v0, w1, v1, tau)
    c02, d02 = _across(w0, v0, w2, v2, tau)
    c12, d12 = _across(w1, v1, w2, v2, tau)
    p = tl.minimum(damping + c01 * d01 + c02 * d02 + c12 * d12, LARGEST)
    q = _bounded(w0 * (scale * v0)) + _bounded(w1 * (scale * v1)) + _bounded(w2 * (scale * v2)) - oscillation
    inverse = gain / (p * p + q * q)
    return p * inverse, -q * inverse, c01, c02, c12


@triton.jit
def _band_factor(squared, cutoff, ORDER: tl.constexpr):
    return 1 / (1 + tl.exp(-ORDER * (2 * tl.log(cutoff) - tl.log(squared))))


@triton.jit
def _saturation(tr, ti, LIMIT: tl.constexpr, SOFT: tl.constexpr):
    """The factor that brings a response within the largest magnitude, and its slope."""
    part = tl.maximum(tl.sqrt(tr * tr + ti * ti), TINY) / LIMIT
    if SOFT:
        e, square = tl.exp(-2 * part), part * part
        tanh = (1 - e) / (1 + e)
        series = (((-2764 / 31185 * square + 496 / 2835) * square - 34 / 105) * square + 8 / 15) * square - 2 / 3
        exact = (part * (1 - tanh * tanh) - tanh) / tl.maximum(part * square, TINY)
        # Small parts cancel in both formulas.
        near = (
            (((-1382 / 155925 * square + 62 / 2835) * square - 17 / 315) * square + 2 / 15) * square - 1 / 3
        ) * square
        phi = tl.where(part < 0.1, 1 + near, tanh / part)
        slope = tl.where(part < 0.1, series, exact)
    else:
        phi = 1 / tl.maximum(part, 1.0)
        slope = tl.where(part > 1, -phi * phi * phi, 0.0)
    return phi, slope


@triton.jit
def _limited(tr, ti, squared, cutoff, ORDER: tl.constexpr, LIMIT: tl.constexpr, SOFT: tl.constexpr):
    """A response within its limits."""
    if ORDER > 0:
        factor = _band_factor(squared, cutoff, ORDER)
        tr, ti = tr * factor, ti * factor
    if LIMIT > 0:
        phi, _ = _saturation(tr, ti, LIMIT, SOFT)
        tr, ti = tr * phi, ti * phi
    return tr, ti


@triton.jit
def _limited_back(gr, gi, tr, ti, squared, cutoff, ORDER: tl.constexpr, LIMIT: tl.constexpr, SOFT: tl.constexpr):
    """The coefficient of ``dT`` before the limits from that behind them, and the cutoff's gradient times its value."""
    br, bi = tr, ti
    if ORDER > 0:
        factor = _band_factor(squared, cutoff, ORDER)
        br, bi = tr * factor, ti * factor
    if LIMIT > 0:
        phi, slope = _saturation(br, bi, LIMIT, SOFT)
        along = (gr * br - gi * bi) * slope / (LIMIT * LIMIT)
        gr, gi = phi * gr + along * br, phi * gi - along * bi
    by_cutoff = gr * 0
    if ORDER > 0:
        by_cutoff = (gr * br - gi * bi) * (1 - factor) * (2 * ORDER)
        gr, gi = gr * factor, gi * factor
    return gr, gi, by_cutoff


@triton.jit
def _load_pair(z, at, inside, PAIR: tl.constexpr, second):
    """Complex numbers ``Z``, or ``P + iQ`` and ``P - iQ``."""
    zr, zi = tl.load(z + 2 * at, mask=inside, other=0.0), tl.load(z + 2 * at + 1, mask=inside, other=0.0)
    if PAIR:
        qr, qi = (
            tl.load(z + 2 * (at + second), mask=inside, other=0.0),
            tl.load(z + 2 * (at + second) + 1, mask=inside, other=0.0),
        )
        return zr - qi, zi + qr, zr + qi, zi - qr
    else:
        return zr, zi, zr, zi


@triton.jit
def _store_pair(z, at, inside, ur, ui, vr, vi, PAIR: tl.constexpr, second, real):
    """The inverse of :func:`_load_pair`; imaginary parts are zero where the paper's operator has none."""
    if PAIR:
        pr, pi, qr, qi = 0.5 * (ur + vr), 0.5 * (ui + vi), 0.5 * (ui - vi), 0.5 * (vr - ur)
        tl.store(z + 2 * at, pr, mask=inside)
        tl.store(z + 2 * at + 1, tl.where(real, 0.0, pi), mask=inside)
        tl.store(z + 2 * (at + second), qr, mask=inside)
        tl.store(z + 2 * (at + second) + 1, tl.where(real, 0.0, qi), mask=inside)
    else:
        tl.store(z + 2 * at, ur, mask=inside)
        tl.store(z + 2 * at + 1, ui, mask=inside)


@triton.jit
def couple(
    z, grad, out, sums, omega, modes, omega_step, mode_step, num_modes, n0, n1, n2, samples,
    R0: tl.constexpr, R1: tl.constexpr, R2: tl.constexpr, SIGNED: tl.constexpr, PAIR: tl.constexpr,
    PAPER: tl.constexpr, ORDER: tl.constexpr, LIMIT: tl.constexpr, SOFT: tl.constexpr, BACK: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """Forward, ``out = W``; backward, ``out`` is the gradient of ``Z``, and ``sums`` get those of the parameters.

    ``R0, R1, R2`` are the bins of each axis that stand for both signs of a Nyquist frequency (-1 where none does);
    ``omega`` holds the frequencies of the three axes one after the other, ``modes`` eleven numbers for each mode.
    """
    block, m, b = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    total = n0 * n1 * n2
    n = block * BLOCK + tl.arange(0, BLOCK)
    inside = n < total
    i0, i1, i2 = n // (n1 * n2), (n // n2) % n1, n % n2
    omega += b * omega_step
    w0 = tl.load(omega + i0, mask=inside, other=1.0)
    w1 = tl.load(omega + n0 + i1, mask=inside, other=1.0)
    w2 = tl.load(omega + n0 + n1 + i2, mask=inside, other=1.0)
    squared = w0 * w0 + w1 * w1 + w2 * w2
    mode = modes + b * mode_step + m * 9
    v0, v1, v2 = tl.load(mode), tl.load(mode + 1), tl.load(mode + 2)
    scale, damping, oscillation = tl.load(mode + 3), tl.load(mode + 4), tl.load(mode + 5)
    tau, gain, cutoff = tl.load(mode + 6), tl.load(mode + 7), tl.load(mode + 8)
    at = (b.to(tl.int64) * num_modes + m) * total * (2 if PAIR else 1) + n
    zr, zi, yr, yi = _load_pair(z, at, inside, PAIR, total)
    real = PAPER & ((i2 == 0) | (i2 == R2))
    if BACK:
        gr, gi, hr, hi = _load_pair(grad, at, inside, PAIR, total)
        if PAPER:  # the gradient of what was set to zero
            pi, qi = 0.5 * (gi + hi), 0.5 * (hr - gr)
            gr, gi, hr, hi = tl.where(real, gr + qi, gr), tl.where(real, gi - pi, gi), hr, hi
    outer_r, outer_i, other_r, other_i = zr * 0, zr * 0, zr * 0, zr * 0
    s0, s1, s2, s3, s4, s5, s6, s7 = zr * 0, zr * 0, zr * 0, zr * 0, zr * 0, zr * 0, zr * 0, zr * 0
    share = 1.0 / SIGNED
    BIT1: tl.constexpr = 1 if R0 < 0 else 2
    BIT2: tl.constexpr = BIT1 if R1 < 0 else BIT1 * 2
    multiplicity = tl.where((i2 == 0) | (i2 == R2), 1.0, 2.0) if PAIR else 1.0
    for pole in tl.static_range(2 if PAIR and not PAPER else 1):
        turn = oscillation if pole == 0 else -oscillation
        tr, ti = zr * 0, zr * 0
        if BACK:  # the coefficient of dT
            ar, ai = (zr, zi) if pole == 0 else (yr, yi)
            br, bi = (gr, gi) if pole == 0 else (hr, hi)
            if PAIR:
                weight = multiplicity * (1.0 if PAPER else 0.5) * share
                cr, ci = (ar * br + ai * bi) * weight, (ai * br - ar * bi) * weight
            else:
                cr, ci = (ar * br - ai * bi) * share, (ar * bi + ai * br) * share
        for sign in range(SIGNED):  # the bits of `sign` belong to the axes that have such a bin
            f0 = tl.where((i0 == R0) & (sign % 2 == 1), -w0, w0)
            f1 = tl.where((i1 == R1) & ((sign // BIT1) % 2 == 1), -w1, w1)
            f2 = tl.where((i2 == R2) & ((sign // BIT2) % 2 == 1), -w2, w2)
            rr, ri, c01, c02, c12 = _respond(f0, f1, f2, v0, v1, v2, scale, damping, turn, tau, gain)
            lr, li = _limited(rr, ri, squared, cutoff, ORDER, LIMIT, SOFT)
            tr += lr * share
            ti += li * share
            if BACK:
                er, ei, by_cutoff = _limited_back(cr, ci, rr, ri, squared, cutoff, ORDER, LIMIT, SOFT)
                dr, di = er * rr - ei * ri, er * ri + ei * rr
                er, ei = dr * rr - di * ri, dr * ri + di * rr  # times the square of the response
                along = f0 * v0 + f1 * v1 + f2 * v2
                s0 += ei * along
                s1 -= er
                s2 += -ei if pole == 0 else ei
                s3 -= er * (c01 * c01 + c02 * c02 + c12 * c12)
                s4 += by_cutoff
                s5 += ei * scale * f0 + 2 * tau * er * (f1 * c01 + f2 * c02)
                s6 += ei * scale * f1 + 2 * tau * er * (f2 * c12 - f0 * c01)
                s7 += ei * scale * f2 - 2 * tau * er * (f0 * c02 + f1 * c12)
        if BACK:
            if PAIR:
                ti = -ti  # the adjoint
            ar, ai = (gr / samples, gi / samples) if pole == 0 else (hr / samples, hi / samples)
        else:
            ar, ai = (zr, zi) if pole == 0 else (yr, yi)
        if PAPER:
            tr, ti = 2 * tr, 2 * ti
        if pole == 0:
            outer_r, outer_i = ar * tr - ai * ti, ar * ti + ai * tr
        else:
            other_r, other_i = ar * tr - ai * ti, ar * ti + ai * tr
    _store_pair(out, at, inside, outer_r, outer_i, other_r, other_i, PAIR, total, real & (not BACK))
    if BACK:
        row = sums + ((b.to(tl.int64) * num_modes + m) * tl.num_programs(0) + block) * 8
        tl.store(row + 0, tl.sum(tl.where(inside, s0, 0.0)))
        tl.store(row + 1, tl.sum(tl.where(inside, s1, 0.0)))
        tl.store(row + 2, tl.sum(tl.where(inside, s2, 0.0)))
        tl.store(row + 3, tl.sum(tl.where(inside, s3, 0.0)))
        tl.store(row + 4, tl.sum(tl.where(inside, s4, 0.0)))
        tl.store(row + 5, tl.sum(tl.where(inside, s5, 0.0)))
        tl.store(row + 6, tl.sum(tl.where(inside, s6, 0.0)))
        tl.store(row + 7, tl.sum(tl.where(inside, s7, 0.0)))
