"""The operator and its resizing as ``torch.library`` custom operators, for compilers and exporters.

They see opaque nodes with known output shapes: no FFT to decompose, no complex code to generate. What the backward
pass needs travels as two whole tensors, whatever the chunks.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from torchsonic.engine import kernels
from torchsonic.engine.cache import MOST_BYTES, find_coupling
from torchsonic.engine.call import Kept, Operands, Options
from torchsonic.engine.coupling import TorchCoupling, coupling_bytes
from torchsonic.engine.couplings import CouplingOf, Couplings
from torchsonic.engine.kernels import find_plan, order_of, prepared
from torchsonic.engine.plan import Plan
from torchsonic.engine.transform import analyse, analyse_adjoint, synthesise, synthesise_adjoint
from torchsonic.spectral.band import Band
from torchsonic.spectral.response import ModeShape
from torchsonic.spectral.spacing import refuse_impossible

__all__: list[str] = []

# Arguments of both operators: tensors first, then options, then their own.
NUM_TENSORS = len(Operands._fields)
NUM_GRADIENTS = NUM_TENSORS - 1
NUM_ARGUMENTS = NUM_TENSORS + len(Options._fields)


def _kept_shapes(x: Tensor, num_modes: int, options: Options) -> tuple[tuple, tuple]:
    """Sizes of the two kept tensors, which may be symbols."""
    batch, half = x.shape[0], options.order == "channels"
    band = options.boundary.band(tuple(x.shape[2:]), tuple(options.out_size), half=half).shape
    if half:
        return (batch, num_modes, 2, *band), (batch, x.shape[1], *band)
    return (batch, num_modes, *band), (batch, 2 * num_modes, *options.out_size)


def _whole(kept: list[Kept]) -> list[Tensor]:
    """What is kept of all samples."""
    return list(kept[0]) if len(kept) == 1 else [torch.cat(parts) for parts in zip(*kept, strict=True)]


def _parts(whole: Sequence[Tensor], plan: Plan, batch: int) -> list[Kept]:
    return [Kept(*[t[samples] for t in whole]) for samples in plan.sample_chunks(batch)]


def _couplings(operands: Operands, options: Options, plan: Plan) -> CouplingOf:
    """Couplings for an output without gradient: one made in an earlier call if the same is needed again."""
    num_modes, dtype = operands.mix_in.shape[0], operands.x.dtype
    large = coupling_bytes(num_modes, plan.band, dtype) > MOST_BYTES
    # Elsewhere looking at values would make the host wait; with chunks of modes memory matters more than time.
    if operands.x.device.type != "cpu" or options.mode_chunk or large or not operands.shared:
        return Couplings(operands, options, plan)
    shape, spacing = operands.shape, operands.spacing
    coupling = find_coupling(
        [t for t in (*shape, spacing) if t is not None],
        (plan.band, options.symmetry, options.limits, dtype),
        lambda: TorchCoupling(shape, spacing, plan.band, options.symmetry, options.limits),
    )
    return lambda samples, modes: coupling


# The schema of an operator is read from plain annotations, so its arguments cannot be grouped.
@torch.library.custom_op("torchsonic::spectral_conv", mutates_args=())
def _spectral_conv(
    x: Tensor, mix_in: Tensor, mix_out: Tensor,
    direction: Tensor, scale: Tensor, damping: Tensor, oscillation: Tensor, transverse: Tensor, gain: Tensor,
    cutoff: Tensor | None, bias: Tensor | None, spacing: Tensor,
    out_size: Sequence[int], padding_mode: str, padding: Sequence[int], order: str, mode_chunk: int, symmetry: str,
    band_order: int, magnitude_limit: float, soft_limit: bool, keep: bool, reuse: bool,
) -> tuple[Tensor, list[Tensor]]:  # fmt: skip
    operands = Operands(
        x, mix_in, mix_out, direction, scale, damping, oscillation, transverse, gain, cutoff, bias, spacing
    )  # fmt: skip
    options = Options(
        tuple(out_size), padding_mode, tuple(padding), order, mode_chunk, symmetry,  # type: ignore[arg-type]
        band_order, magnitude_limit, soft_limit,
    )  # fmt: skip
    if spacing.device.type == "cpu":  # elsewhere the host would have to wait
        refuse_impossible(spacing)
    plan = find_plan(operands, options)
    with prepared(operands, options, training=not reuse, keep=keep):
        couplings = _couplings(operands, options, plan) if reuse else Couplings(operands, options, plan)
        y, kept = order_of(plan).forward(x, mix_in, mix_out, bias, couplings, options.boundary, plan, keep=keep)
    if not keep:
        return y, []
    return y, _whole(kept) if kept else _empty_kept(x, mix_in.shape[0], options)


def _empty_kept(x: Tensor, num_modes: int, options: Options) -> list[Tensor]:
    coefficients, other = _kept_shapes(x, num_modes, options)
    spectral = x.dtype.to_complex()
    kind = spectral if options.order == "channels" else x.dtype
    return [x.new_empty(coefficients, dtype=spectral), x.new_empty(other, dtype=kind)]


@_spectral_conv.register_fake
def _(*arguments):
    operands, options = Operands(*arguments[:NUM_TENSORS]), Options(*arguments[NUM_TENSORS:NUM_ARGUMENTS])
    x, keep = operands.x, arguments[NUM_ARGUMENTS]
    y = x.new_empty(x.shape[0], operands.mix_out.shape[0], *options.out_size)
    return y, _empty_kept(x, operands.mix_in.shape[0], options) if keep else []


@torch.library.custom_op("torchsonic::spectral_conv_backward", mutates_args=())
def _spectral_conv_backward(
    grad_y: Tensor, kept: Sequence[Tensor],
    x: Tensor, mix_in: Tensor, mix_out: Tensor,
    direction: Tensor, scale: Tensor, damping: Tensor, oscillation: Tensor, transverse: Tensor, gain: Tensor,
    cutoff: Tensor | None, bias: Tensor | None, spacing: Tensor,
    out_size: Sequence[int], padding_mode: str, padding: Sequence[int], order: str, mode_chunk: int, symmetry: str,
    band_order: int, magnitude_limit: float, soft_limit: bool, needs: Sequence[bool],
) -> list[Tensor]:  # fmt: skip
    operands = Operands(
        x, mix_in, mix_out, direction, scale, damping, oscillation, transverse, gain, cutoff, bias, spacing
    )  # fmt: skip
    options = Options(
        tuple(out_size), padding_mode, tuple(padding), order, mode_chunk, symmetry,  # type: ignore[arg-type]
        band_order, magnitude_limit, soft_limit,
    )  # fmt: skip
    plan = find_plan(operands, options)
    parts = _parts(kept, plan, x.shape[0]) if kept else []
    with prepared(operands, options, training=True, keep=bool(kept), kept=kept):
        grads = kernels.backward(grad_y, operands, options, plan, parts, needs)
    found = dict(zip(Operands._fields[:NUM_GRADIENTS], grads, strict=False))
    # Those of the responses are parts of one tensor, which a custom operator may not return.
    return [
        grad_y.new_empty(0) if g is None else g.clone() if name in ModeShape._fields else g for name, g in found.items()
    ]


@_spectral_conv_backward.register_fake
def _(grad_y, kept, *arguments):
    operands, needs = Operands(*arguments[:NUM_TENSORS]), arguments[NUM_ARGUMENTS]
    grads = [grad_y.new_empty(0 if t is None else t.shape) for t in operands[: NUM_GRADIENTS - 1]]
    grads.append(grad_y.new_empty(grad_y.shape[1]))
    for index in (0, NUM_GRADIENTS - 1):  # x and bias
        grads[index] = grads[index] if needs[index] else grad_y.new_empty(0)
    return grads


def _setup_context(ctx, inputs, output) -> None:
    ctx.save_for_backward(*inputs[:NUM_TENSORS], *output[1])
    ctx.options = inputs[NUM_TENSORS:NUM_ARGUMENTS]


def _backward(ctx, grad_y, _grad_kept):
    saved = ctx.saved_tensors
    operands, kept = saved[:NUM_TENSORS], list(saved[NUM_TENSORS:])
    needs = list(ctx.needs_input_grad[:NUM_GRADIENTS])
    grads = torch.ops.torchsonic.spectral_conv_backward(grad_y, kept, *operands, *ctx.options, needs)
    found = [g if needed else None for g, needed in zip(grads, needs, strict=True)]
    return *found, None, *[None] * (len(Options._fields) + 2)  # keep and reuse too


_spectral_conv.register_autograd(_backward, setup_context=_setup_context)


# Where the two signs of a Nyquist frequency meet depends on whether sizes are odd or even; traced, that would make a
# graph for each combination. The operator is linear, so its gradient is its adjoint.
@torch.library.custom_op("torchsonic::resample", mutates_args=())
def _resample(x: Tensor, size: Sequence[int]) -> Tensor:
    if x.numel() == 0:  # no library transforms nothing
        return x.new_empty(*x.shape[:2], *size)
    band = Band(tuple(x.shape[2:]), tuple(size))
    return synthesise(analyse(x, band), band, tuple(size))


@_resample.register_fake
def _(x, size):
    return x.new_empty(*x.shape[:2], *size)


@torch.library.custom_op("torchsonic::resample_adjoint", mutates_args=())
def _resample_adjoint(grad: Tensor, size: Sequence[int]) -> Tensor:
    if grad.numel() == 0:
        return grad.new_empty(*grad.shape[:2], *size)
    band = Band(tuple(size), tuple(grad.shape[2:]))
    return analyse_adjoint(synthesise_adjoint(grad, band), band, tuple(size)) / math.prod(size)


@_resample_adjoint.register_fake
def _(grad, size):
    return grad.new_empty(*grad.shape[:2], *size)


def _keep_size(ctx, inputs, output) -> None:
    ctx.size = list(inputs[0].shape[2:])


_resample.register_autograd(
    lambda ctx, grad: (torch.ops.torchsonic.resample_adjoint(grad, ctx.size), None), setup_context=_keep_size
)
_resample_adjoint.register_autograd(
    lambda ctx, grad: (torch.ops.torchsonic.resample(grad, ctx.size), None), setup_context=_keep_size
)
