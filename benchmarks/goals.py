"""Measured numbers against the goals, group by group, from the records of the operator benchmark."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from benchmarks.accuracy import ALLOWED_RATIO, geometric_mean
from benchmarks.contenders import TRAIN_STEP
from benchmarks.entries import BORDER, GROUPS, KEPT, NOT_KEPT, ORBIT, PAGES
from benchmarks.floor import FLOORS

__all__ = [
    "GOALS",
    "SPEED_GOALS",
    "Goal",
    "Record",
    "floor_goal",
    "floor_time",
    "over_floor",
    "saved_goal",
    "speed_up",
    "step_over_floor",
    "summarise",
]

# Times of a training step over Sonic's. M = C/2 in 3-D lies between the two columns of goals and has none.
SPEED_GOALS = {
    "low-rank": {("paper_order", KEPT): 2.2, ("paper_order", NOT_KEPT): 3.0, ("conv3", KEPT): 5.0},
    "equal": {("paper_order", KEPT): 1.05, ("conv3", KEPT): 0.95},
}
BORDER_GOALS = {"low-rank": 3.0}
FLOOR_GOAL, SMALL_FLOOR_GOAL, SMALL = 1.25, 1.4, 64
OPERATIONS_GOAL = 150
SAVED_GOAL = 1.05
ORBIT_GOAL = 1.3

Record = dict
Quantity = Callable[[Record], float | None]


def _best(record: Record, contender: str, kind: str, pages: str) -> float | None:
    timing = record["times"].get(pages, {}).get(contender, {}).get(kind)
    return None if timing is None else timing["best_s"]


def speed_up(record: Record, contender: str, kind: str, pages: str, *, own: str = "sonic") -> float | None:
    """How many times longer a contender takes than Sonic; ``None`` where it was not measured."""
    other, ours = _best(record, contender, kind, pages), _best(record, own, kind, pages)
    return None if other is None or ours is None else other / ours


def floor_time(record: Record, kind: str, pages: str) -> float | None:
    """Seconds of the bare products and transforms, by the faster of two ways."""
    return min((t for name in FLOORS if (t := _best(record, name, kind, pages)) is not None), default=None)


def over_floor(record: Record, contender: str, kind: str, pages: str) -> float | None:
    """How many times longer a pass takes than the bare products and transforms."""
    own, floor = _best(record, contender, kind, pages), floor_time(record, kind, pages)
    return None if own is None or floor is None else own / floor


def step_over_floor(record: Record, pages: str) -> float | None:
    return over_floor(record, "sonic", TRAIN_STEP, pages)


def floor_goal(record: Record) -> float:
    return SMALL_FLOOR_GOAL if min(record["size"]) < SMALL else FLOOR_GOAL


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


def _speed_goals(group: str) -> list[Goal]:
    goals = [
        Goal(
            group, f"step: times faster than {words}, pages {pages}", _step(name, pages), "geometric mean", bound, True
        )
        for name, words in (("paper_order", "paper's order"), ("conv3", "3x3 conv"))
        for pages in PAGES
        for bound in [SPEED_GOALS.get(group, {}).get((name, pages))]
    ]
    title = f"step with a border of {BORDER}: times faster than 3x3 conv, pages kept"
    border = _step("conv3", KEPT, own="sonic_border")
    return [*goals, Goal(group, title, border, "geometric mean", BORDER_GOALS.get(group), True)]


def _goals(group: str) -> list[Goal]:
    floors = ((f"{SMALL} px and more", FLOOR_GOAL), (f"below {SMALL} px", SMALL_FLOOR_GOAL))
    return [
        *_speed_goals(group),
        *[
            Goal(group, f"step / floor, {words}, pages kept", _floor_where(bound), "most", bound)
            for words, bound in floors
        ],
        Goal(group, f"step of orbits of {ORBIT} / step, pages kept", _step("sonic_orbit", KEPT), "most", ORBIT_GOAL),
        Goal(group, "operations of a 2-D step, one chunk", _operations, "most", OPERATIONS_GOAL),
        Goal(group, "saved bytes / input, recompute", lambda r: r["saved"]["sonic_recompute"], "most", SAVED_GOAL),
        Goal(group, "saved bytes / input - 4M/C", _saved_above_modes, "most", SAVED_GOAL),
        Goal(group, "float32 error / paper's order", error_ratio, "most", ALLOWED_RATIO),
    ]


def _step(contender: str, pages: str, *, own: str = "sonic") -> Quantity:
    return lambda record: speed_up(record, contender, TRAIN_STEP, pages, own=own)


def _floor_where(bound: float) -> Quantity:
    return lambda record: step_over_floor(record, KEPT) if floor_goal(record) == bound else None


def _operations(record: Record) -> float | None:
    if len(record["size"]) != 2:
        return None
    return sum(count["operations"] for count in record["operations_of_chunk"].values())


def _saved_above_modes(record: Record) -> float:
    return record["saved"]["sonic"] - 4 * record["modes"] / record["channels"]


GOALS = [goal for group in GROUPS for goal in _goals(group)]


def summarise(records: list[Record]) -> list[dict]:
    """One row for each goal of each group that was measured."""
    rows = (goal.row([record for record in records if record["group"] == goal.group]) for goal in GOALS)
    return [row for row in rows if row is not None]
