"""Forward and backward of the operator on real half spectra, outside autograd.

For each chunk of modes and samples, with ``[P; Q] = B x`` (two real signals per mode):

1. coefficients ``Z = F[B x]``, by an entry of :mod:`sides`,
2. coupling     ``W = [T1 P - T2 Q; T1 Q + T2 P]``, by :mod:`coupling`,
3. samples      ``y += C F^-1[W]``, by an exit of :mod:`sides`.

Layouts: ``mix_in (M, 2, C)`` holds ``Re B, Im B``; ``mix_out (K, M, 2)`` holds ``Re C, -Im C``. Mode chunks are then
contiguous rows, and a product with either is one real matrix product.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from torchsonic.functional.coupling import couple, couple_gradient, zero_imaginary
from torchsonic.functional.frequency import Band
from torchsonic.functional.limits import UNLIMITED, ResponseLimits
from torchsonic.functional.pair import ModeShape, ResponsePair, Responses, Symmetry
from torchsonic.functional.plan import Plan, split
from torchsonic.functional.sides import ChannelEntry, ChannelExit, ModeEntry, ModeExit

__all__ = ["Gradients", "backward", "forward", "kept_slots", "respond_from", "respond_with"]

# Bytes of mode spectra coupled at once on a CPU: the pointwise work then stays in cache.
CPU_SPECTRUM_BYTES = 1 << 20

Entry = ModeEntry | ChannelEntry
Exit = ModeExit | ChannelExit
Respond = Callable[[slice, slice], Responses | ResponsePair]
RespondDifferentiably = Callable[[slice, slice], ResponsePair]


class Gradients(NamedTuple):
    """What the backward pass returns; ``x`` and ``bias`` are ``None`` when they were not asked for."""

    x: Tensor | None
    mix_in: Tensor
    mix_out: Tensor
    bias: Tensor | None
    shape: ModeShape


def _sides(plan: Plan, x: Tensor, grad_x: Tensor | None = None) -> tuple[Entry, Exit]:
    entry = ChannelEntry(plan, x, grad_x) if plan.channels_in else ModeEntry(plan, x, grad_x)
    return entry, ChannelExit(plan) if plan.channels_out else ModeExit(plan)


def _slices(plan: Plan, num_modes: int, samples: int, on_cpu: bool) -> list[slice]:
    """Split a chunk of modes so that the spectra between its transforms stay in cache."""
    step = num_modes
    if on_cpu and not (plan.channels_in and plan.channels_out):
        step = max(1, min(num_modes, CPU_SPECTRUM_BYTES // (16 * samples * math.prod(plan.band.shape))))
    return split(num_modes, step)


def _is_shared(shape: ModeShape, omega: Sequence[Tensor]) -> bool:
    return all(t is None or t.shape[0] == 1 for t in (*shape, *omega))


def respond_with(
    shape: ModeShape,
    omega: list[Tensor],
    plan: Plan,
    symmetry: Symmetry,
    limits: ResponseLimits = UNLIMITED,
    *,
    differentiable: bool = False,
) -> RespondDifferentiably:
    """Evaluate responses when asked; those of the chunk of modes in hand are kept."""
    shared = _is_shared(shape, omega)
    last: tuple[tuple, ResponsePair] | None = None

    def respond(samples: slice, modes: slice) -> ResponsePair:
        nonlocal last
        key = (modes, None if shared else samples)
        if last is not None and last[0] == key:
            return last[1]
        last = None  # before the next ones take their room
        grid = [w if w.shape[0] == 1 else w[samples] for w in omega]
        chosen = shape.select(samples, modes)
        pair = ResponsePair(grid, chosen, plan.band, symmetry, limits, differentiable=differentiable)
        last = (key, pair)
        return pair

    return respond


def respond_from(responses: Responses) -> Respond:
    """Hand out responses ``(1, M, *band)`` that were evaluated before."""
    return lambda samples, modes: Responses(responses.t1[:, modes], responses.t2[:, modes])


def kept_slots(plan: Plan, batch: int, num_modes: int, on_cpu: bool) -> Iterator[tuple[str, slice, slice]]:
    """What each tensor kept by :func:`forward` holds: its role, samples and modes, in order."""
    chunks = plan.mode_chunks(num_modes)
    for modes in chunks:
        for samples in plan.sample_chunks(batch):
            if plan.channels_in and modes is chunks[0]:
                yield "spectrum", samples, slice(None)
            for part in _slices(plan, modes.stop - modes.start, samples.stop - samples.start, on_cpu):
                yield "coefficients", samples, slice(modes.start + part.start, modes.start + part.stop)
            if not plan.channels_out:
                yield "signals", samples, modes


def forward(
    x: Tensor,
    mix_in: Tensor,
    mix_out: Tensor,
    bias: Tensor | None,
    respond: Respond,
    plan: Plan,
    symmetry: Symmetry,
    *,
    keep: bool = False,
) -> tuple[Tensor, list[Tensor]]:
    """Apply the operator.

    Parameters
    ----------
    x
        ``(B, C, *size)``, contiguous.
    mix_in, mix_out, bias
        ``(M, 2, C)``, ``(K, M, 2)``, ``(K,)``.
    respond
        Gives ``T1, T2`` for a slice of samples and a slice of modes.
    keep
        Also return the intermediate results that the backward pass would otherwise compute again.

    Returns
    -------
    tuple
        ``y (B, K, *out_size)`` and the kept tensors, in the order in which the backward pass takes them.
    """
    band, on_cpu = plan.band, x.device.type == "cpu"
    y = x.new_empty(x.shape[0], mix_out.shape[0], *plan.out_size)
    kept: list[Tensor] = []
    samples_of = plan.sample_chunks(x.shape[0])
    open_sides: dict[int, tuple[Entry, Exit]] = {}
    chunks = plan.mode_chunks(mix_in.shape[0])
    for modes in chunks:
        w_in, w_out = mix_in[modes].flatten(0, 1), mix_out[:, modes].flatten(1)
        num_modes = modes.stop - modes.start
        first, last = modes is chunks[0], modes is chunks[-1]
        for index, samples in enumerate(samples_of):
            entry, exit_ = open_sides.pop(index) if index in open_sides else _sides(plan, x[samples])
            entry.open(w_in)
            exit_.open(num_modes)
            if keep and first:
                kept += entry.kept()
            parts = _slices(plan, num_modes, samples.stop - samples.start, on_cpu)
            coefficients = _couple_parts(parts, entry, exit_, respond(samples, modes), band, symmetry, keep=keep)
            if keep:
                kept += [*coefficients, *exit_.kept()]
            entry.close(last=last)
            exit_.close(y[samples], w_out, bias, first=first, last=last)
            if not last:
                open_sides[index] = entry, exit_
    return y, kept


def _couple_parts(
    parts: list[slice],
    entry: Entry,
    exit_: Exit,
    responses: Responses | ResponsePair,
    band: Band,
    symmetry: Symmetry,
    *,
    keep: bool,
) -> list[Tensor]:
    """Take a chunk from its entry to its exit; returns the coefficients if they are to be kept."""
    kept: list[Tensor] = []
    for part in parts:
        z = entry.coefficients(part)
        w = couple(z, responses.t1[:, part], responses.t2[:, part])
        exit_.collect(part, zero_imaginary(w, band, symmetry))
        if keep:
            kept.append(z)
    return kept


def backward(
    grad_y: Tensor,
    x: Tensor,
    mix_in: Tensor,
    mix_out: Tensor,
    shape: ModeShape,
    omega: list[Tensor],
    plan: Plan,
    symmetry: Symmetry,
    kept: list[Tensor],
    limits: ResponseLimits = UNLIMITED,
    *,
    need_x: bool = True,
    need_shape: bool = True,
    need_bias: bool = True,
) -> Gradients:
    """Gradients of everything, from ``grad_y`` and either ``kept`` tensors or ``x`` alone.

    The adjoint of a response is its conjugate; gradients of the mode parameters are per-mode sums over the band.
    """
    shared = _is_shared(shape, omega)
    multiplicity = plan.band.multiplicity(device=grad_y.device, dtype=grad_y.dtype)
    respond = respond_with(shape, omega, plan, symmetry, limits, differentiable=True)
    grad_x = grad_y.new_empty(grad_y.shape[0], mix_in.shape[2], *plan.size) if need_x else None
    # In one layout whatever that of the operands: compilers are told it before.
    grad_in, grad_out = mix_in.new_zeros(mix_in.shape), mix_out.new_zeros(mix_out.shape)
    grad_shape = shape.each(lambda t: t.new_zeros(t.shape))
    open_sides: dict[int, tuple[Entry, Exit]] = {}
    samples_of, chunks = plan.sample_chunks(grad_y.shape[0]), plan.mode_chunks(mix_in.shape[0])
    queue = iter(kept) if kept else None
    for modes in chunks:
        w_in, w_out = mix_in[modes].flatten(0, 1), mix_out[:, modes].flatten(1)
        num_modes = modes.stop - modes.start
        first, last = modes is chunks[0], modes is chunks[-1]
        grad_t: list[Tensor] | None = None
        for index, samples in enumerate(samples_of):
            if index in open_sides:
                entry, exit_ = open_sides.pop(index)
            else:
                entry, exit_ = _sides(plan, x[samples], None if grad_x is None else grad_x[samples])
            if queue is None:
                entry.open(w_in)
            elif first:
                entry.restore(queue)
            entry.open_backward(w_in)
            exit_.open(num_modes)
            exit_.open_backward(grad_y[samples], w_out)
            parts = _slices(plan, num_modes, samples.stop - samples.start, grad_y.device.type == "cpu")
            needs = {"shared": shared, "need_shape": need_shape}
            grads = _backward_parts(parts, entry, exit_, respond(samples, modes), plan, symmetry, queue, **needs)
            if queue is not None:
                exit_.restore(queue)
            grad_out[:, modes] += exit_.close_backward(last=last).unflatten(1, (num_modes, 2))
            grad_in[modes] += entry.close_backward(first=first, last=last).unflatten(0, (num_modes, 2))
            if need_shape and not shared:
                pair_grads = respond(samples, modes).backward(*[g.mul_(multiplicity) for g in grads])
                _add(grad_shape, pair_grads, samples, modes)
            elif need_shape:
                grad_t = grads if grad_t is None else [t.add_(g) for t, g in zip(grad_t, grads, strict=True)]
            del grads  # before the next chunk takes its room
            if not last:
                open_sides[index] = entry, exit_
        if grad_t is not None:
            pair_grads = respond(slice(0, 1), modes).backward(*[g.mul_(multiplicity) for g in grad_t])
            _add(grad_shape, pair_grads, slice(None), modes)
    grad_bias = grad_y.sum([d for d in range(grad_y.dim()) if d != 1]) if need_bias else None
    return Gradients(grad_x, grad_in, grad_out, grad_bias, grad_shape)


def _backward_parts(
    parts: list[slice],
    entry: Entry,
    exit_: Exit,
    pair: ResponsePair,
    plan: Plan,
    symmetry: Symmetry,
    queue: Iterator[Tensor] | None,
    *,
    shared: bool,
    need_shape: bool,
) -> list[Tensor]:
    """Take a chunk's gradient through the coupling; returns the conjugate gradients of ``T1`` and ``T2`` if needed."""
    band, per_sample = plan.band, 1 / math.prod(plan.band.size_in)
    found: list[tuple[Tensor, Tensor]] = []
    for part in parts:
        t1, t2 = pair.t1[:, part], pair.t2[:, part]
        z = entry.coefficients(part) if queue is None else next(queue)
        if queue is None or exit_.needs_coupled:
            exit_.collect(part, zero_imaginary(couple(z, t1, t2), band, symmetry))
        g = zero_imaginary(exit_.coefficients_backward(part), band, symmetry)
        entry.collect_backward(part, couple(g, t1.conj() * per_sample, t2.conj() * -per_sample))
        if need_shape:
            found.append(couple_gradient(g.conj_physical_(), z, shared=shared))
    return [torch.cat([f[i] for f in found], 1) if len(found) > 1 else found[0][i] for i in (0, 1) if found]


def _add(total: ModeShape, part: ModeShape, samples: slice, modes: slice) -> None:
    """Add gradients of some modes and samples; parameters shared by the batch get the sum."""
    for target, value in zip(total, part, strict=True):
        if target is None or value is None:
            continue
        if target.shape[0] == 1:
            target[:, modes] += value.sum(0, keepdim=True)
        else:
            target[samples, modes] += value
