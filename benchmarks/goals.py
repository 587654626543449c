"""Measured numbers against the goals, group by group, from the records of the operator benchmark."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from benchmarks.accuracy import ALLOWED_RATIO
from benchmarks.entries import GROUPS

__all__ = ["GOALS", "Goal", "floor_ratio", "geometric_mean", "saved_goal", "speed_up", "summarise"]

SAVED_GOAL = 1.05

Record = dict
Quantity = Callable[[Record], float | None]


def geometric_mean(values: list[float]) -> float:
    return math.exp(sum(map(math.log, values)) / len(values))


def _best(record: Record, contender: str, kind: str) -> float | None:
    timing = record["times"].get(contender, {}).get(kind)
    return None if timing is None else timing["best_s"]


def speed_up(record: Record, contender: str, kind: str) -> float | None:
    """How many times longer a contender takes than Sonic; ``None`` where it was not measured."""
    other, own = _best(record, contender, kind), _best(record, "sonic", kind)
    return None if other is None or own is None else other / own


def floor_ratio(record: Record, contender: str = "sonic", kind: str = "forward") -> float | None:
    """How many times longer a pass takes than the bare products and transforms."""
    own, floor = _best(record, contender, kind), _best(record, "floor", "forward")
    return None if own is None or floor is None else own / floor


def error_ratio(record: Record) -> float:
    """Sonic's error over that of the paper's order, in the worst kind of tensor."""
    accuracy = record["accuracy"]
    return max(error / accuracy["paper_order"][kind] for kind, error in accuracy["sonic"].items())


def saved_goal(record: Record, *, recompute: bool) -> float:
    """Bytes that may be kept for the backward pass, as a multiple of the input's."""
    return SAVED_GOAL if recompute else SAVED_GOAL + 4 * record["modes"] / record["channels"]


@dataclass(frozen=True)
class Goal:
    """A bound on a statistic of a quantity over a group; ``bound=None`` only reports it."""

    group: str
    title: str
    quantity: Quantity
    statistic: Literal["geometric mean", "least", "most"]
    bound: float | None
    at_least: bool = False

    def row(self, records: list[Record]) -> dict | None:
        values = [value for record in records if (value := self.quantity(record)) is not None]
        if not values:
            return None
        measured = {"geometric mean": geometric_mean, "least": min, "most": max}[self.statistic](values)
        met = None
        if self.bound is not None:
            met = measured >= self.bound if self.at_least else measured <= self.bound
        return {
            "group": self.group,
            "quantity": self.title,
            "statistic": self.statistic,
            "entries": f"{len(values)} of {len(GROUPS[self.group])}",
            "measured": measured,
            "goal": None if self.bound is None else f"{'>=' if self.at_least else '<='} {self.bound:g}",
            "met": met,
        }


def _goals(group: str, *, paper: float | None, conv: float | None, worst_conv: float | None, floor: float | None):
    step, mean = "forward + backward, times faster than", "geometric mean"
    return (
        Goal(group, f"{step} the paper's order", _step("paper_order"), mean, paper, at_least=True),
        Goal(group, f"{step} 3x3 convolution", _step("conv3"), mean, conv, at_least=True),
        Goal(group, f"{step} 3x3 convolution", _step("conv3"), "least", worst_conv, at_least=True),
        Goal(group, "forward (no_grad) over the floor", floor_ratio, mean, floor),
        Goal(group, "bytes saved / input, recompute", lambda r: r["saved"]["sonic_recompute"], "most", SAVED_GOAL),
        Goal(
            group,
            "bytes saved / input - 4M/C",
            lambda r: r["saved"]["sonic"] - 4 * r["modes"] / r["channels"],
            "most",
            SAVED_GOAL,
        ),
        Goal(group, "float32 error over that of the paper's order", error_ratio, "most", ALLOWED_RATIO),
    )


def _step(contender: str) -> Quantity:
    return lambda record: speed_up(record, contender, "train_step")


# M = C/2 in 3-D lies between the goals' two columns: times are reported without a goal.
GOALS: tuple[Goal, ...] = (
    *_goals("low-rank", paper=3.5, conv=4.0, worst_conv=1.0, floor=1.4),
    *_goals("equal", paper=1.3, conv=1.0, worst_conv=None, floor=1.6),
    *_goals("3d-wide", paper=None, conv=None, worst_conv=None, floor=None),
)


def summarise(records: list[Record]) -> list[dict]:
    """One row for each goal of each group that was measured."""
    rows = (goal.row([record for record in records if record["group"] == goal.group]) for goal in GOALS)
    return [row for row in rows if row is not None]
