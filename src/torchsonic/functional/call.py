"""One call of the operator: its operands, its options, and the three ways to run it."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from torchsonic.functional import kernels
from torchsonic.functional.pages import keep_pages
from torchsonic.functional.pair import ModeShape, Symmetry, plain_pair
from torchsonic.functional.plan import Plan, make_plan
from torchsonic.functional.spectrum import PaddingMode, analyse, synthesise

__all__ = ["Operands", "Options", "plan_of", "run_backward", "run_forward", "run_plain"]


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
    bias: Tensor | None
    spacing: Tensor

    @property
    def shape(self) -> ModeShape:
        return ModeShape(*self[3:9])


class Options(NamedTuple):
    """What is computed (size, boundary, symmetry) and how (order, modes at once or 0 for all)."""

    out_size: tuple[int, ...]
    padding_mode: PaddingMode
    order: str
    mode_chunk: int
    symmetry: Symmetry


def plan_of(operands: Operands, options: Options) -> Plan:
    """The plan of a call."""
    x, mix_in, mix_out = operands[:3]
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
    both_signs = options.symmetry == "real"
    return plan.band.omega(operands.spacing, dtype=operands.x.dtype, both_signs=both_signs)


def run_forward(operands: Operands, options: Options, *, keep: bool = False) -> tuple[Tensor, list[Tensor]]:
    """The output, and what :func:`run_backward` can use if it was to be kept."""
    x, mix_in, mix_out, bias = *operands[:3], operands.bias
    if x.device.type == "cpu":
        keep_pages()
    plan = plan_of(operands, options)
    respond = kernels.respond_with(operands.shape, _omega(operands, options, plan), plan, options.symmetry)
    return kernels.forward(x.contiguous(), mix_in, mix_out, bias, respond, plan, options.symmetry, keep=keep)


def run_backward(
    grad_y: Tensor,
    operands: Operands,
    options: Options,
    kept: list[Tensor],
    *,
    need_x: bool = True,
    need_bias: bool = True,
) -> list[Tensor | None]:
    """Gradients of all operands but the spacing, in their order."""
    plan = plan_of(operands, options)
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
        need_x=need_x,
        need_bias=need_bias,
    )
    return [grads.x, grads.mix_in, grads.mix_out, *grads.shape, grads.bias]


def run_plain(operands: Operands, options: Options) -> Tensor:
    """The operator from ordinary differentiable operations: for higher derivatives and function transforms."""
    plan = plan_of(operands, options._replace(order="modes-modes"))
    t1, t2 = plain_pair(_omega(operands, options, plan), operands.shape, plan.band, options.symmetry)
    z = analyse(torch.einsum("mrc,bc...->bmr...", operands.mix_in, operands.x), plan.band, plan.padding)
    p, q = z.unbind(2)
    w = torch.stack([t1 * p - t2 * q, t1 * q + t2 * p], dim=2)
    w = kernels.zero_imaginary(w, plan.band, options.symmetry)
    y = torch.einsum("kmr,bmr...->bk...", operands.mix_out, synthesise(w, plan.band, plan.out_size))
    return y if operands.bias is None else y + operands.bias.reshape(-1, *[1] * (y.dim() - 2))
