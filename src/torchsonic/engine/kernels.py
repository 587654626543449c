"""One call of the operator without autograd: its plan, its surroundings, its gradients."""

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
    """The plan of a call: a measured one if plans are measured, otherwise that of the cost model.

    Parameters
    ----------
    training, keep
        Whether a backward pass follows, and whether intermediate results are kept for it.
    """
    if not searching() or not just_numbers() or operands.x.shape[0] == 0:
        return plan_for(*operands.sizes, options)

    def run(order: str, sample_chunk: int) -> None:
        plan = plan_for(*operands.sizes, options._replace(order=order), sample_chunk)
        y, kept = order_of(plan).forward(*operands.mixing, Couplings(operands, options, plan), plan, keep=keep)
        if training:
            backward(y, operands, options, plan, kept, [True] * len(operands))

    x, *counts = operands.sizes
    where = (x.device.type, x.dtype, torch.get_num_threads(), torch.__version__, operands.shared, training, keep)
    key = " ".join(map(str, (tuple(x.shape), *counts, *options, *where)))
    forced = "channels" if options.symmetry == "half" else options.order
    found = measured_choice(key, x.shape[0], forced, run)
    if found is None:
        return plan_for(*operands.sizes, options)
    return plan_for(*operands.sizes, options._replace(order=found.order), found.sample_chunk)


def plan_for(x: Tensor, out_channels: int, num_modes: int, options: Options, sample_chunk: int | None = None) -> Plan:
    """The cost model's plan for a call on ``x (B, C, *size)``."""
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
    x: Tensor,
    out_channels: int,
    num_modes: int,
    options: Options,
    *,
    training: bool = False,
    keep: bool = False,
    kept: Sequence[Tensor] = (),
    per_sample: bool = False,
) -> Iterator[None]:
    """Run kernels without autocast, with freed memory kept, and give advice if memory runs out (:mod:`exhaustion`)."""
    if x.device.type == "cpu":
        keep_pages()
    sizes = (x.shape[0], x.shape[1], out_channels, num_modes, tuple(x.shape[2:]))
    with (
        without_autocast(x.device),
        advising(x, sizes, options, training=training, keep=keep, kept=kept, per_sample=per_sample),
    ):
        yield


def backward(
    grad_y: Tensor, operands: Operands, options: Options, plan: Plan, kept: Sequence[Kept], needs: Sequence[bool]
) -> Operands:
    """Gradients of all operands; ``None`` for the spacing, and for ``x`` and ``bias`` if not needed.

    ``needs`` says of each operand whether its gradient is needed.
    """
    wanted = dict(zip(Operands._fields, needs, strict=False))
    couplings = Couplings(operands, options, plan, differentiable=any(wanted[name] for name in ModeShape._fields))
    mixed = order_of(plan).backward(operands, grad_y.contiguous(), couplings, plan, kept, need_x=wanted["x"])
    grad_bias = grad_y.sum([d for d in range(grad_y.dim()) if d != 1]) if wanted["bias"] else None
    return Operands(*mixed, *couplings.gradients(), grad_bias, None)  # type: ignore[arg-type]
