"""Measured numbers against the goals, group by group, from the records of the operator benchmark."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from benchmarks.accuracy import ALLOWED_RATIO, geometric_mean
from benchmarks.entries import GROUPS

__all__ = ["FLOOR_GOALS", "GOALS", "SPEED_GOALS", "Goal", "floor_ratio", "saved_goal", "speed_up", "summarise"]

# Times of a training step over Sonic's. M = C/2 in 3-D lies between the two columns of goals and has none.
SPEED_GOALS = {"low-rank": {"paper_order": 3.5, "conv3": 4.0}, "equal": {"paper_order": 1.3, "conv3": 1.0}}
WORST_GOALS = {"low-rank": 1.0}
FLOOR_GOALS = {"low-rank": 1.4, "equal": 1.6}
SAVED_GOAL = 1.05

Record = dict
Quantity = Callable[[Record], float | None]


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


def _goals(group: str) -> list[Goal]:
    speed = SPEED_GOALS.get(group, {})
    mean = "geometric mean"
    return [
        Goal(
            group, "step: times faster than paper's order", _step("paper_order"), mean, speed.get("paper_order"), True
        ),
        Goal(group, "step: times faster than 3x3 conv", _step("conv3"), mean, speed.get("conv3"), True),
        Goal(group, "step: times faster than 3x3 conv", _step("conv3"), "least", WORST_GOALS.get(group), True),
        Goal(group, "forward (no_grad) / floor", floor_ratio, mean, FLOOR_GOALS.get(group)),
        Goal(group, "saved bytes / input, recompute", lambda r: r["saved"]["sonic_recompute"], "most", SAVED_GOAL),
        Goal(group, "saved bytes / input - 4M/C", _saved_above_modes, "most", SAVED_GOAL),
        Goal(group, "float32 error / paper's order", error_ratio, "most", ALLOWED_RATIO),
    ]


def _saved_above_modes(record: Record) -> float:
    return record["saved"]["sonic"] - 4 * record["modes"] / record["channels"]


def _step(contender: str) -> Quantity:
    return lambda record: speed_up(record, contender, "train_step")


GOALS = [goal for group in GROUPS for goal in _goals(group)]


def summarise(records: list[Record]) -> list[dict]:
    """One row for each goal of each group that was measured."""
    rows = (goal.row([record for record in records if record["group"] == goal.group]) for goal in GOALS)
    return [row for row in rows if row is not None]
