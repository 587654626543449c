"""Everything that is measured about an operator: laws, directions, field, and costs at several sizes."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean

import torch
from torch import nn

from torchsonic.lab.metrics import count_flops, count_parameters
from torchsonic.lab.metrics.cost import peak_bytes
from torchsonic.lab.metrics.results import mean_known
from torchsonic.lab.report.operators.contenders import CONTENDERS, Contender
from torchsonic.lab.report.operators.directions import directions, reach
from torchsonic.lab.report.operators.laws import LAWS, law_errors, takes_other_sizes

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
    """Costs by name; steps are interleaved, so that a slow machine affects all operators equally."""
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


@dataclass(frozen=True)
class Budget:
    """How much is measured."""

    sizes: tuple[int, ...] = (32, 64, 128)
    channels: int = 16
    rounds: int = 5
    seeds: int = 3

    @classmethod
    def quick(cls) -> Budget:
        """Under a minute on two cores."""
        return cls(sizes=(16, 32, 64), channels=8, rounds=2, seeds=1)


@dataclass(frozen=True)
class Measured:
    """One operator; errors, selectivities and reach are means over seeds."""

    contender: Contender
    errors: dict[str, float | None]
    """By the names of ``LAWS``; ``None`` where a law does not apply to the operator."""
    selectivity: float
    diagonals: float
    reach: float
    """Pixels."""
    other_sizes: bool
    costs: tuple[Cost, ...]


def measure_operators(
    budget: Budget, *, contenders: Sequence[Contender] = CONTENDERS, say: Callable[[str], None] = lambda text: None
) -> list[Measured]:
    """Measure operators one after another; ``say`` is called with the name of what comes next."""
    costs = {}
    for size in budget.sizes:
        say(f"costs at {size} px")
        costs[size] = measure_costs(contenders, size, channels=budget.channels, rounds=budget.rounds)
    measured = []
    for contender in contenders:
        say(contender.name)
        seeds = range(budget.seeds)
        with torch.no_grad():
            errors = [law_errors(contender, seed=seed) for seed in seeds]
            preferences = [directions(contender, seed=seed) for seed in seeds]
        measured.append(
            Measured(
                contender=contender,
                errors={law: mean_known([found[law] for found in errors]) for law in LAWS},
                selectivity=fmean(found[0] for found in preferences),
                diagonals=fmean(found[1] for found in preferences),
                reach=fmean(reach(contender, seed=seed) for seed in seeds),
                other_sizes=takes_other_sizes(contender),
                costs=tuple(costs[size][contender.name] for size in budget.sizes),
            )
        )
    return measured
