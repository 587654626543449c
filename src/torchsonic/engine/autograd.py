"""One call of the operator, with its gradients.

The kernels serve eager mode as an autograd function, whose overhead is small, and compilers and exporters as a custom
operator (:mod:`torchsonic.engine.compiled`), which they treat as one node. Function transforms and second derivatives
run the plain definition.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from torchsonic.engine import compiled as compiled  # registers the custom operators
from torchsonic.engine import kernels
from torchsonic.engine.call import Kept, Operands, Options, known_order, run_plain, without_autocast
from torchsonic.engine.couplings import Couplings
from torchsonic.spectral.tracing import inside_function_transform

__all__ = ["convolve"]


def convolve(operands: Operands, options: Options, *, recompute: bool | None = None) -> Tensor:
    """Apply the operator: ``y (B, K, *out_size)``.

    Parameters
    ----------
    recompute
        Whether the backward pass computes intermediate results again instead of keeping them; ``None`` does so if there
        is a chunk of modes, whose purpose is to save memory.
    """
    needs_grad = torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in operands)
    keep = needs_grad and not (options.mode_chunk > 0 if recompute is None else recompute)
    if torch.compiler.is_compiling():
        return _compiled(operands, options, keep=keep, needs_grad=needs_grad)
    if inside_function_transform():
        return run_plain(operands, options)
    if needs_grad:
        return _SpectralConv.apply(options, keep, *operands)  # type: ignore[return-value]
    step = operands.step(options)
    with kernels.prepared(operands.x, step):
        plan = kernels.find_plan(operands, step)
        return kernels.order_of(plan).forward(operands.mixing, Couplings(operands, options, plan), plan)[0]


def _compiled(operands: Operands, options: Options, *, keep: bool, needs_grad: bool) -> Tensor:
    """The custom operator; sizes may be symbols here."""
    order = known_order(options.order)
    if options.symmetry == "half":
        order = "channels"
    elif order == "auto":
        # The one that transforms fewer signals: the grid, which the cost model needs, may be unknown.
        few_modes = 2 * operands.mix_in.shape[0] <= operands.x.shape[1] + operands.mix_out.shape[0]
        order = "modes" if few_modes else "channels"
    # Margins round up to a fast size, which no symbol expresses; kept tensors would tie the graph to it.
    keep = keep and options.padding_mode != "zeros" and len(options.padding) == 0
    # Autograd takes no empty list.
    given = options._replace(order=order, out_size=list(options.out_size), padding=list(options.padding) or [0])  # type: ignore[arg-type]
    return torch.ops.torchsonic.spectral_conv(*operands, *given, keep, not needs_grad)[0]


class _SpectralConv(torch.autograd.Function):
    @staticmethod
    def forward(ctx, options: Options, keep: bool, *tensors):  # type: ignore[override]
        operands = Operands(*tensors)
        step = operands.step(options, training=True, keep=keep)
        with kernels.prepared(operands.x, step):
            plan = kernels.find_plan(operands, step)
            # The couplings have no name here, so that they are freed if memory runs out.
            y, kept = kernels.order_of(plan).forward(
                operands.mixing, Couplings(operands, options, plan), plan, keep=keep
            )
        ctx.save_for_backward(*tensors, *[t for part in kept for t in part])
        ctx.step, ctx.plan = step, plan
        return y

    @staticmethod
    def backward(ctx, grad_y):  # type: ignore[override]
        saved = ctx.saved_tensors  # once: checkpointing recomputes them at the first look and refuses a second
        operands, saved = Operands(*saved[: len(Operands._fields)]), saved[len(Operands._fields) :]
        needs, options = ctx.needs_input_grad[2:], ctx.step.options
        if torch.is_grad_enabled():  # create_graph=True
            return None, None, *_differentiable_gradients(grad_y, operands, options, needs)
        kept = [Kept(*pair) for pair in zip(saved[::2], saved[1::2], strict=True)]
        with kernels.prepared(operands.x, ctx.step, saved):
            return None, None, *kernels.backward(grad_y, operands, options, ctx.plan, kept, needs)


def _differentiable_gradients(
    grad_y: Tensor, operands: Operands, options: Options, needs: Sequence[bool]
) -> list[Tensor | None]:
    # An operand may be computed from another, as a gain is from a direction: views keep their gradients apart.
    operands = operands.each(lambda t: t.view_as(t))
    inputs = [t for t, needed in zip(operands, needs, strict=True) if needed and t is not None]
    with without_autocast(grad_y.device):  # the derivatives of products, too
        y = run_plain(operands, options)
        grads = iter(torch.autograd.grad(y, inputs, grad_y, create_graph=True, materialize_grads=True))
    return [next(grads) if needed and t is not None else None for t, needed in zip(operands, needs, strict=True)]
