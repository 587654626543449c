"""The Sonic operator.

    y = Re{ C F^-1[ g_m T_m(w) F[B x]_m ] } + bias

One set of kernels serves eager mode (an autograd function, whose overhead is small) and compilers and exporters
(the custom operator ``torchsonic::spectral_conv``, which they take as a whole).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from torchsonic.functional import kernels
from torchsonic.functional.frequency import Spacing, as_spacing
from torchsonic.functional.pair import ModeShape, Responses, Symmetry, plain_pair
from torchsonic.functional.plan import Plan, make_plan, order_by_channels
from torchsonic.functional.spectrum import PaddingMode, analyse, synthesise
from torchsonic.functional.transfer import Modes

__all__ = ["sonic_conv", "spectral_conv"]


def sonic_conv(
    x: Tensor,
    modes: Modes,
    bias: Tensor | None = None,
    *,
    spacing: Spacing = 1.0,
    output_size: Sequence[int] | None = None,
    padding_mode: PaddingMode = "circular",
    order: str = "auto",
    mode_chunk: int | None = None,
    recompute: bool = False,
) -> Tensor:
    r"""Convolve with the global kernel that a few oriented modes define.

    .. math:: y = \operatorname{Re}\{ C\,\mathcal F^{-1}[\, g_m T_m(\omega)\,\mathcal F[B x]_m ]\} + \text{bias}

    Parameters
    ----------
    x
        Real samples, ``(B, C, N_1 .. N_D)``.
    modes
        Physical parameters, for example ``layer.modes()``.
    bias
        ``(K,)`` or ``None``.
    spacing
        Physical step of ``x``: a number, one per axis, or ``(B, D)``.
    output_size
        Samples of the output on the same extent; by default those of ``x``.
    padding_mode
        ``"circular"``, ``"zeros"`` or ``"reflect"``.
    order, mode_chunk
        See :mod:`torchsonic.functional.plan`.
    recompute
        Keep only ``x`` for the backward pass and compute the rest again.

    Returns
    -------
    Tensor
        ``(B, K, *output_size)``.

    Examples
    --------
    >>> layer = torchsonic.SonicConv2d(3, 5, 4)
    >>> x = torch.randn(2, 3, 16, 20)
    >>> torch.allclose(sonic_conv(x, layer.modes(), layer.bias), layer(x), atol=1e-5)
    True
    """
    shape = ModeShape(
        modes.direction[None],
        modes.scale[None],
        -modes.pole.real[None],
        modes.pole.imag[None],
        modes.transverse[None],
        modes.gain[None],
    )
    return spectral_conv(
        x,
        torch.stack([modes.mix_in.real, modes.mix_in.imag], dim=1),
        torch.stack([modes.mix_out.real, -modes.mix_out.imag], dim=2),
        shape,
        bias,
        spacing=as_spacing(spacing, x.dim() - 2, batch=x.shape[0], device=x.device),
        output_size=output_size,
        padding_mode=padding_mode,
        order=order,
        mode_chunk=mode_chunk,
        recompute=recompute,
    )


def spectral_conv(
    x: Tensor,
    mix_in: Tensor,
    mix_out: Tensor,
    shape: ModeShape,
    bias: Tensor | None = None,
    *,
    spacing: Tensor,
    output_size: Sequence[int] | None = None,
    padding_mode: PaddingMode = "circular",
    order: str = "auto",
    mode_chunk: int | None = None,
    recompute: bool = False,
    symmetry: Symmetry = "real",
) -> Tensor:
    """The operator on real parameters, as layers store them.

    Parameters
    ----------
    x
        ``(B, C, *size)``, float32 or float64.
    mix_in, mix_out
        ``(M, 2, C)`` with ``Re B, Im B`` and ``(K, M, 2)`` with ``Re C, -Im C``.
    shape
        Responses' parameters, shared (G = 1) or one set per sample.
    spacing
        ``(1, D)`` or ``(B, D)``.
    symmetry
        ``"real"`` is the exact operator, ``"half"`` the paper's use of the half spectrum.

    Returns
    -------
    Tensor
        ``(B, K, *output_size)``.
    """
    out_size = tuple(x.shape[2:]) if output_size is None else tuple(output_size)
    tensors = (x, mix_in, mix_out, *shape, bias, spacing)
    needs_grad = torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in tensors)
    keep = needs_grad and not recompute
    if torch.compiler.is_compiling():
        if order == "auto":  # sizes may be symbols here
            order = order_by_channels(x.shape[1], mix_out.shape[0], mix_in.shape[0])
        options = (list(out_size), padding_mode, order, mode_chunk or 0, symmetry)
        return torch.ops.torchsonic.spectral_conv(*tensors, *options, keep)[0]
    options = (out_size, padding_mode, order, mode_chunk or 0, symmetry)
    if _inside_function_transform():
        return spectral_conv_plain(*tensors, *options)
    if needs_grad:
        return _SpectralConv.apply(*tensors, *options, keep)
    return run_forward(*tensors, *options, False)[0]


def _inside_function_transform() -> bool:
    """Whether ``torch.func`` (grad, vmap, jvp) is tracing; it needs operations that it knows."""
    return torch._C._functorch.peek_interpreter_stack() is not None


def apply_responses(
    x: Tensor,
    mix_in: Tensor,
    mix_out: Tensor,
    responses: Responses,
    bias: Tensor | None,
    plan: Plan,
    symmetry: Symmetry = "real",
) -> Tensor:
    """The operator with responses ``(G, M, *band)`` computed before; no gradient."""

    def respond(samples: slice, modes: slice) -> Responses:
        return Responses(*[t[:, modes] if t.shape[0] == 1 else t[samples, modes] for t in responses])

    return kernels.forward(x.contiguous(), mix_in, mix_out, bias, respond, plan, symmetry)[0]


def plan_for(x: Tensor, mix_in: Tensor, mix_out: Tensor, out_size, padding_mode, order, mode_chunk) -> Plan:
    """The plan of a call, from its tensors."""
    return make_plan(
        x.shape[0],
        mix_in.shape[2],
        mix_out.shape[0],
        mix_in.shape[0],
        tuple(x.shape[2:]),
        tuple(out_size),
        padding=padding_mode,
        order=order,
        mode_chunk=mode_chunk or None,
        on_cpu=x.device.type == "cpu",
    )


def run_forward(
    x, mix_in, mix_out, direction, scale, damping, oscillation, transverse, gain, bias, spacing,
    out_size, padding_mode, order, mode_chunk, symmetry, keep,
) -> tuple[Tensor, list[Tensor]]:  # fmt: skip
    """The forward kernel from flat arguments."""
    plan = plan_for(x, mix_in, mix_out, out_size, padding_mode, order, mode_chunk)
    shape = ModeShape(direction, scale, damping, oscillation, transverse, gain)
    omega = plan.band.omega(spacing, dtype=x.dtype, both_signs=symmetry == "real")
    respond = kernels.respond_with(shape, omega, plan, symmetry)
    return kernels.forward(x.contiguous(), mix_in, mix_out, bias, respond, plan, symmetry, keep=keep)


def run_backward(
    grad_y, x, mix_in, mix_out, direction, scale, damping, oscillation, transverse, gain, spacing, kept,
    out_size, padding_mode, order, mode_chunk, symmetry, need_x, need_bias,
) -> kernels.Gradients:  # fmt: skip
    """The backward kernel from flat arguments."""
    plan = plan_for(x, mix_in, mix_out, out_size, padding_mode, order, mode_chunk)
    shape = ModeShape(direction, scale, damping, oscillation, transverse, gain)
    omega = plan.band.omega(spacing, dtype=x.dtype, both_signs=symmetry == "real")
    return kernels.backward(
        grad_y.contiguous(), x.contiguous(), mix_in, mix_out, shape, omega, plan, symmetry, kept,
        need_x=need_x, need_bias=need_bias,
    )  # fmt: skip


def spectral_conv_plain(
    x, mix_in, mix_out, direction, scale, damping, oscillation, transverse, gain, bias, spacing,
    out_size, padding_mode, order, mode_chunk, symmetry,
) -> Tensor:  # fmt: skip
    """The operator from ordinary differentiable operations: for higher derivatives and function transforms."""
    plan = plan_for(x, mix_in, mix_out, out_size, padding_mode, "modes-modes", mode_chunk)
    shape = ModeShape(direction, scale, damping, oscillation, transverse, gain)
    omega = plan.band.omega(spacing, dtype=x.dtype, both_signs=symmetry == "real")
    t1, t2 = plain_pair(omega, shape, plan.band, symmetry)
    z = analyse(torch.einsum("mrc,bc...->bmr...", mix_in, x), plan.band, padding_mode)
    p, q = z.unbind(2)
    w = torch.stack([t1 * p - t2 * q, t1 * q + t2 * p], dim=2)
    w = kernels.zero_imaginary(w, plan.band, symmetry)
    y = torch.einsum("kmr,bmr...->bk...", mix_out, synthesise(w, plan.band, plan.out_size))
    return y if bias is None else y + bias.reshape(-1, *[1] * (y.dim() - 2))


class _SpectralConv(torch.autograd.Function):
    @staticmethod
    def forward(ctx, *inputs):
        y, kept = run_forward(*inputs)
        tensors, bias, spacing = inputs[:9], inputs[9], inputs[10]
        ctx.save_for_backward(*tensors, bias, spacing, *kept)
        ctx.options = inputs[11:16]
        return y

    @staticmethod
    def backward(ctx, grad_y):
        x, *rest = ctx.saved_tensors
        parameters, bias, spacing, kept = rest[:8], rest[8], rest[9], rest[10:]
        if torch.is_grad_enabled():  # create_graph=True
            return *_plain_backward(ctx, grad_y, [x, *parameters, bias], spacing), None, *[None] * 6
        grads = run_backward(
            grad_y, x, *parameters, spacing, kept, *ctx.options, ctx.needs_input_grad[0], ctx.needs_input_grad[9]
        )
        return grads.x, grads.mix_in, grads.mix_out, *grads.shape, grads.bias, None, *[None] * 6


def _plain_backward(ctx, grad_y: Tensor, inputs: list[Tensor], spacing: Tensor) -> list[Tensor | None]:
    """Gradients that can be differentiated again."""
    wanted = [i for i in range(10) if ctx.needs_input_grad[i]]
    y = spectral_conv_plain(*inputs, spacing, *ctx.options)
    grads = torch.autograd.grad(y, [inputs[i] for i in wanted], grad_y, create_graph=True, allow_unused=True)
    found = dict(zip(wanted, grads, strict=True))
    return [found.get(i) for i in range(10)]
