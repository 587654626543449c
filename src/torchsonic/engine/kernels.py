"""One call of the operator, outside autograd: find its plan, run it forward and backward, and advise if memory ends."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import ModuleType

import torch
from torch import Tensor

from torchsonic.engine import channels_order, modes_order
from torchsonic.engine.call import Kept, Operands, Options, without_autocast
from torchsonic.engine.couplings import Couplings
from torchsonic.engine.exhaustion import advising
from torchsonic.engine.pages import keep_pages
from torchsonic.engine.plan import Plan, make_plan
from torchsonic.engine.search import measured_choice, searching
from torchsonic.spectral.response import ModeShape
from torchsonic.spectral.tracing import just_numbers

__all__ = ["backward", "find_plan", "order_of", "plan_for", "prepared"]


def order_of(plan: Plan) -> ModuleType:
    """The module with ``forward`` and ``backward`` of the plan's order."""
    return channels_order if plan.band.half else modes_order


def find_plan(operands: Operands, options: Options, *, training: bool = False, keep: bool = False) -> Plan:
    """The plan of a call: a measured one, if plans are measured, or what the model of the cost says.

    What is measured keeps for the backward pass no more than the call itself: memory may be short.
    """
    x, sizes = operands.x, (operands.mix_out.shape[0], operands.mix_in.shape[0])
    if not searching() or not just_numbers() or x.shape[0] == 0:
        return plan_for(x, *sizes, options)

    def run(order: str, sample_chunk: int) -> None:
        plan = plan_for(x, *sizes, options._replace(order=order), sample_chunk)
        given = (x, operands.mix_in, operands.mix_out, operands.bias, Couplings(operands, options, plan))
        y, kept = order_of(plan).forward(*given, options.boundary, plan, keep=keep)
        if training:
            backward(y, operands, options, plan, kept, [True] * len(operands))

    where = (x.device.type, x.dtype, torch.get_num_threads(), torch.__version__, operands.shared, training)
    where += ("recompute",) if training and not keep else ()
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


def backward(
    grad_y: Tensor, operands: Operands, options: Options, plan: Plan, kept: Sequence[Kept], needs: Sequence[bool]
) -> Operands:
    """Gradients of all operands (``None`` for the spacing, and for ``x`` and ``bias`` if they are not needed).

    ``needs`` has one answer for each operand.
    """
    wanted = dict(zip(Operands._fields, needs, strict=False))
    couplings = Couplings(operands, options, plan, differentiable=any(wanted[name] for name in ModeShape._fields))
    mixed = order_of(plan).backward(
        operands, grad_y.contiguous(), couplings, options.boundary, plan, kept, need_x=wanted["x"]
    )
    grad_bias = grad_y.sum([d for d in range(grad_y.dim()) if d != 1]) if wanted["bias"] else None
    return Operands(*mixed, *couplings.gradients(), grad_bias, None)  # type: ignore[arg-type]
