"""With what each column was obtained, and what makes columns hard to compare."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields
from typing import Any

from torchsonic.lab.report.table1.collect import TASKS, Column, Run
from torchsonic.lab.runs.provenance import BUSY_LIMIT
from torchsonic.lab.training import TrainingConfig
from torchsonic.lab.training.loop import MAY_CHANGE

__all__ = ["BUDGET_HEADERS", "budget_rows", "find_warnings"]

BUDGET_HEADERS = ("task", "model", "steps", "batch", "test samples", "runs", "seeds", "folds", "commit", "threads")
DEFAULTS = {option.name: option.default for option in fields(TrainingConfig)}
# What does not change a result, or differs between runs on purpose.
FREE = {"seed", *MAY_CHANGE}


def budget_rows(columns: Sequence[Column]) -> list[list[str]]:
    """One row for each task and column, in the order of :data:`BUDGET_HEADERS`."""
    return [
        [
            title,
            column.name,
            _join(run.training["steps"] for run in runs),
            _join(run.training["batch"] for run in runs),
            _join(run.config.get("test_samples") for run in runs),
            str(len(runs)),
            _join(run.training.get("seed") for run in runs),
            _join(run.fold for run in runs) if task == "synthshape" else "-",
            _join(commit_of(run) for run in runs),
            _join(run.origin.get("threads") for run in runs),
        ]
        for task, title in TASKS.items()
        for column in columns
        if (runs := column.of(task))
    ]


def commit_of(run: Run) -> str:
    """The commit in short, and whether the tree had other changes."""
    return str(run.origin.get("commit") or "unknown")[:10] + (" (dirty)" if run.origin.get("dirty") else "")


def _join(values: Iterable[Any]) -> str:
    """Different values, the smallest first."""
    found = {value if isinstance(value, int | float) else str(value) for value in values if value is not None}
    return ", ".join(map(str, sorted(found, key=lambda value: (isinstance(value, str), value)))) or "-"


def find_warnings(columns: Sequence[Column]) -> list[str]:
    """Sentences on what does not let columns be compared."""
    found = []
    for task, title in TASKS.items():
        here = [(column.name, column.of(task)) for column in columns if column.of(task)]
        if here:
            found += [f"{title}: {text}" for text in _unequal(here)]
    runs = [run for column in columns for run in column.runs]
    commits = {str(run.origin.get("commit") or "unknown")[:10] for run in runs}
    if len(commits) > 1:
        found.append(f"Mixed commits: the runs were made by {len(commits)} versions of the code, {_join(commits)}.")
    dirty = sum(bool(run.origin.get("dirty")) for run in runs)
    if dirty:
        found.append(
            f"Dirty trees: {dirty} of {len(runs)} runs were made with uncommitted changes, so their commit does not "
            "say what ran."
        )
    machines = {str([run.origin.get(name) for name in ("cpu", "device", "threads")]) for run in runs}
    if len(machines) > 1:
        found.append("Mixed machines: devices or numbers of threads differ, so do not compare times.")
    busy = sum(_is_busy(run.origin.get("busy_cores")) for run in runs)
    if busy:
        found.append(
            f"Busy machine: other work was going on when {busy} of {len(runs)} runs began; do not trust times."
        )
    return found


def _by_value(pairs: Iterable[tuple[str, str]]) -> str:
    """The columns of each value."""
    groups: dict[str, list[str]] = {}
    for value, column in pairs:
        groups.setdefault(value, []).append(column)
    return "; ".join(f"{value} for {', '.join(columns)}" for value, columns in groups.items())


def _is_busy(cores: Any) -> bool:
    return isinstance(cores, int | float) and cores >= BUSY_LIMIT


def _unequal(here: Sequence[tuple[str, Sequence[Run]]]) -> list[str]:
    """Settings that differ between the columns of one task, or within a column."""
    runs = [run for _, members in here for run in members]
    settings: dict[str, Callable[[Run], Any]] = {"test_samples": lambda run: run.config.get("test_samples")}
    for name in sorted({name for run in runs for name in run.training} - FREE):
        # A setting that is younger than a run had its default's effect.
        settings[name] = lambda run, name=name: run.training.get(name, DEFAULTS.get(name))
    found = []
    for name in sorted(settings, key=lambda name: (name not in ("steps", "batch", "test_samples"), name)):
        if len({str(settings[name](run)) for run in runs}) > 1:
            listed = _by_value((_join(map(settings[name], members)), column) for column, members in here)
            found.append(f"unequal budgets, {name.replace('_', ' ')} differ: {listed}.")
    pairs = {name: Counter((run.fold, run.training.get("seed")) for run in members) for name, members in here}
    if len({frozenset(counts) for counts in pairs.values()}) > 1:
        listed = _by_value((f"{len(members)} run{'s' * (len(members) > 1)}", name) for name, members in here)
        found.append(f"unequal budgets, not the same seeds and folds for all: {listed}.")
    twice = [name for name, counts in pairs.items() if max(counts.values()) > 1]
    if twice:
        found.append(f"the same fold and seed more than once, so the spread is too small: {', '.join(twice)}.")
    return found
