"""The two sides of the operator for one chunk of samples, each in its two orders of evaluation.

An *entry* turns samples ``x`` into mode coefficients ``Z = F[B x] = B F[x]``; an *exit* turns coupled coefficients
``W`` into samples ``y = C F^-1[W] = F^-1[C W]``. Both also run backwards. "Modes" mixes outside the transform,
"Channels" inside it; the loops over chunks in :mod:`kernels` do not know which they hold.

Mode coefficients are ``(b, m, 2, *band)``: two real signals per mode, next to each other. What is collected slice by
slice (``part``, a slice of the chunk's modes) is used whole at the end of the chunk. Gradients of coefficients reach an
entry divided by the number of samples of its grid, which saves the transform back a scaling.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from torchsonic.functional.frequency import Band
from torchsonic.functional.plan import Plan, split
from torchsonic.functional.spectrum import analyse, analyse_adjoint, synthesise, synthesise_adjoint

__all__ = ["ChannelEntry", "ChannelExit", "ModeEntry", "ModeExit", "mix", "mix_spectrum"]

INVERSE_BYTES = 64 << 20


def mix(matrix: Tensor, signals: Tensor) -> Tensor:
    """``(r, c)`` times ``(b, c, n)``."""
    return torch.bmm(matrix.expand(signals.shape[0], -1, -1), signals)


def mix_spectrum(matrix: Tensor, spectrum: Tensor) -> Tensor:
    """A real matrix ``(r, c)`` times complex ``(b, c, *band)``, as one real product."""
    mixed = mix(matrix, torch.view_as_real(spectrum).reshape(*spectrum.shape[:2], -1))
    return torch.view_as_complex(mixed.view(*mixed.shape[:2], *spectrum.shape[2:], 2))


def correlate(a: Tensor, b: Tensor) -> Tensor:
    """``sum_b a b^T``: ``(b, r, n)`` and ``(b, c, n)`` give ``(r, c)``."""
    return torch.bmm(a, b.mT).sum(0)


def correlate_spectra(a: Tensor, b: Tensor, band: Band) -> Tensor:
    """The same in the half spectrum's inner product."""
    left, right = (torch.view_as_real(s).flatten(-2) for s in (a, b))
    # Repeated for real and imaginary part: a broadcast over them would not vectorise.
    weight = band.multiplicity(device=b.device, dtype=right.dtype).repeat_interleave(2)
    if a.shape[1] < b.shape[1]:  # a copy of the fewer signals
        return correlate((left * weight).flatten(2), right.flatten(2))
    return correlate(left.flatten(2), (right * weight).flatten(2))


def add_product(y: Tensor, matrix: Tensor, signals: Tensor, *, first: bool, bias: Tensor | None = None) -> None:
    """``y (+)= matrix signals (+ bias)`` in place."""
    weights = matrix.expand(signals.shape[0], -1, -1)
    if not first:
        torch.baddbmm(y, weights, signals, out=y)
    elif bias is None:
        torch.bmm(weights, signals, out=y)
    else:
        torch.baddbmm(bias[None, :, None], weights, signals, out=y)


def add_spectrum(total: Tensor | None, matrix: Tensor, spectrum: Tensor) -> Tensor:
    """``matrix spectrum``, added in place to ``total`` if there is one."""
    if total is None:
        return mix_spectrum(matrix, spectrum)
    flat, signals = (torch.view_as_real(s).flatten(2) for s in (total, spectrum))
    add_product(flat, matrix, signals, first=False)
    return total


