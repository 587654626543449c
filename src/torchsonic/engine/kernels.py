"""Forward and backward of the operator, outside autograd: mix, transform, couple, transform back, mix.

Each side mixes where its plan says: outside the transform ("modes") or inside it ("channels"). With modes on both sides
a mode's two real signals ``P, Q`` travel as one complex signal, on the full spectrum; else as a pair on the half one.
Samples are taken in chunks that suit the memory, and within them modes in chunks that bound it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import Tensor

from torchsonic.engine.call import Operands, Options, without_autocast
from torchsonic.engine.coupling import Coupling, TorchCoupling
from torchsonic.engine.exhaustion import advising
from torchsonic.engine.pages import keep_pages
from torchsonic.engine.plan import Plan, make_plan, split
from torchsonic.engine.products import add_product, add_spectrum, correlate, correlate_spectra, mix, mix_modes
from torchsonic.engine.search import measured_choice, searching
from torchsonic.engine.transform import (
    analyse,
    analyse_adjoint,
    analyse_modes,
    analyse_modes_adjoint,
    synthesise,
    synthesise_adjoint,
    synthesise_modes,
    synthesise_modes_adjoint,
)
from torchsonic.spectral.band import Band
from torchsonic.spectral.boundary import Boundary
from torchsonic.spectral.constants import constant
from torchsonic.spectral.response import ModeShape
from torchsonic.spectral.tracing import just_numbers

__all__ = ["Couplings", "Kept", "backward", "find_plan", "forward", "plan_for", "prepared"]

# A transform back copies what it is given: channels are taken in parts of so many bytes.
INVERSE_BYTES = 64 << 20


class Kept(NamedTuple):
    """What the backward pass would otherwise compute again, for one chunk of samples and all modes."""

    coefficients: Tensor
    """``Z``, ``(b, M, *band)`` or ``(b, M, 2, *band)``."""
    spectrum: Tensor | None
    """``F[x]``, ``(b, C, *band)``, where channels are transformed."""
    signals: Tensor | None
    """``F^-1[W]``, ``(b, 2 M, *out_size)``, where modes are transformed back."""


def find_plan(operands: Operands, options: Options, *, training: bool = False) -> Plan:
    """The plan of a call: a measured one, if plans are measured, or what the model of the cost says."""
    x, sizes = operands.x, (operands.mix_out.shape[0], operands.mix_in.shape[0])
    if not searching() or not just_numbers() or x.shape[0] == 0:
        return plan_for(x, *sizes, options)

    def run(order: str, sample_chunk: int) -> None:
        plan = plan_for(x, *sizes, options._replace(order=order), sample_chunk)
        given = (x, operands.mix_in, operands.mix_out, operands.bias, Couplings(operands, options, plan))
        y, kept = forward(*given, options.boundary, plan, keep=training)
        if training:
            backward(y, operands, options, plan, kept, [True] * len(operands))

    where = (x.device.type, x.dtype, torch.get_num_threads(), torch.__version__, operands.shared, training)
    key = " ".join(map(str, (tuple(x.shape), *sizes, *options, *where)))
    found = measured_choice(key, x.shape[0], options.order, run)
    if found is None:
        return plan_for(x, *sizes, options)
    return plan_for(x, *sizes, options._replace(order=found.order), found.sample_chunk)


def plan_for(x: Tensor, out_channels: int, num_modes: int, options: Options, sample_chunk: int | None = None) -> Plan:
    """The plan that the model of the cost gives a call on ``x (B, C, *size)``."""
    return make_plan(
        x.shape[0],
        x.shape[1],
        out_channels,
        num_modes,
        tuple(x.shape[2:]),
        tuple(options.out_size),
        padding=options.boundary,
        order=options.order,
        mode_chunk=options.mode_chunk or None,
        sample_chunk=sample_chunk,
        symmetry=options.symmetry,
        on_cpu=x.device.type == "cpu",
    )


@contextmanager
def prepared(
    operands: Operands, options: Options, *, training: bool = False, keep: bool = False, kept: Sequence = ()
) -> Iterator[None]:
    """What kernels need round them: full precision, pages at hand, and advice if memory runs out."""
    x, per_sample = operands.x, operands.spacing.shape[0] > 1
    if x.device.type == "cpu":
        keep_pages()
    sizes = (x.shape[0], x.shape[1], operands.mix_out.shape[0], operands.mix_in.shape[0], tuple(x.shape[2:]))
    with (
        without_autocast(x.device),
        advising(x, sizes, options, training=training, keep=keep, kept=kept, per_sample=per_sample),
    ):
        yield


class Couplings:
    """Couplings of chunks; one serves all samples if they share their responses and all modes are taken at once."""

    def __init__(self, operands: Operands, options: Options, plan: Plan, *, differentiable: bool = False) -> None:
        self._operands, self._options, self._plan = operands, options, plan
        self._differentiable = differentiable
        self.lasting = operands.shared and plan.mode_chunk >= operands.mix_in.shape[0]
        self._last: Coupling | None = None

    def __call__(self, samples: slice, modes: slice) -> Coupling:
        if self._last is None or not self.lasting:
            self._last = None  # before the next one takes its room
            spacing, options = self._operands.spacing, self._options
            self._last = TorchCoupling(
                self._operands.shape.select(samples, modes),
                spacing if spacing.shape[0] == 1 else spacing[samples],
                self._plan.band,
                options.symmetry,
                options.limits,
                differentiable=self._differentiable,
            )
        return self._last


def forward(
    x: Tensor,
    mix_in: Tensor,
    mix_out: Tensor,
    bias: Tensor | None,
    couplings: Callable[[slice, slice], Coupling],
    boundary: Boundary,
    plan: Plan,
    *,
    keep: bool = False,
) -> tuple[Tensor, list[Kept]]:
    """Apply the operator.

    Parameters
    ----------
    couplings
        Gives the coupling of some samples and modes.
    keep
        Also return the intermediate results that the backward pass would otherwise compute again.

    Returns
    -------
    tuple
        ``y (B, K, *out_size)`` and what is kept of each chunk of samples.
    """
    x, band = x.contiguous(), plan.band
    y = x.new_empty(x.shape[0], mix_out.shape[0], *plan.out_size)
    kept: list[Kept] = []
    for samples in plan.sample_chunks(x.shape[0]):
        xs, parts, total = x[samples], [], None
        spectrum = analyse(xs, band, boundary) if plan.channels_in else None
        for modes in plan.mode_chunks(mix_in.shape[0]):
            w_in, w_out, signals = mix_in[modes].flatten(0, 1), mix_out[:, modes].flatten(1), None
            z = analyse_modes(mix(w_in, xs), band, boundary) if spectrum is None else mix_modes(w_in, spectrum)
            w = couplings(samples, modes).forward(z)
            if plan.channels_out:
                total = add_spectrum(total, w_out, w.flatten(1, 2))
            else:
                signals = synthesise_modes(w, band, plan.out_size)
                add_product(y[samples], w_out, signals, first=modes.start == 0, bias=bias)
            if keep:
                parts.append(Kept(z, spectrum, signals))
        if total is not None:
            if bias is not None:
                total[(..., *[0] * band.num_axes)] += bias
            _put(y[samples], total, lambda part: synthesise(part, band, plan.out_size))
        if keep:
            kept.append(_joined(parts))
    return y, kept


def _joined(parts: list[Kept]) -> Kept:
    """What is kept of all chunks of modes."""
    if len(parts) == 1:
        return parts[0]
    signals = [part.signals for part in parts if part.signals is not None]
    coefficients = torch.cat([part.coefficients for part in parts], dim=1)
    return Kept(coefficients, parts[0].spectrum, torch.cat(signals, dim=1) if signals else None)


def _put(y: Tensor, spectrum: Tensor, transform: Callable[[Tensor], Tensor]) -> None:
    """Transform the channels of a spectrum back into ``y``, a few at a time."""
    of_one = spectrum[:, :1].numel() * spectrum.element_size()
    for part in split(spectrum.shape[1], max(1, INVERSE_BYTES // max(of_one, 1))):
        y[:, part].copy_(transform(spectrum[:, part]))


def backward(
    grad_y: Tensor, operands: Operands, options: Options, plan: Plan, kept: Sequence[Kept], needs: Sequence[bool]
) -> Operands:
    """Gradients of all operands (``None`` for the spacing, and for ``x`` and ``bias`` if they are not needed).

    Computed from ``grad_y`` and either what was ``kept`` or ``x`` alone. ``needs`` has one answer for each operand.
    """
    x, mix_in, mix_out, band = operands.x.contiguous(), operands.mix_in, operands.mix_out, plan.band
    grad_y, boundary = grad_y.contiguous(), options.boundary
    wanted = dict(zip(Operands._fields, needs, strict=False))
    need_shape = any(wanted[name] for name in ModeShape._fields)
    couplings = Couplings(operands, options, plan, differentiable=need_shape)
    # Complex signals come back as conjugates: the sign of every Q changes.
    signs = None if band.half else constant((1.0, -1.0), x.device, x.dtype)
    back_in, back_out = (mix_in, mix_out) if signs is None else (mix_in * signs[:, None], mix_out * signs)
    # In one layout whatever that of the operands: compilers are told it before.
    grad_in, grad_out = mix_in.new_zeros(mix_in.shape), mix_out.new_zeros(mix_out.shape)
    grad_x = torch.empty_like(x) if wanted["x"] else None
    grad_shape = None
    for index, samples in enumerate(plan.sample_chunks(x.shape[0])):
        xs, gs, there, grad_total = x[samples], grad_y[samples], kept[index] if kept else None, None
        spectrum = there.spectrum if there else analyse(xs, band, boundary) if plan.channels_in else None
        grad_spectrum = synthesise_adjoint(gs, band) if plan.channels_out else None
        for modes in plan.mode_chunks(mix_in.shape[0]):
            w_in, w_out = back_in[modes].flatten(0, 1), back_out[:, modes].flatten(1)
            coupling = couplings(samples, modes)
            if there:
                z = there.coefficients[:, modes]
            else:
                w = mix_in[modes].flatten(0, 1)
                z = analyse_modes(mix(w, xs), band, boundary) if spectrum is None else mix_modes(w, spectrum)
            if grad_spectrum is not None:
                found = correlate_spectra(grad_spectrum, coupling.forward(z).flatten(1, 2), band)
                g = mix_modes(w_out.mT, grad_spectrum)
            else:
                found = correlate(gs, _signals(there, modes, z, coupling, plan))
                g = synthesise_modes_adjoint(mix(w_out.mT, gs), band)
            grad_out[:, modes] += found.unflatten(1, (-1, 2))
            g = coupling.backward(g, z)
            if spectrum is not None:
                found = correlate_spectra(g.flatten(1, 2), spectrum, band).mul_(math.prod(band.size_in))
                grad_total = add_spectrum(grad_total, w_in.mT, g.flatten(1, 2)) if grad_x is not None else None
            else:
                u = analyse_modes_adjoint(g, band, plan.size, boundary)
                found = correlate(u, xs)
                if grad_x is not None:
                    add_product(grad_x[samples], w_in.mT, u, first=modes.start == 0)
            grad_in[modes] += found.unflatten(0, (-1, 2))
            if need_shape and couplings.lasting:
                grad_shape = coupling.gradients() if samples.stop == x.shape[0] else None
            elif need_shape:
                grad_shape = _added(grad_shape, coupling.gradients(), operands.shape, samples, modes)
        if grad_total is not None and grad_x is not None:
            _put(grad_x[samples], grad_total, lambda part: analyse_adjoint(part, band, plan.size, boundary))
    if signs is not None:
        grad_in *= signs[:, None]
    grad_bias = grad_y.sum([d for d in range(grad_y.dim()) if d != 1]) if wanted["bias"] else None
    grad_shape = grad_shape or operands.shape.each(lambda t: t.new_zeros(t.shape))
    return Operands(grad_x, grad_in, grad_out, *grad_shape, grad_bias, None)  # type: ignore[arg-type]


def _signals(there: Kept | None, modes: slice, z: Tensor, coupling: Coupling, plan: Plan) -> Tensor:
    """The modes' signals behind their responses, kept or computed again."""
    if there is not None and there.signals is not None:
        return there.signals[:, 2 * modes.start : 2 * modes.stop]
    return synthesise_modes(coupling.forward(z), plan.band, plan.out_size)


def _added(total: ModeShape | None, part: ModeShape, shape: ModeShape, samples: slice, modes: slice) -> ModeShape:
    """Gradients with those of some modes and samples added; parameters shared by the batch get the sum."""
    total = total or shape.each(lambda t: t.new_zeros(t.shape))
    for target, value in zip(total, part, strict=True):
        if target is None or value is None:
            continue
        if target.shape[0] == 1:
            target[:, modes] += value.sum(0, keepdim=True)
        else:
            target[samples, modes] += value
    return total
