"""The operator as ``torch.library`` custom operators, for compilers and exporters.

These see one opaque node with known output shapes, and need not decompose FFTs or generate complex code. What is kept
for the backward pass is passed on as two tensors, however samples and modes are chunked.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from torchsonic.engine import kernels
from torchsonic.engine.accelerator import transforms_pairs
from torchsonic.engine.cache import find_coupling
from torchsonic.engine.call import Kept, Operands, Options
from torchsonic.engine.coupling import TorchCoupling
from torchsonic.engine.couplings import CouplingOf, Couplings
from torchsonic.engine.kernels import find_plan, order_of, prepared
from torchsonic.engine.plan import Plan
from torchsonic.spectral.spacing import refuse_impossible

__all__: list[str] = []

# Arguments of both operators: tensors first, then options, then their own.
NUM_TENSORS = len(Operands._fields)
NUM_ARGUMENTS = NUM_TENSORS + len(Options._fields)
ARGUMENTS = (
    "Tensor x, Tensor mix_in, Tensor mix_out, Tensor direction, Tensor scale, Tensor damping, Tensor oscillation, "
    "Tensor transverse, Tensor gain, Tensor? cutoff, Tensor? bias, Tensor spacing, "
    "SymInt[] out_size, str padding_mode, SymInt[] padding, str order, SymInt mode_chunk, str symmetry, "
    "SymInt band_order, float magnitude_limit, bool soft_limit"
)


def _call(arguments: Sequence[Any]) -> tuple[Operands, Options]:
    """The tensors and options of a call; zeros stand for no padding."""
    options = Options(*arguments[NUM_TENSORS:NUM_ARGUMENTS])
    padding = tuple(n for n in options.padding if n)
    return Operands(*arguments[:NUM_TENSORS]), options._replace(out_size=tuple(options.out_size), padding=padding)


def _couplings(operands: Operands, options: Options, plan: Plan) -> CouplingOf:
    """Couplings for an output without gradient, kept from an earlier call with the same values if possible."""
    # On other devices the host would have to wait for the values. With chunks of modes, memory comes before time.
    if operands.x.device.type != "cpu" or options.mode_chunk or not operands.shared:
        return Couplings(operands, options, plan)
    shape, spacing = operands.shape, operands.spacing
    coupling = find_coupling(
        [t for t in (*shape, spacing) if t is not None],
        (plan.band, options.symmetry, options.limits, operands.x.dtype),
        lambda: TorchCoupling(shape, spacing, plan.band, options.symmetry, options.limits),
    )
    return lambda samples, modes: coupling


@torch.library.custom_op(
    "torchsonic::spectral_conv", mutates_args=(), schema=f"({ARGUMENTS}, bool keep, bool reuse) -> (Tensor, Tensor[])"
)
def _spectral_conv(*arguments):
    (operands, options), (keep, reuse) = _call(arguments), arguments[NUM_ARGUMENTS:]
    if operands.spacing.device.type == "cpu":  # elsewhere the host would have to wait
        refuse_impossible(operands.spacing)
    plan, step = find_plan(operands, operands.step(options)), operands.step(options, training=not reuse, keep=keep)
    with prepared(operands.x, step):
        couplings = _couplings(operands, options, plan) if reuse else Couplings(operands, options, plan)
        y, kept = order_of(plan).forward(operands.mixing, couplings, plan, keep=keep)
    if keep and not kept:  # of no samples
        return y, _empty_kept(operands, options)
    return y, list(kept[0]) if len(kept) == 1 else [torch.cat(parts) for parts in zip(*kept, strict=True)]


def _empty_kept(operands: Operands, options: Options) -> list[Tensor]:
    """The two kept tensors without their values; sizes may be symbols."""
    x, num_modes, channels_first = operands.x, operands.mix_in.shape[0], options.order == "channels"
    batch, channels, *size = x.shape
    half, spectral = channels_first or transforms_pairs(x.device.type), x.dtype.to_complex()
    band = options.boundary.band(tuple(size), options.out_size, half=half).shape
    coefficients = x.new_empty((batch, num_modes, *([2] if half else []), *band), dtype=spectral)
    if channels_first:
        return [coefficients, x.new_empty((batch, channels, *band), dtype=spectral)]
    return [coefficients, x.new_empty(batch, 2 * num_modes, *options.out_size)]


@_spectral_conv.register_fake
def _(*arguments):
    operands, options = _call(arguments)
    y = operands.x.new_empty(operands.x.shape[0], operands.mix_out.shape[0], *options.out_size)
    return y, _empty_kept(operands, options) if arguments[NUM_ARGUMENTS] else []


@torch.library.custom_op(
    "torchsonic::spectral_conv_backward",
    mutates_args=(),
    schema=f"(Tensor grad_y, Tensor[] kept, {ARGUMENTS}, bool[] needs) -> Tensor[]",
)
def _spectral_conv_backward(grad_y, kept, *arguments):
    operands, options = _call(arguments)
    needs = arguments[NUM_ARGUMENTS]
    plan = find_plan(operands, operands.step(options))
    chunks = plan.sample_chunks(operands.x.shape[0]) if kept else []
    parts = [Kept(*[t[samples] for t in kept]) for samples in chunks]
    with prepared(operands.x, operands.step(options, training=True, keep=bool(kept)), kept):
        grads = kernels.backward(grad_y, operands, options, plan, parts, needs)
    # Gradients of the responses are views of one tensor, which a custom operator must not return.
    grads = grads._replace(**{name: g.clone() for name, g in grads.shape._asdict().items() if g is not None})
    return [grad_y.new_empty(0) if g is None else g for g in grads[:-1]]


@_spectral_conv_backward.register_fake
def _(grad_y, kept, *arguments):
    operands, needs = Operands(*arguments[:NUM_TENSORS]), arguments[NUM_ARGUMENTS]
    wanted = operands._replace(x=operands.x if needs[0] else None, bias=operands.bias if needs[-1] else None)
    return [grad_y.new_empty(0 if t is None else t.shape) for t in wanted[:-1]]


def _setup_context(ctx, inputs, output) -> None:
    ctx.save_for_backward(*inputs[:NUM_TENSORS], *output[1])
    ctx.options = inputs[NUM_TENSORS:NUM_ARGUMENTS]


def _backward(ctx, grad_y, _grad_kept):
    saved = ctx.saved_tensors
    operands, kept = saved[:NUM_TENSORS], list(saved[NUM_TENSORS:])
    needs = list(ctx.needs_input_grad[: NUM_TENSORS - 1])  # all but the spacing
    grads = torch.ops.torchsonic.spectral_conv_backward(grad_y, kept, *operands, *ctx.options, needs)
    found = [g if needed else None for g, needed in zip(grads, needs, strict=True)]
    return *found, None, *[None] * (len(Options._fields) + 2)  # keep and reuse too


_spectral_conv.register_autograd(_backward, setup_context=_setup_context)