def _inverse_parts(spectrum: Tensor) -> list[slice]:
    """Channels to transform back at once, since the transform copies what it is given."""
    of_one = spectrum[:, :1].numel() * spectrum.element_size()
    return split(spectrum.shape[1], max(1, INVERSE_BYTES // max(of_one, 1)))


class _Collector:
    """Puts slices of modes together; a single slice is passed on, without what it may be cut out of."""

    def __init__(self, num_modes: int) -> None:
        self._num_modes = num_modes
        self._whole: Tensor | None = None

    def add(self, part: slice, value: Tensor) -> None:
        if part.stop - part.start == self._num_modes:
            self._whole = value.contiguous()
            return
        if self._whole is None:
            self._whole = value.new_empty(value.shape[0], self._num_modes, *value.shape[2:])
        self._whole[:, part] = value

    def whole(self) -> Tensor:
        """All modes' real signals or spectra as ``(b, m, 2, ..)``."""
        assert self._whole is not None
        return self._whole

    def take(self) -> Tensor:
        """The same as ``(b, 2 m, ..)``."""
        return self.whole().flatten(1, 2)


class ModeEntry:
    """Mix, then transform two real signals per mode."""

    def __init__(self, plan: Plan, x: Tensor, grad_x: Tensor | None = None) -> None:
        self._plan, self._x, self._grad_x = plan, x, grad_x
        self._signals: Tensor | None = None

    def open(self, w_in: Tensor) -> None:
        self._signals = mix(w_in, self._x.flatten(2)).unflatten(1, (-1, 2)).unflatten(-1, self._plan.size)

    def coefficients(self, part: slice) -> Tensor:
        assert self._signals is not None
        return analyse(self._signals[:, part], self._plan.band, self._plan.padding)

    def close(self, *, last: bool) -> None:
        """Let go of what the next chunk does not need."""
        self._signals = None

    def kept(self) -> list[Tensor]:
        return []

    def restore(self, kept: Iterator[Tensor]) -> None:
        """Nothing but ``x`` itself is needed."""

    def open_backward(self, w_in: Tensor) -> None:
        self._w_in = w_in
        self._grads = _Collector(w_in.shape[0] // 2)

    def collect_backward(self, part: slice, grad: Tensor) -> None:
        plan = self._plan
        self._grads.add(part, analyse_adjoint(grad, plan.band, plan.size, plan.padding))

    def close_backward(self, *, first: bool, last: bool) -> Tensor:
        self.close(last=last)
        grads = self._grads.take().flatten(2)
        self._grads = _Collector(0)
        if self._grad_x is not None:
            add_product(self._grad_x.flatten(2), self._w_in.mT, grads, first=first)
        return correlate(grads, self._x.flatten(2))


class ChannelEntry:
    """Transform the channels, then mix."""

    def __init__(self, plan: Plan, x: Tensor, grad_x: Tensor | None = None) -> None:
        self._plan, self._x, self._grad_x = plan, x, grad_x
        self._spectrum: Tensor | None = None
        self._grad_spectrum: Tensor | None = None
        self._modes: Tensor | None = None

    def _channels(self) -> Tensor:
        if self._spectrum is None:
            self._spectrum = analyse(self._x, self._plan.band, self._plan.padding)
        return self._spectrum

    def open(self, w_in: Tensor) -> None:
        self._modes = mix_spectrum(w_in, self._channels()).unflatten(1, (-1, 2))

    def coefficients(self, part: slice) -> Tensor:
        assert self._modes is not None
        return self._modes[:, part]

    def close(self, *, last: bool) -> None:
        """Let go of what the next chunk does not need."""
        self._modes = None
        if last:
            self._spectrum = None

    def kept(self) -> list[Tensor]:
        return [self._channels()]

    def restore(self, kept: Iterator[Tensor]) -> None:
        self._spectrum = next(kept)

    def open_backward(self, w_in: Tensor) -> None:
        self._w_in = w_in
        self._grads = _Collector(w_in.shape[0] // 2)

    def collect_backward(self, part: slice, grad: Tensor) -> None:
        self._grads.add(part, grad)

    def close_backward(self, *, first: bool, last: bool) -> Tensor:
        plan, grads = self._plan, self._grads.take()
        self._grads = _Collector(0)
        grad_in = correlate_spectra(grads, self._channels(), plan.band).mul_(math.prod(plan.band.size_in))
        self.close(last=last)
        if self._grad_x is not None:
            self._grad_spectrum = add_spectrum(self._grad_spectrum, self._w_in.mT, grads)
            if last:
                for part in _inverse_parts(self._grad_spectrum):
                    samples = analyse_adjoint(self._grad_spectrum[:, part], plan.band, plan.size, plan.padding)
                    self._grad_x[:, part].copy_(samples)
        return grad_in


class ModeExit:
    """Transform two real signals per mode back, then mix."""

    needs_coupled = False

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._back: Tensor | None = None

    def open(self, num_modes: int) -> None:
        self._signals = _Collector(num_modes)

    def collect(self, part: slice, coupled: Tensor) -> None:
        self._signals.add(part, synthesise(coupled, self._plan.band, self._plan.out_size))

    def kept(self) -> list[Tensor]:
        return [self._signals.whole()]

    def close(self, y: Tensor, w_out: Tensor, bias: Tensor | None, *, first: bool, last: bool) -> None:
        add_product(y.flatten(2), w_out, self._signals.take().flatten(2), first=first, bias=bias)
        self._signals = _Collector(0)

    def restore(self, kept: Iterator[Tensor]) -> None:
        signals = next(kept)
        self._signals.add(slice(0, signals.shape[1]), signals)

    def open_backward(self, grad_y: Tensor, w_out: Tensor) -> None:
        self._grad_y = grad_y.flatten(2)
        self._back = mix(w_out.mT, self._grad_y).unflatten(1, (-1, 2)).unflatten(-1, self._plan.out_size)

    def coefficients_backward(self, part: slice) -> Tensor:
        assert self._back is not None
        return synthesise_adjoint(self._back[:, part], self._plan.band)

    def close_backward(self, *, last: bool) -> Tensor:
        self._back = None
        grad_out = correlate(self._grad_y, self._signals.take().flatten(2))
        self._signals = _Collector(0)
        return grad_out


class ChannelExit:
    """Mix, then transform the channels back."""

    needs_coupled = True

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._spectrum: Tensor | None = None
        self._grad_spectrum: Tensor | None = None
        self._back: Tensor | None = None

    def open(self, num_modes: int) -> None:
        self._modes = _Collector(num_modes)

    def collect(self, part: slice, coupled: Tensor) -> None:
        self._modes.add(part, coupled)

    def kept(self) -> list[Tensor]:
        return []

    def close(self, y: Tensor, w_out: Tensor, bias: Tensor | None, *, first: bool, last: bool) -> None:
        self._spectrum = add_spectrum(self._spectrum, w_out, self._modes.take())
        self._modes = _Collector(0)
        if last:
            if bias is not None:
                self._spectrum[(..., *[0] * self._plan.band.num_axes)] += bias
            for part in _inverse_parts(self._spectrum):
                y[:, part].copy_(synthesise(self._spectrum[:, part], self._plan.band, self._plan.out_size))
            self._spectrum = None

    def restore(self, kept: Iterator[Tensor]) -> None:
        """Coupled spectra follow from the entry's coefficients."""

    def open_backward(self, grad_y: Tensor, w_out: Tensor) -> None:
        if self._grad_spectrum is None:
            self._grad_spectrum = synthesise_adjoint(grad_y, self._plan.band)
        self._back = mix_spectrum(w_out.mT, self._grad_spectrum).unflatten(1, (-1, 2))

    def coefficients_backward(self, part: slice) -> Tensor:
        assert self._back is not None
        return self._back[:, part]

    def close_backward(self, *, last: bool) -> Tensor:
        assert self._grad_spectrum is not None
        self._back = None
        grad_out = correlate_spectra(self._modes.take(), self._grad_spectrum, self._plan.band).mT
        self._modes = _Collector(0)
        if last:
            self._grad_spectrum = None
        return grad_out
