"""The operator as a ``torch.library`` custom operator, for compilers and exporters.

They see one opaque node with known output shapes: no FFT to decompose, no complex code to generate. What the backward
pass needs travels as whole tensors, at most three, whatever the chunks.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from torchsonic.functional.kernels import kept_slots
from torchsonic.functional.pair import ModeShape
from torchsonic.functional.plan import Plan
from torchsonic.functional.spectral_conv import plan_for, run_backward, run_forward
from torchsonic.functional.spectrum import padded_sizes

__all__: list[str] = []

ROLES = ("spectrum", "coefficients", "signals")


def _kept_shapes(batch, in_channels, num_modes, size, out_size, padding_mode: str, order: str) -> dict[str, tuple]:
    """Shapes of the kept tensors by role; sizes may be symbols."""
    band = padded_sizes(size, out_size, padding_mode).shape  # type: ignore[arg-type]
    shapes = {"coefficients": (batch, num_modes, 2, *band)}
    if order.startswith("channels"):
        shapes["spectrum"] = (batch, in_channels, *band)
    if order.endswith("modes"):
        shapes["signals"] = (batch, num_modes, 2, *out_size)
    return {role: shapes[role] for role in ROLES if role in shapes}


def _complex_of(dtype: torch.dtype) -> torch.dtype:
    return torch.complex128 if dtype == torch.float64 else torch.complex64


def _empty_kept(x: Tensor, mix_in: Tensor, out_size, padding_mode: str, order: str) -> dict[str, Tensor]:
    shapes = _kept_shapes(
        x.shape[0], x.shape[1], mix_in.shape[0], tuple(x.shape[2:]), tuple(out_size), padding_mode, order
    )
    return {
        role: x.new_empty(shape, dtype=x.dtype if role == "signals" else _complex_of(x.dtype))
        for role, shape in shapes.items()
    }


def _slots(plan: Plan, x: Tensor, mix_in: Tensor):
    return kept_slots(plan, x.shape[0], mix_in.shape[0], x.device.type == "cpu")


@torch.library.custom_op("torchsonic::spectral_conv", mutates_args=())
def _spectral_conv(
    x: Tensor, mix_in: Tensor, mix_out: Tensor,
    direction: Tensor, scale: Tensor, damping: Tensor, oscillation: Tensor, transverse: Tensor, gain: Tensor,
    bias: Tensor | None, spacing: Tensor,
    out_size: Sequence[int], padding_mode: str, order: str, mode_chunk: int, symmetry: str, keep: bool,
) -> tuple[Tensor, list[Tensor]]:  # fmt: skip
    y, parts = run_forward(
        x, mix_in, mix_out, direction, scale, damping, oscillation, transverse, gain, bias, spacing,
        out_size, padding_mode, order, mode_chunk, symmetry, keep,
    )  # fmt: skip
    if not keep:
        return y, []
    whole = _empty_kept(x, mix_in, out_size, padding_mode, order)
    plan = plan_for(x, mix_in, mix_out, out_size, padding_mode, order, mode_chunk)
    for part, (role, samples, modes) in zip(parts, _slots(plan, x, mix_in), strict=True):
        whole[role][samples, modes] = part
    return y, list(whole.values())


@_spectral_conv.register_fake
def _(
    x, mix_in, mix_out, direction, scale, damping, oscillation, transverse, gain, bias, spacing,
    out_size, padding_mode, order, mode_chunk, symmetry, keep,
):  # fmt: skip
    y = x.new_empty(x.shape[0], mix_out.shape[0], *out_size)
    return y, list(_empty_kept(x, mix_in, out_size, padding_mode, order).values()) if keep else []


@torch.library.custom_op("torchsonic::spectral_conv_backward", mutates_args=())
def _spectral_conv_backward(
    grad_y: Tensor, x: Tensor, mix_in: Tensor, mix_out: Tensor,
    direction: Tensor, scale: Tensor, damping: Tensor, oscillation: Tensor, transverse: Tensor, gain: Tensor,
    spacing: Tensor, kept: Sequence[Tensor],
    out_size: Sequence[int], padding_mode: str, order: str, mode_chunk: int, symmetry: str,
) -> list[Tensor]:  # fmt: skip
    parts: list[Tensor] = []
    if kept:
        roles = _kept_shapes(1, 1, 1, tuple(x.shape[2:]), tuple(out_size), padding_mode, order)
        whole = dict(zip(roles, kept, strict=True))
        plan = plan_for(x, mix_in, mix_out, out_size, padding_mode, order, mode_chunk)
        parts = [whole[role][samples, modes] for role, samples, modes in _slots(plan, x, mix_in)]
    grads = run_backward(
        grad_y, x, mix_in, mix_out, direction, scale, damping, oscillation, transverse, gain, spacing, parts,
        out_size, padding_mode, order, mode_chunk, symmetry, True, True,
    )  # fmt: skip
    assert grads.x is not None
    assert grads.bias is not None
    return [grads.x, grads.mix_in, grads.mix_out, *grads.shape, grads.bias]


@_spectral_conv_backward.register_fake
def _(
    grad_y, x, mix_in, mix_out, direction, scale, damping, oscillation, transverse, gain, spacing, kept,
    out_size, padding_mode, order, mode_chunk, symmetry,
):  # fmt: skip
    inputs = (x, mix_in, mix_out, *ModeShape(direction, scale, damping, oscillation, transverse, gain))
    return [t.new_empty(t.shape) for t in inputs] + [grad_y.new_empty(grad_y.shape[1])]


def _setup_context(ctx, inputs, output) -> None:
    tensors, spacing = inputs[:9], inputs[10]
    ctx.save_for_backward(*tensors, spacing, *output[1])
    ctx.options, ctx.has_bias = inputs[11:16], inputs[9] is not None


def _backward(ctx, grad_y, _grad_kept):
    tensors = ctx.saved_tensors
    grads = torch.ops.torchsonic.spectral_conv_backward(grad_y, *tensors[:10], list(tensors[10:]), *ctx.options)
    bias = grads[9] if ctx.has_bias else None
    return *grads[:9], bias, None, *[None] * 6


_spectral_conv.register_autograd(_backward, setup_context=_setup_context)
