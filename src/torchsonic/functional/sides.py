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
from torchsonic.functional.plan import Plan
from torchsonic.functional.spectrum import analyse, analyse_adjoint, synthesise, synthesise_adjoint

__all__ = ["ChannelEntry", "ChannelExit", "ModeEntry", "ModeExit", "mix", "mix_spectrum"]


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
    """The same in the half spectrum's inner product, ``b`` having no more signals than ``a`` at best."""
    left, right = (torch.view_as_real(s).flatten(-2) for s in (a, b))
    # Repeated for real and imaginary part: a broadcast over them would not vectorise.
    weight = band.multiplicity(device=b.device, dtype=right.dtype).repeat_interleave(2)
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


class _Collector:
    """Puts slices of modes together; a single slice is passed on without a copy."""

    def __init__(self, num_modes: int) -> None:
        self._num_modes = num_modes
        self._whole: Tensor | None = None

    def add(self, part: slice, value: Tensor) -> None:
        if part.stop - part.start == self._num_modes:
            self._whole = value
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

    def open(self, w_in: Tensor) -> None:
        self._signals = mix(w_in, self._x.flatten(2)).unflatten(1, (-1, 2)).unflatten(-1, self._plan.size)

    def coefficients(self, part: slice) -> Tensor:
        return analyse(self._signals[:, part], self._plan.band, self._plan.padding)

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
        grads = self._grads.take().flatten(2)
        if self._grad_x is not None:
            add_product(self._grad_x.flatten(2), self._w_in.mT, grads, first=first)
        return correlate(grads, self._x.flatten(2))


class ChannelEntry:
    """Transform the channels, then mix."""

    def __init__(self, plan: Plan, x: Tensor, grad_x: Tensor | None = None) -> None:
        self._plan, self._x, self._grad_x = plan, x, grad_x
        self._spectrum: Tensor | None = None
        self._grad_spectrum: Tensor | None = None

    def _channels(self) -> Tensor:
        if self._spectrum is None:
            self._spectrum = analyse(self._x, self._plan.band, self._plan.padding)
        return self._spectrum

    def open(self, w_in: Tensor) -> None:
        self._modes = mix_spectrum(w_in, self._channels()).unflatten(1, (-1, 2))

    def coefficients(self, part: slice) -> Tensor:
        return self._modes[:, part]

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
        if self._grad_x is not None:
            mixed = mix_spectrum(self._w_in.mT, grads)
            self._grad_spectrum = mixed if self._grad_spectrum is None else self._grad_spectrum.add_(mixed)
            if last:
                self._grad_x.copy_(analyse_adjoint(self._grad_spectrum, plan.band, plan.size, plan.padding))
        return correlate_spectra(grads, self._channels(), plan.band).mul_(math.prod(plan.band.size_in))


class ModeExit:
    """Transform two real signals per mode back, then mix."""

    needs_coupled = False

    def __init__(self, plan: Plan) -> None:
        self._plan = plan

    def open(self, num_modes: int) -> None:
        self._signals = _Collector(num_modes)

    def collect(self, part: slice, coupled: Tensor) -> None:
        self._signals.add(part, synthesise(coupled, self._plan.band, self._plan.out_size))

    def close(self, y: Tensor, w_out: Tensor, bias: Tensor | None, *, first: bool, last: bool) -> None:
        add_product(y.flatten(2), w_out, self._signals.take().flatten(2), first=first, bias=bias)

    def kept(self) -> list[Tensor]:
        return [self._signals.whole()]

    def restore(self, kept: Iterator[Tensor]) -> None:
        signals = next(kept)
        self._signals.add(slice(0, signals.shape[1]), signals)

    def open_backward(self, grad_y: Tensor, w_out: Tensor) -> None:
        self._grad_y = grad_y.flatten(2)
        self._back = mix(w_out.mT, self._grad_y).unflatten(1, (-1, 2)).unflatten(-1, self._plan.out_size)

    def backward_extent(self) -> tuple[int, int]:
        """Modes and samples in hand."""
        return self._back.shape[1], self._back.shape[0]

    def coefficients_backward(self, part: slice) -> Tensor:
        return synthesise_adjoint(self._back[:, part], self._plan.band)

    def close_backward(self) -> Tensor:
        return correlate(self._grad_y, self._signals.take().flatten(2))


class ChannelExit:
    """Mix, then transform the channels back."""

    needs_coupled = True

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._spectrum: Tensor | None = None
        self._grad_spectrum: Tensor | None = None

    def open(self, num_modes: int) -> None:
        self._modes = _Collector(num_modes)

    def collect(self, part: slice, coupled: Tensor) -> None:
        self._modes.add(part, coupled)

    def close(self, y: Tensor, w_out: Tensor, bias: Tensor | None, *, first: bool, last: bool) -> None:
        mixed = mix_spectrum(w_out, self._modes.take())
        self._spectrum = mixed if self._spectrum is None else self._spectrum.add_(mixed)
        if last:
            if bias is not None:
                self._spectrum[(..., *[0] * self._plan.band.num_axes)] += bias
            y.copy_(synthesise(self._spectrum, self._plan.band, self._plan.out_size))

    def kept(self) -> list[Tensor]:
        return []

    def restore(self, kept: Iterator[Tensor]) -> None:
        """Coupled spectra follow from the entry's coefficients."""

    def open_backward(self, grad_y: Tensor, w_out: Tensor) -> None:
        if self._grad_spectrum is None:
            self._grad_spectrum = synthesise_adjoint(grad_y, self._plan.band)
        self._back = mix_spectrum(w_out.mT, self._grad_spectrum).unflatten(1, (-1, 2))

    def backward_extent(self) -> tuple[int, int]:
        """Modes and samples in hand."""
        return self._back.shape[1], self._back.shape[0]

    def coefficients_backward(self, part: slice) -> Tensor:
        return self._back[:, part]

    def close_backward(self) -> Tensor:
        assert self._grad_spectrum is not None
        return correlate_spectra(self._modes.take(), self._grad_spectrum, self._plan.band).mT
