# ruff: noqa: N803 (constants of a kernel)
# type: ignore (a language of its own)
r"""Coupling on GPUs: responses are evaluated in registers, wherever they are used, and never stored.

For reading, put :mod:`torchsonic.spectral.plain`, :mod:`torchsonic.spectral.limits` and
:mod:`torchsonic.engine.response_gradient` beside this file. A mode is a pair of real signals with half spectra ``P``
and ``Q``. With ``U = P + iQ`` and ``V = P - iQ`` it couples as

    W_U = T U,      W_V = T' V                          T' is the response of the conjugate pole
    W_U = 2 T U,    W_V = 0,   imaginary parts zeroed   in the paper's notes (PAPER)

:func:`couple` reads ``Z`` and writes ``W``. :func:`couple_adjoint` reads ``Z`` and the gradient of ``W``, writes that
of ``Z`` in its place, and adds up the gradients of the modes' parameters. One program takes a block of frequencies of
one mode and one sample. Its sums go into a table, which one reduction adds up: the same result every time.

Complex numbers are pairs of real ones, ``ar, ai``. There are always three axes; those that an image lacks come first
and have one frequency, zero.
"""

from __future__ import annotations

try:
    import triton
    import triton.language as tl
except ImportError as error:
    raise ImportError('kernels for GPUs need Triton: pip install "torchsonic[triton]"') from error

__all__ = ["BLOCK", "INTERPRETED", "NUM_SUMS", "couple", "couple_adjoint"]

INTERPRETED = triton.knobs.runtime.interpret
"""Whether kernels run on the CPU, step by step, as ``TRITON_INTERPRET=1`` asks for."""
BLOCK = 128
NUM_SUMS = 9  # three of the direction, scale, damping, oscillation, transverse, gain, cutoff
LARGEST = tl.constexpr(1e18)  # squares of larger numbers overflow float32
TINY = tl.constexpr(1e-20)


@triton.jit
def _times(ar, ai, br, bi):
    return ar * br - ai * bi, ar * bi + ai * br


@triton.jit
def _bounded(x):
    return tl.minimum(tl.maximum(x, -LARGEST), LARGEST)


@triton.jit
def _across(wi, vi, wj, vj, tau):
    """A component of the frequency across the mode, and the same times tau."""
    return _bounded(wi * vj) - _bounded(wj * vi), _bounded(wi * (vj * tau)) - _bounded(wj * (vi * tau))


@triton.jit
def _resolvent(w0, w1, w2, v0, v1, v2, scale, damping, oscillation, tau):
    """``R = 1 / (p + i q)``, and the components across, which its derivative needs."""
    c01, d01 = _across(w0, v0, w1, v1, tau)
    c02, d02 = _across(w0, v0, w2, v2, tau)
    c12, d12 = _across(w1, v1, w2, v2, tau)
    p = tl.minimum(damping + c01 * d01 + c02 * d02 + c12 * d12, LARGEST)
    q = _bounded(w0 * (scale * v0)) + _bounded(w1 * (scale * v1)) + _bounded(w2 * (scale * v2)) - oscillation
    inverse = 1 / (p * p + q * q)
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
        # Small parts cancel in both formulas; these are their series.
        phi = (((-1382 / 155925 * square + 62 / 2835) * square - 17 / 315) * square + 2 / 15) * square - 1 / 3
        slope = (((-2764 / 31185 * square + 496 / 2835) * square - 34 / 105) * square + 8 / 15) * square - 2 / 3
        exact = (part * (1 - tanh * tanh) - tanh) / tl.maximum(part * square, TINY)
        phi = tl.where(part < 0.1, 1 + phi * square, tanh / part)
        slope = tl.where(part < 0.1, slope, exact)
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
def _limited_adjoint(gr, gi, tr, ti, squared, cutoff, ORDER: tl.constexpr, LIMIT: tl.constexpr, SOFT: tl.constexpr):
    """The coefficient of ``dT`` before the limits from that behind them, and the gradient of the cutoff."""
    br, bi, by_cutoff = tr, ti, gr * 0
    if ORDER > 0:
        factor = _band_factor(squared, cutoff, ORDER)
        br, bi = tr * factor, ti * factor
    if LIMIT > 0:
        phi, slope = _saturation(br, bi, LIMIT, SOFT)
        along = (gr * br - gi * bi) * slope / (LIMIT * LIMIT)
        gr, gi = phi * gr + along * br, phi * gi - along * bi
    if ORDER > 0:
        by_cutoff = (gr * br - gi * bi) * (1 - factor) * (2 * ORDER) / cutoff
        gr, gi = gr * factor, gi * factor
    return gr, gi, by_cutoff


