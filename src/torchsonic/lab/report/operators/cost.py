"""What operators cost at several sizes: parameters, true FLOPs, and time and memory of a training step."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import nn

from torchsonic.lab.metrics import count_flops, count_parameters
from torchsonic.lab.metrics.memory import peak_bytes
from torchsonic.lab.report.operators.contenders import Contender

BATCH = 2


@dataclass(frozen=True)
class Cost:
    """One operator at one size."""

    size: int
    parameters: int
    flops: int
    """Of a forward pass over one image."""
    seconds: float
    """Of a training step over ``BATCH`` images, the best of several."""
    bytes: int
    """Peak of that step above what is held before it."""


def _training_step(layer: nn.Module, x: torch.Tensor) -> Callable[[], None]:
    def step() -> None:
        layer.zero_grad(set_to_none=True)
        layer(x).square().mean().backward()

    return step


def measure_costs(contenders: Sequence[Contender], size: int, *, channels: int, rounds: int) -> dict[str, Cost]:
    """Costs by name; steps are timed in turns, so that what slows the machine down hits all alike."""
    torch.manual_seed(0)
    x = torch.randn(BATCH, channels, size, size)
    layers = {contender.name: contender.build(channels, size).train() for contender in contenders}
    steps = {name: _training_step(layer, x) for name, layer in layers.items()}
    best = dict.fromkeys(steps, float("inf"))
    for number in range(rounds + 1):
        for name, step in steps.items():
            start = time.perf_counter()
            step()
            if number > 0:  # the first fills caches
                best[name] = min(best[name], time.perf_counter() - start)
    for layer in layers.values():
        layer.zero_grad(set_to_none=True)  # or the profiler sees memory freed that it never saw taken
    return {
        name: Cost(
            size=size,
            parameters=count_parameters(layer),
            flops=count_flops(layer, x[:1]),
            seconds=best[name],
            bytes=peak_bytes(steps[name], x.device),
        )
        for name, layer in layers.items()
    }
