"""Everything that is measured about an operator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean

import torch

from torchsonic.lab.report.operators.contenders import CONTENDERS, Contender
from torchsonic.lab.report.operators.cost import Cost, measure_costs
from torchsonic.lab.report.operators.directions import directions, reach
from torchsonic.lab.report.operators.laws import LAWS, law_errors, takes_other_sizes


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
    """By the names of ``LAWS``; ``None`` where the operator has no way to be told."""
    selectivity: float
    diagonals: float
    reach: float
    """Pixels."""
    other_sizes: bool
    costs: tuple[Cost, ...]


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known else None


def measure_operators(
    budget: Budget, *, contenders: Sequence[Contender] = CONTENDERS, say: Callable[[str], None] = lambda text: None
) -> list[Measured]:
    """Measure operators one after another, and their costs in turns; ``say`` is told what comes next."""
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
                errors={law: _mean([found[law] for found in errors]) for law in LAWS},
                selectivity=fmean(found[0] for found in preferences),
                diagonals=fmean(found[1] for found in preferences),
                reach=fmean(reach(contender, seed=seed) for seed in seeds),
                other_sizes=takes_other_sizes(contender),
                costs=tuple(costs[size][contender.name] for size in budget.sizes),
            )
        )
    return measured