@triton.jit
def _complex(z, at):
    """Addresses of the real and imaginary parts of complex numbers, which lie side by side."""
    return z + 2 * at[:, None] + tl.arange(0, 2)[None, :]


@triton.jit
def _load_pair(z, at, inside, second):
    """``U = P + iQ`` and ``V = P - iQ``."""
    pr, pi = tl.split(tl.load(_complex(z, at), mask=inside[:, None], other=0.0))
    qr, qi = tl.split(tl.load(_complex(z, at + second), mask=inside[:, None], other=0.0))
    return pr - qi, pi + qr, pr + qi, pi - qr


@triton.jit
def _store_pair(z, at, inside, second, ur, ui, vr, vi, real):
    """The inverse of :func:`_load_pair`, without imaginary parts where the result is ``real``."""
    pi, qi = tl.where(real, 0.0, 0.5 * (ui + vi)), tl.where(real, 0.0, 0.5 * (vr - ur))
    tl.store(_complex(z, at), tl.join(0.5 * (ur + vr), pi), mask=inside[:, None])
    tl.store(_complex(z, at + second), tl.join(0.5 * (ui - vi), qi), mask=inside[:, None])


@triton.jit
def _place(num_modes, n0, n1, n2, BLOCK: tl.constexpr):
    """Where this program's numbers lie, whether they exist, and their bins on each axis."""
    n = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    row = tl.program_id(2).to(tl.int64) * num_modes + tl.program_id(1)
    return row * (2 * n0 * n1 * n2) + n, n < n0 * n1 * n2, n // (n1 * n2), (n // n2) % n1, n % n2


@triton.jit
def _load_omega(omega, omega_step, i0, i1, i2, n0, n1, inside):
    """The frequencies there, and their sum of squares."""
    # Apart from _place: if one function takes omega and returns addresses, compilers believe that it is written to.
    at = omega + tl.program_id(2) * omega_step
    w0 = tl.load(at + i0, mask=inside, other=1.0)
    w1 = tl.load(at + n0 + i1, mask=inside, other=1.0)
    w2 = tl.load(at + n0 + n1 + i2, mask=inside, other=1.0)
    return w0, w1, w2, w0 * w0 + w1 * w1 + w2 * w2


@triton.jit
def _load_mode(modes, mode_step):
    """The nine numbers of a mode."""
    at = modes + tl.program_id(2) * mode_step + tl.program_id(1) * 9
    v0, v1, v2, scale, damping = tl.load(at), tl.load(at + 1), tl.load(at + 2), tl.load(at + 3), tl.load(at + 4)
    return v0, v1, v2, scale, damping, tl.load(at + 5), tl.load(at + 6), tl.load(at + 7), tl.load(at + 8)


@triton.jit
def _num_signs(i, NYQUIST: tl.constexpr):
    """Two if a bin of this block stands for both signs of a Nyquist frequency, which :func:`_signed` goes through."""
    return 1 if NYQUIST < 0 else tl.max(tl.where(i == NYQUIST, 2, 1))


@triton.jit
def _signed(w, i, sign, NYQUIST: tl.constexpr):
    return tl.where((i == NYQUIST) & (sign == 1), -w, w)


