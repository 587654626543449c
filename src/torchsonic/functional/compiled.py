"""The operator as a ``torch.library`` custom operator, for compilers and exporters.

They see one opaque node with known output shapes: no FFT to decompose, no complex code to generate. What the backward
pass needs travels as whole tensors, at most three, whatever the chunks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from torchsonic.functional.call import Operands, Options, plan_of, run_backward, run_forward, run_reusing
from torchsonic.functional.kernels import kept_slots
from torchsonic.functional.spectrum import padded_sizes

__all__: list[str] = []

# Arguments of both operators: tensors first, then options, then their own.
NUM_TENSORS = len(Operands._fields)
NUM_GRADIENTS = NUM_TENSORS - 1
NUM_ARGUMENTS = NUM_TENSORS + len(Options._fields)


def _empty_kept(operands: Operands, options: Options) -> dict[str, Tensor]:
    """Kept tensors by role, not filled; sizes may be symbols."""
    x, num_modes, order = operands.x, operands.mix_in.shape[0], options.order
    band = padded_sizes(tuple(x.shape[2:]), tuple(options.out_size), options.padding_mode).shape
    shapes: dict[str, tuple] = {}
    if order.startswith("channels"):
        shapes["spectrum"] = (x.shape[0], x.shape[1], *band)
    shapes["coefficients"] = (x.shape[0], num_modes, 2, *band)
    if order.endswith("modes"):
        shapes["signals"] = (x.shape[0], num_modes, 2, *options.out_size)
    dtypes = {"signals": x.dtype}
    spectral = torch.complex128 if x.dtype == torch.float64 else torch.complex64
    return {role: x.new_empty(shape, dtype=dtypes.get(role, spectral)) for role, shape in shapes.items()}


def _slots(operands: Operands, options: Options) -> Iterator[tuple[str, slice, slice]]:
    x, num_modes = operands.x, operands.mix_in.shape[0]
    return kept_slots(plan_of(*operands[:3], options), x.shape[0], num_modes, x.device.type == "cpu")


# The schema of an operator is read from plain annotations, so its arguments cannot be grouped.
@torch.library.custom_op("torchsonic::spectral_conv", mutates_args=())
def _spectral_conv(
    x: Tensor, mix_in: Tensor, mix_out: Tensor,
    direction: Tensor, scale: Tensor, damping: Tensor, oscillation: Tensor, transverse: Tensor, gain: Tensor,
    cutoff: Tensor | None, bias: Tensor | None, spacing: Tensor,
    out_size: Sequence[int], padding_mode: str, order: str, mode_chunk: int, symmetry: str,
    band_order: int, magnitude_limit: float, soft_limit: bool, keep: bool, reuse: bool,
) -> tuple[Tensor, list[Tensor]]:  # fmt: skip
    operands = Operands(
        x, mix_in, mix_out, direction, scale, damping, oscillation, transverse, gain, cutoff, bias, spacing
    )  # fmt: skip
    options = Options(
        tuple(out_size), padding_mode, order, mode_chunk, symmetry,  # type: ignore[arg-type]
        band_order, magnitude_limit, soft_limit,
    )  # fmt: skip
    if reuse:
        return run_reusing(operands, options), []
    y, parts = run_forward(operands, options, training=True, keep=keep)
    if not keep:
        return y, []
    whole = _empty_kept(operands, options)
    for part, (role, samples, modes) in zip(parts, _slots(operands, options), strict=True):
        whole[role][samples, modes] = part
    return y, list(whole.values())


@_spectral_conv.register_fake
def _(*arguments):
    operands, options = Operands(*arguments[:NUM_TENSORS]), Options(*arguments[NUM_TENSORS:NUM_ARGUMENTS])
    keep = arguments[NUM_ARGUMENTS]
    y = operands.x.new_empty(operands.x.shape[0], operands.mix_out.shape[0], *options.out_size)
    return y, list(_empty_kept(operands, options).values()) if keep else []


@torch.library.custom_op("torchsonic::spectral_conv_backward", mutates_args=())
def _spectral_conv_backward(
    grad_y: Tensor, kept: Sequence[Tensor],
    x: Tensor, mix_in: Tensor, mix_out: Tensor,
    direction: Tensor, scale: Tensor, damping: Tensor, oscillation: Tensor, transverse: Tensor, gain: Tensor,
    cutoff: Tensor | None, bias: Tensor | None, spacing: Tensor,
    out_size: Sequence[int], padding_mode: str, order: str, mode_chunk: int, symmetry: str,
    band_order: int, magnitude_limit: float, soft_limit: bool, needs: Sequence[bool],
) -> list[Tensor]:  # fmt: skip
    operands = Operands(
        x, mix_in, mix_out, direction, scale, damping, oscillation, transverse, gain, cutoff, bias, spacing
    )  # fmt: skip
    options = Options(
        tuple(out_size), padding_mode, order, mode_chunk, symmetry,  # type: ignore[arg-type]
        band_order, magnitude_limit, soft_limit,
    )  # fmt: skip
    parts: list[Tensor] = []
    if kept:
        roles = _empty_kept(operands._replace(x=x[:0]), options)
        whole = dict(zip(roles, kept, strict=True))
        parts = [whole[role][samples, modes] for role, samples, modes in _slots(operands, options)]
    grads = run_backward(grad_y, operands, options, parts, needs)
    return [grad_y.new_empty(0) if g is None else g for g in grads]


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
