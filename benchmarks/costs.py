"""Every operation of a training step with the bytes it moves and the flops it does, on a CPU or on a fake CUDA device.

``python -m benchmarks.fake_cuda benchmarks.costs SIZE ..`` prints them as JSON for the device that computes nothing.
"""

from __future__ import annotations

import json
import sys
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.utils.flop_counter import flop_registry

from benchmarks.contenders import conv3, paper_order, sonic
from benchmarks.entries import Entry, select_entries
from benchmarks.fake_cuda import fake_copy, fake_cuda, run_on_fake_cuda
from benchmarks.operations import OperationCounter
from benchmarks.timing import training_step
from torchsonic.lab.metrics.cost import flop_formulas

__all__ = ["MODULES", "Cost", "attention_costs", "costs_on_cpu", "costs_on_fake_cuda"]

MODULES = {"sonic": sonic, "paper_order": paper_order, "conv3": conv3}
# Of a kernel at one pair of coefficients: two poles, two signs at a Nyquist frequency, some sixty or 150 flops each.
KERNEL_FLOPS = {"couple": 240, "couple_adjoint": 600}
HEAD = 32  # channels of a head of attention


class Cost(NamedTuple):
    """One operation."""

    name: str
    bytes: float
    flops: float


class _CostCounter(OperationCounter):
    def __init__(self) -> None:
        super().__init__()
        self.costs: list[Cost] = []
        self._formulas = {**flop_registry, **flop_formulas()}

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        counted, moved = self.operations.total(), self.bytes
        result = super().__torch_dispatch__(func, types, args, kwargs)
        name = func.overloadpacket.__name__
        if self.operations.total() == counted + 1 and self.operations[name]:
            self.costs.append(Cost(name, self.bytes - moved, self._flops(func, args, kwargs or {}, result)))
        return result

    def _flops(self, func: Any, args: tuple, kwargs: dict, result: Any) -> float:
        name, formula = func.overloadpacket.__name__, self._formulas.get(func.overloadpacket)
        if name in KERNEL_FLOPS:
            return KERNEL_FLOPS[name] * args[0].numel() / 4
        if formula is not None:
            return formula(*args, **kwargs, out_val=result)
        outputs = [t for t in (result if isinstance(result, tuple) else (result,)) if isinstance(t, torch.Tensor)]
        return sum(t.numel() for t in outputs)


def _count(module: nn.Module, entry: Entry, device: str) -> list[Cost]:
    x = torch.empty(entry.shape, device=device, requires_grad=True)
    grad_y = torch.empty(entry.shape, device=device)
    training_step(module, x, grad_y)  # fills caches
    with torch.autograd.set_multithreading_enabled(False), _CostCounter() as counter:
        training_step(module, x, grad_y)
    return counter.costs


def costs_on_cpu(name: str, entry: Entry) -> list[Cost]:
    """Operations of a step on a CPU, which really runs."""
    return _count(MODULES[name](entry), entry, "cpu")


def costs_on_fake_cuda(entries: list[Entry]) -> dict[str, dict[str, list[Cost]]]:
    """Operations on a CUDA device, by size and module."""
    done = run_on_fake_cuda("benchmarks.costs", *[entry.name for entry in entries])
    if done.returncode != 0:
        raise RuntimeError(f"counting on a fake CUDA device failed: {done.stderr[-500:]}")
    found = json.loads(done.stdout.splitlines()[-1])
    return {size: {name: [Cost(*cost) for cost in own] for name, own in rows.items()} for size, rows in found.items()}


def attention_costs(entry: Entry) -> list[Cost]:
    """Self-attention among all pixels, by formula; no matrix of pixels by pixels lies in memory.

    Three projections and one back are products with (C, C) matrices. Backward evaluates the attention once more.
    """
    values, pixels, tokens = 4 * entry.num_values, entry.batch * entry.num_samples, entry.num_samples
    product = 2 * pixels * entry.channels**2
    scores = 4 * pixels * tokens * entry.channels  # two products for each pair of pixels
    forward = [Cost("qkv", 4 * values, 3 * product), Cost("attention", 4 * values, scores)]
    forward.append(Cost("out", 2 * values, product))
    backward = [Cost("out_input", 2 * values, product), Cost("out_weight", 2 * values, product)]
    backward += [Cost("attention_backward", 8 * values, 2.5 * scores)]
    backward += [Cost(name, 4 * values, 3 * product) for name in ("qkv_input", "qkv_weight")]
    return forward + backward


def main(names: list[str]) -> None:
    entries = select_entries(names)
    modules = {(entry.name, name): make(entry) for entry in entries for name, make in MODULES.items()}
    found: dict[str, dict[str, list[Cost]]] = {entry.name: {} for entry in entries}
    with fake_cuda():
        for entry in entries:
            for name in MODULES:
                found[entry.name][name] = _count(fake_copy(modules[entry.name, name]), entry, "cuda")
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1:])