@triton.jit
def _respond(ur, ui, vr, vi, tr, ti, pole: tl.constexpr, PAPER: tl.constexpr):
    """``U`` and ``V`` with the response of one pole applied."""
    if PAPER:
        ur, ui = _times(ur, ui, 2 * tr, 2 * ti)
        vr, vi = ur * 0, ur * 0
    elif pole == 0:
        ur, ui = _times(ur, ui, tr, ti)
    else:
        vr, vi = _times(vr, vi, tr, ti)
    return ur, ui, vr, vi


@triton.jit
def _store_sums(sums, num_modes, inside, parts):
    """Fill the row of the table of sums that is this program's."""
    row = (tl.program_id(2).to(tl.int64) * num_modes + tl.program_id(1)) * tl.num_programs(0) + tl.program_id(0)
    for column in tl.static_range(9):
        tl.store(sums + row * 9 + column, tl.sum(tl.where(inside, parts[column], 0.0)))


@triton.jit
def couple(
    z, out, omega, modes, omega_step, mode_step, num_modes, n0, n1, n2, NYQUIST0: tl.constexpr, NYQUIST1: tl.constexpr,
    NYQUIST2: tl.constexpr, REAL: tl.constexpr, PAPER: tl.constexpr, ORDER: tl.constexpr, LIMIT: tl.constexpr,
    SOFT: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """``out = W``.

    ``omega`` holds the frequencies of the three axes one after the other, ``modes`` nine numbers for each mode;
    ``omega_step`` and ``mode_step`` lead to the next sample, and are zero if samples share them. ``NYQUIST0`` to
    ``NYQUIST2`` are the bins that stand for both signs, ``REAL`` the last axis's bin that is its own conjugate beside
    0; -1 where there is none.
    """
    at, inside, i0, i1, i2 = _place(num_modes, n0, n1, n2, BLOCK)
    w0, w1, w2, squared = _load_omega(omega, omega_step, i0, i1, i2, n0, n1, inside)
    v0, v1, v2, scale, damping, oscillation, tau, gain, cutoff = _load_mode(modes, mode_step)
    ur, ui, vr, vi = _load_pair(z, at, inside, n0 * n1 * n2)
    signs0, signs1, signs2 = _num_signs(i0, NYQUIST0), _num_signs(i1, NYQUIST1), _num_signs(i2, NYQUIST2)
    share = 1.0 / (signs0 * signs1 * signs2)
    for pole in tl.static_range(1 if PAPER else 2):
        turn = oscillation if pole == 0 else -oscillation
        tr, ti = ur * 0, ur * 0
        for sign0 in range(signs0):
            f0 = _signed(w0, i0, sign0, NYQUIST0)
            for sign1 in range(signs1):
                f1 = _signed(w1, i1, sign1, NYQUIST1)
                for sign2 in range(signs2):
                    f2 = _signed(w2, i2, sign2, NYQUIST2)
                    rr, ri, _, _, _ = _resolvent(f0, f1, f2, v0, v1, v2, scale, damping, turn, tau)
                    lr, li = _limited(gain * rr, gain * ri, squared, cutoff, ORDER, LIMIT, SOFT)
                    tr += lr * share
                    ti += li * share
        ur, ui, vr, vi = _respond(ur, ui, vr, vi, tr, ti, pole, PAPER)
    _store_pair(out, at, inside, n0 * n1 * n2, ur, ui, vr, vi, PAPER & ((i2 == 0) | (i2 == REAL)))


@triton.jit
def couple_adjoint(
    z, grad, sums, omega, modes, omega_step, mode_step, num_modes, n0, n1, n2, samples, NYQUIST0: tl.constexpr,
    NYQUIST1: tl.constexpr, NYQUIST2: tl.constexpr, REAL: tl.constexpr, PAPER: tl.constexpr, ORDER: tl.constexpr,
    LIMIT: tl.constexpr, SOFT: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """``grad`` becomes the gradient of ``Z`` over the number of ``samples``; ``sums`` get those of the parameters.

    With ``dL = Re sum c dT`` and ``T = g R``, every parameter's gradient is a sum over ``e = c T R``; see
    :mod:`torchsonic.engine.response_gradient`. Arguments as for :func:`couple`.
    """
    at, inside, i0, i1, i2 = _place(num_modes, n0, n1, n2, BLOCK)
    w0, w1, w2, squared = _load_omega(omega, omega_step, i0, i1, i2, n0, n1, inside)
    v0, v1, v2, scale, damping, oscillation, tau, gain, cutoff = _load_mode(modes, mode_step)
    ur, ui, vr, vi = _load_pair(z, at, inside, n0 * n1 * n2)
    gr, gi, hr, hi = _load_pair(grad, at, inside, n0 * n1 * n2)
    own_conjugate = (i2 == 0) | (i2 == REAL)
    if PAPER:  # what was set to zero has no gradient
        pi, qi = 0.5 * (gi + hi), 0.5 * (hr - gr)
        gr, gi = tl.where(own_conjugate, gr + qi, gr), tl.where(own_conjugate, gi - pi, gi)
    signs0, signs1, signs2 = _num_signs(i0, NYQUIST0), _num_signs(i1, NYQUIST1), _num_signs(i2, NYQUIST2)
    share = 1.0 / (signs0 * signs1 * signs2)
    weight = tl.where(own_conjugate, 1.0, 2.0) * (1.0 if PAPER else 0.5) * share
    by0, by1, by2, by_scale, by_damping = ur * 0, ur * 0, ur * 0, ur * 0, ur * 0
    by_oscillation, by_tau, by_gain, by_cutoff = ur * 0, ur * 0, ur * 0, ur * 0
    for pole in tl.static_range(1 if PAPER else 2):
        turn = oscillation if pole == 0 else -oscillation
        if pole == 0:  # Z times the conjugate gradient
            cr, ci = _times(ur, ui, gr * weight, -gi * weight)
        else:
            cr, ci = _times(vr, vi, hr * weight, -hi * weight)
        tr, ti = ur * 0, ur * 0
        for sign0 in range(signs0):
            f0 = _signed(w0, i0, sign0, NYQUIST0)
            for sign1 in range(signs1):
                f1 = _signed(w1, i1, sign1, NYQUIST1)
                for sign2 in range(signs2):
                    f2 = _signed(w2, i2, sign2, NYQUIST2)
                    rr, ri, c01, c02, c12 = _resolvent(f0, f1, f2, v0, v1, v2, scale, damping, turn, tau)
                    lr, li = _limited(gain * rr, gain * ri, squared, cutoff, ORDER, LIMIT, SOFT)
                    tr += lr * share
                    ti += li * share
                    er, ei, of_cutoff = _limited_adjoint(
                        cr, ci, gain * rr, gain * ri, squared, cutoff, ORDER, LIMIT, SOFT
                    )
                    er, ei = _times(er, ei, rr, ri)
                    by_gain += er
                    by_cutoff += of_cutoff
                    er, ei = _times(er, ei, gain * rr, gain * ri)
                    by_damping -= er
                    by_oscillation += -ei if pole == 0 else ei
                    by_scale += ei * (f0 * v0 + f1 * v1 + f2 * v2)
                    by_tau -= er * (c01 * c01 + c02 * c02 + c12 * c12)
                    by0 += ei * scale * f0 + 2 * tau * er * (f1 * c01 + f2 * c02)
                    by1 += ei * scale * f1 + 2 * tau * er * (f2 * c12 - f0 * c01)
                    by2 += ei * scale * f2 - 2 * tau * er * (f0 * c02 + f1 * c12)
        gr, gi, hr, hi = _respond(gr, gi, hr, hi, tr / samples, -ti / samples, pole, PAPER)
    _store_pair(grad, at, inside, n0 * n1 * n2, gr, gi, hr, hi, inside & False)
    by_gain = tl.where(gain == 0, 0.0, by_gain)  # a dropped mode has none
    parts = (by0, by1, by2, by_scale, by_damping, by_oscillation, by_tau, by_gain, by_cutoff)
    _store_sums(sums, num_modes, inside, parts)
