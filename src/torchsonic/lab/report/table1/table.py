"""Table 1: our numbers, each beside the paper's and never mixed with it."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from torchsonic.lab.metrics.paper import paper_cost, paper_results
from torchsonic.lab.report.table1.collect import TASKS, Column, Test
from torchsonic.lab.runs.protocols import OWN

FOCUS = "SonicNet"


@dataclass(frozen=True)
class Estimate:
    """Mean and standard deviation (of a sample, n - 1) over runs; one run has no spread."""

    mean: float
    spread: float | None
    count: int


@dataclass(frozen=True)
class Pair:
    """Our number and the paper's, either of which may be missing."""

    ours: Estimate | None = None
    paper: float | None = None

    @property
    def difference(self) -> float | None:
        """Ours less the paper's."""
        return None if self.ours is None or self.paper is None else self.ours.mean - self.paper


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    group: str
    label: str
    kind: str
    """``dice`` or the name of a cost."""
    test: Test | None
    cells: tuple[Pair, ...]


@dataclass(frozen=True)
class Table1:
    """Rows in the paper's order over columns in the paper's order."""

    columns: tuple[Column, ...]
    rows: tuple[Row, ...]

    def perturbed(self, task: str) -> list[Row]:
        """The rows of a task under perturbation, which the paper ranks models by."""
        tests = {(test, level) for test, level in _paper_tests() if test != "halligalli"}
        rows = [row for row in self.rows if row.group == f"{TASKS[task]}: Dice"]
        return [row for row in rows if row.test and not row.test[2] and row.test[:2] in tests]


COSTS = {
    "parameters": ("parameters, millions", 1e-6, "params_millions"),
    "flops": ("GFLOPs per image", 1e-9, "gflops"),
    "seconds": ("training time, s", 1.0, ""),
    "samples_per_second": ("training speed, samples/s", 1.0, ""),
}
"""Label of a cost, its scale, and where the paper says it."""


def estimate(values: Iterable[float]) -> Estimate | None:
    """Mean and spread of some numbers; ``None`` of none.

    Examples
    --------
    >>> estimate([1.0, 2.0, 3.0])
    Estimate(mean=2.0, spread=1.0, count=3)
    """
    found = list(values)
    if not found:
        return None
    return Estimate(statistics.fmean(found), statistics.stdev(found) if len(found) > 1 else None, len(found))


def _paper_tests() -> dict[tuple[str, float], dict[str, float]]:
    """The paper's Dice by test and level, then model, in its order."""
    rows = paper_results()["synthshape_halligalli"]["rows"]
    return {(row["test"], float(row["level"])): row["values"] for row in rows if row["level"] is not None}


def make_table(columns: Sequence[Column]) -> Table1:
    """The table of some columns; tests that no run has are left out."""
    rows = []
    for task, title in TASKS.items():
        if any(column.of(task) for column in columns):
            rows += [_score_row(columns, task, title, test) for test in _tests(columns, task)]
            rows += [_cost_row(columns, task, title, kind) for kind in COSTS]
    return Table1(tuple(columns), tuple(rows))


def _tests(columns: Sequence[Column], task: str) -> list[Test]:
    """All tests of a task: the clean one, the paper's in its order, those given the spacing, then the others."""
    found = {test for column in columns for run in column.of(task) for test in run.scores}
    order = {(name, level, False): place for place, (name, level) in enumerate(_paper_tests())}
    clean = ("clean", 0.0, False)
    return sorted(found, key=lambda test: (test != clean, test[2], order.get(test, len(order)), test))


def _score_row(columns: Sequence[Column], task: str, title: str, test: Test) -> Row:
    name, level, told = test
    paper = {} if told else _paper_tests().get((name, level), {})
    if task == "halligalli":
        label = f"noise {level:g}" if level else "clean"
        label += "" if name == "halligalli" else f", {name}"
    else:
        label = name if name == "clean" else f"{name} {level:g}{', given the spacing' if told else ''}"
    cells = [
        Pair(estimate(run.scores[test] for run in column.of(task) if test in run.scores), paper.get(column.paper or ""))
        for column in columns
    ]
    return Row(f"{title}: Dice", label, "dice", test, tuple(cells))


def _cost_row(columns: Sequence[Column], task: str, title: str, kind: str) -> Row:
    label, scale, number = COSTS[kind]

    def pair(column: Column) -> Pair:
        ours = estimate(scale * run.costs[kind] for run in column.of(task) if kind in run.costs)
        # The paper counts SynthShape's networks only, and does not time them.
        cost = None if task == "halligalli" else paper_cost(column.paper, "segmentation", 2)
        return Pair(ours, getattr(cost, number, None))

    return Row(f"{title}: cost", label, kind, None, tuple(map(pair, columns)))


def rank_lines(table: Table1) -> list[str]:
    """In how many rows under perturbation SonicNet is first or second, in our runs and in the paper, by protocol.

    Only the paper's models in their default form are compared; equal scores share the better place.
    """
    found = {TASKS[task]: _rank(table.columns, table.perturbed(task)) for task in ("synthshape", "released")}
    return [line if title == OWN.title else f"{title}: {line}" for title, line in found.items() if line]


def _rank(columns: Sequence[Column], perturbed: Sequence[Row]) -> str | None:
    known = [
        place
        for place, column in enumerate(columns)
        if column.paper and column.is_default and any(row.cells[place].ours for row in perturbed)
    ]
    names = [columns[place].paper for place in known]
    if FOCUS not in names or len(names) < 2:
        return None

    def count(score: Callable[[Pair], float | None]) -> tuple[int, int, int]:
        places = []
        for row in perturbed:
            scores = {columns[place].paper: score(row.cells[place]) for place in known}
            own = scores.get(FOCUS)
            if own is not None:
                places.append(sum(other is not None and other > own for other in scores.values()))
        return places.count(0), places.count(1), len(places)

    first, second, total = count(lambda cell: cell.ours.mean if cell.ours else None)
    if len(names) == 2:  # one is always first or second
        other = next(name for name in names if name != FOCUS)
        theirs, _, of_theirs = count(lambda cell: cell.paper)
        return (
            f"{FOCUS} is level with or ahead of {other} in {first} of {total} rows under perturbation. "
            f"In the paper, this holds in {theirs} of {of_theirs}."
        )
    line = (
        f"{FOCUS} is first or second in {first + second} of {total} rows under perturbation "
        f"(first in {first}, second in {second}) among {len(names)} models: {', '.join(map(str, names))}."
    )
    first, second, total = count(lambda cell: cell.paper)
    return f"{line} In the paper, among the same models, this holds in {first + second} of {total}."
