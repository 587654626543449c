"""One call of the operator without autograd: its plan, its surroundings, its gradients."""

from __future__ import annotations

import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import ModuleType

import torch
from torch import Tensor

from torchsonic.engine import channels_order, modes_order
from torchsonic.engine.call import Kept, Operands, Options, Step, without_autocast
from torchsonic.engine.couplings import Couplings
from torchsonic.engine.memory import is_exhaustion, keep_pages
from torchsonic.engine.plan import Plan, plan_step
from torchsonic.engine.search import measured_choice, searching
from torchsonic.spectral.response import ModeShape
from torchsonic.spectral.tracing import just_numbers

__all__ = ["backward", "find_plan", "order_of", "prepared"]


def order_of(plan: Plan) -> ModuleType:
    """The module with ``forward`` and ``backward`` of the plan's order."""
    return channels_order if plan.order == "channels" else modes_order


def find_plan(operands: Operands, step: Step) -> Plan:
    """The plan of a call: a measured one if plans are measured, otherwise that of the cost model."""
    if not searching() or not just_numbers() or step.batch == 0:
        return plan_step(step)
    options = step.options

    def planned(order: str, sample_chunk: int) -> Plan:
        return plan_step(step._replace(options=options._replace(order=order)), sample_chunk)

    def run(order: str, sample_chunk: int) -> None:
        plan = planned(order, sample_chunk)
        y, kept = order_of(plan).forward(operands.mixing, Couplings(operands, options, plan), plan, keep=step.keep)
        if step.training:
            backward(y, operands, options, plan, kept, [True] * len(operands))

    where = (step.device, step.dtype, torch.get_num_threads(), torch.__version__, operands.shared)
    how = (step.out_channels, step.num_modes, *options, *where, step.training, step.keep)
    key = " ".join(map(str, (tuple(operands.x.shape), *how)))
    forced = "channels" if options.symmetry == "half" else options.order
    found = measured_choice(key, step.batch, forced, run)
    return plan_step(step) if found is None else planned(*found)


@contextmanager
def prepared(x: Tensor, step: Step, kept: Sequence[Tensor] = ()) -> Iterator[None]:
    """Run kernels without autocast and with freed memory kept.

    If memory runs out, raise an error of the same class that says how much was needed and what would fit; ``kept``
    are tensors for the backward pass, which would not be needed then.
    """
    if step.device == "cpu":
        keep_pages()
    try:
        with without_autocast(x.device):
            yield
    except (RuntimeError, MemoryError) as error:
        if not is_exhaustion(error):
            raise
        traceback.clear_frames(error.__traceback__)  # the frames of the failed call still hold its tensors
        try:
            from torchsonic.engine.memory_estimate import advice  # it runs the operator itself

            text = advice(step, x.device, sum(t.nbytes for t in kept))
        except Exception:  # there may not even be memory for the advice, and imports then fail in many ways
            raise error from None
        raise type(error)(text) from error


def backward(
    grad_y: Tensor, operands: Operands, options: Options, plan: Plan, kept: Sequence[Kept], needs: Sequence[bool]
) -> Operands:
    """Gradients of all operands; ``None`` for the spacing, and for ``x`` and ``bias`` if not needed.

    ``needs`` says of each operand whether its gradient is needed.
    """
    wanted = dict(zip(Operands._fields, needs, strict=False))
    couplings = Couplings(operands, options, plan, differentiable=any(wanted[name] for name in ModeShape._fields))
    mixed = order_of(plan).backward(operands.mixing, grad_y.contiguous(), couplings, plan, kept, need_x=wanted["x"])
    grad_bias = grad_y.sum([d for d in range(grad_y.dim()) if d != 1]) if wanted["bias"] else None
    return Operands(*mixed, *couplings.gradients(), grad_bias, None)  # type: ignore[arg-type]
