"""One call of the operator: its operands, its options, and the three ways to run it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import NamedTuple

import torch
from torch import Tensor

from torchsonic.functional import kernels
from torchsonic.functional.coupling import zero_imaginary
from torchsonic.functional.exhaustion import advising
from torchsonic.functional.exporting import exporting
from torchsonic.functional.limits import ResponseLimits
from torchsonic.functional.pages import keep_pages
from torchsonic.functional.pair import (
    ModeShape,
    Responses,
    Symmetry,
    evaluate_responses,
    grid_omega,
    plain_pair,
    response_bytes,
)
from torchsonic.functional.plan import Plan, make_plan
from torchsonic.functional.reuse import MOST_BYTES, find_responses
from torchsonic.functional.spectrum import PaddingMode, analyse, synthesise

__all__ = [
    "Operands",
    "Options",
    "plan_of",
    "run_backward",
    "run_evaluated",
    "run_forward",
    "run_plain",
    "run_reusing",
    "without_autocast",
]


class Operands(NamedTuple):
    """The tensors of a call; see :func:`torchsonic.functional.spectral_conv`. All but the last get gradients."""

    x: Tensor
    mix_in: Tensor
    mix_out: Tensor
    direction: Tensor
    scale: Tensor
    damping: Tensor
    oscillation: Tensor
    transverse: Tensor
    gain: Tensor
    cutoff: Tensor | None
    bias: Tensor | None
    spacing: Tensor

    @property
    def shape(self) -> ModeShape:
        return ModeShape(*self[3:10])

    def each(self, change: Callable[[Tensor], Tensor]) -> Operands:
        """Apply a function to every tensor that is there."""
        return Operands(*[None if t is None else change(t) for t in self])  # type: ignore[arg-type]


class Options(NamedTuple):
    """What is computed (size, boundary, symmetry, limits) and how (order, modes at once or 0 for all)."""

    out_size: tuple[int, ...]
    padding_mode: PaddingMode
    order: str
    mode_chunk: int
    symmetry: Symmetry
    # One by one, not as ResponseLimits: the schema of the compiled operator knows plain values alone.
    band_order: int = 0
    magnitude_limit: float = 0.0
    soft_limit: bool = False

    @property
    def limits(self) -> ResponseLimits:
        return ResponseLimits(self.band_order, self.magnitude_limit, self.soft_limit)


def plan_of(x: Tensor, mix_in: Tensor, mix_out: Tensor, options: Options) -> Plan:
    """The plan of a call."""
    return make_plan(
        x.shape[0],
        mix_in.shape[2],
        mix_out.shape[0],
        mix_in.shape[0],
        tuple(x.shape[2:]),
        tuple(options.out_size),
        padding=options.padding_mode,
        order=options.order,
        mode_chunk=options.mode_chunk or None,
        on_cpu=x.device.type == "cpu",
    )


def _omega(operands: Operands, options: Options, plan: Plan) -> list[Tensor]:
    return grid_omega(operands.spacing, plan.band, options.symmetry, operands.x.dtype)


def without_autocast(device: torch.device) -> AbstractContextManager:
    """Transforms need float32 whatever the context; some devices know no autocast at all.

    An exported graph has no such context, and could not hold it in every format.
    """
    if exporting() is None and torch.amp.is_autocast_available(device.type):
        return torch.autocast(device.type, enabled=False)
    return nullcontext()


def run_forward(
    operands: Operands, options: Options, *, training: bool = False, keep: bool = False
) -> tuple[Tensor, list[Tensor]]:
    """The output, and what :func:`run_backward`, which follows in training, can use if it was to be kept."""
    plan = plan_of(*operands[:3], options)
    omega = _omega(operands, options, plan)
    per_sample = operands.spacing.shape[0] > 1
    with advising(*operands[:3], options, training=training, keep=keep, per_sample=per_sample):
        return _run(
            *operands[:3],
            operands.bias,
            # No variable of this frame: it keeps responses, which the advice is to find freed.
            kernels.respond_with(operands.shape, omega, plan, options.symmetry, options.limits),
            plan,
            options.symmetry,
            keep=keep,
        )


def run_evaluated(
    x: Tensor, mix_in: Tensor, mix_out: Tensor, bias: Tensor | None, responses: Responses, options: Options
) -> Tensor:
    """The output from responses ``(1, M, *band)`` that were evaluated before; no gradient."""
    plan = plan_of(x, mix_in, mix_out, options)
    with advising(x, mix_in, mix_out, options):
        return _run(x, mix_in, mix_out, bias, kernels.respond_from(responses), plan, options.symmetry)[0]


def run_reusing(operands: Operands, options: Options) -> Tensor:
    """The output without gradient, from responses evaluated in an earlier call if the same are needed again."""
    band = plan_of(*operands[:3], options).band
    values = [t for t in (*operands.shape, operands.spacing) if t is not None]
    num_bytes = response_bytes(operands.mix_in.shape[0], band, operands.x.dtype)
    shared = all(len(t) == 1 for t in values)
    # Elsewhere looking at values would make the host wait; with chunks of modes memory matters more than time.
    if operands.x.device.type != "cpu" or options.mode_chunk or num_bytes > MOST_BYTES or not shared:
        return run_forward(operands, options)[0]
    key = (band, options.symmetry, options.limits, operands.x.dtype)
    with without_autocast(operands.x.device):
        responses = find_responses(
            values,
            key,
            lambda: evaluate_responses(operands.shape, operands.spacing, band, options.symmetry, options.limits),
        )
    return run_evaluated(*operands[:3], operands.bias, responses, options)


def _run(x: Tensor, *arguments, keep: bool = False) -> tuple[Tensor, list[Tensor]]:
    """The forward kernel in the surroundings it needs."""
    if x.device.type == "cpu":
        keep_pages()
    with without_autocast(x.device):
        return kernels.forward(x.contiguous(), *arguments, keep=keep)


def run_backward(
    grad_y: Tensor, operands: Operands, options: Options, kept: list[Tensor], needs: Sequence[bool]
) -> list[Tensor | None]:
    """Gradients of all operands but the spacing, in their order; ``needs`` says which are wanted."""
    plan = plan_of(*operands[:3], options)
    per_sample = operands.spacing.shape[0] > 1
    advice = advising(*operands[:3], options, training=True, keep=bool(kept), kept=kept, per_sample=per_sample)
    with advice, without_autocast(grad_y.device):
        grads = kernels.backward(
            grad_y.contiguous(),
            operands.x.contiguous(),
            operands.mix_in,
            operands.mix_out,
            operands.shape,
            _omega(operands, options, plan),
            plan,
            options.symmetry,
            kept,
            options.limits,
            need_x=needs[0],
            need_shape=any(needs[3:10]),
            need_bias=needs[10],
        )
    return [grads.x, grads.mix_in, grads.mix_out, *grads.shape, grads.bias]


def run_plain(operands: Operands, options: Options) -> Tensor:
    """The operator from ordinary differentiable operations: for higher derivatives and function transforms."""
    plan = plan_of(*operands[:3], options._replace(order="modes-modes"))
    with without_autocast(operands.x.device):
        return _run_plain(operands, options, plan)


def _run_plain(operands: Operands, options: Options, plan: Plan) -> Tensor:
    if operands.x.shape[0] == 0:  # no library transforms nothing; all operands still get their gradient, zero
        y = operands.x.new_zeros(0, operands.mix_out.shape[0], *plan.out_size)
        return y + sum(t.sum() for t in operands[:-1] if t is not None)
    omega = _omega(operands, options, plan)
    t1, t2 = plain_pair(omega, operands.shape, plan.band, options.symmetry, options.limits)
    z = analyse(torch.einsum("mrc,bc...->bmr...", operands.mix_in, operands.x), plan.band, plan.padding)
    p, q = z.unbind(2)
    w = torch.stack([t1 * p - t2 * q, t1 * q + t2 * p], dim=2)
    w = zero_imaginary(w, plan.band, options.symmetry)
    y = torch.einsum("kmr,bmr...->bk...", operands.mix_out, synthesise(w, plan.band, plan.out_size))
    return y if operands.bias is None else y + operands.bias.reshape(-1, *[1] * (y.dim() - 2))
