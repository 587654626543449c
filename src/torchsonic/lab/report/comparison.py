"""What keeps the numbers of runs from being compared."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torchsonic.lab.report.runs import commit_of, count
from torchsonic.lab.runs.provenance import BUSY_LIMIT


@dataclass(frozen=True, kw_only=True)
class Compared:
    """A run, as far as it is compared with others."""

    name: str
    """The row or column that it counts towards."""
    settings: Mapping[str, Any]
    """What should be alike; the most telling first."""
    repeat: Hashable
    """What tells it from other runs of its name: seed, or fold and seed."""
    origin: Mapping[str, Any] = field(default_factory=dict)
    """Commit and machine, where these matter."""
    group: str = ""
    """Runs of different groups are not compared."""


def find_warnings(runs: Sequence[Compared], *, repeats: str = "seeds") -> list[str]:
    """Sentences on settings, repeats, commits and machines in which runs differ.

    Parameters
    ----------
    repeats
        What :attr:`Compared.repeat` is, in words.
    """
    found = []
    for group in dict.fromkeys(run.group for run in runs):
        members = [run for run in runs if run.group == group]
        texts = [*_settings(members), *_repeats(members, repeats)]
        found += [f"{group}: {text}" if group else text[0].upper() + text[1:] for text in texts]
    return found + _origins([run.origin for run in runs if run.origin])


def _by_name(runs: Sequence[Compared]) -> dict[str, list[Compared]]:
    names: dict[str, list[Compared]] = {}
    for run in runs:
        names.setdefault(run.name, []).append(run)
    return names


def _settings(runs: Sequence[Compared]) -> list[str]:
    found = []
    for setting in dict.fromkeys(setting for run in runs for setting in run.settings):
        if len({str(run.settings.get(setting)) for run in runs}) > 1:
            values = {
                name: join_values(run.settings.get(setting) for run in members)
                for name, members in _by_name(runs).items()
            }
            found.append(f"different settings, {setting.replace('_', ' ')}: {_by_value(values)}.")
    return found


def _repeats(runs: Sequence[Compared], words: str) -> list[str]:
    counts = {name: Counter(run.repeat for run in members) for name, members in _by_name(runs).items()}
    found = []
    if len({frozenset(seen) for seen in counts.values()}) > 1:
        sizes = {name: count(seen.total(), "run") for name, seen in counts.items()}
        found.append(f"unequal budgets, not the same {words} for all: {_by_value(sizes)}.")
    twice = [name for name, seen in counts.items() if max(seen.values()) > 1]
    if twice:
        found.append(f"the same {words} more than once, so the spread is too small: {', '.join(twice)}.")
    return found


def _origins(origins: Sequence[Mapping[str, Any]]) -> list[str]:
    found, total = [], len(origins)
    commits = {commit_of(origin) for origin in origins}
    commits |= {str(commit)[:10] for origin in origins for commit in origin.get("earlier_commits", ())}
    if len(commits) > 1:
        found.append(
            f"Mixed commits: the runs were made by {len(commits)} versions of the code, {join_values(commits)}."
        )
    dirty = sum(bool(origin.get("dirty")) for origin in origins)
    if dirty:
        found.append(
            f"Dirty trees: {dirty} of {total} runs were made with uncommitted changes, so their commit does not "
            "say what ran."
        )
    if len({str([origin.get(name) for name in ("cpu", "device", "threads")]) for origin in origins}) > 1:
        found.append("Mixed machines: devices or numbers of threads differ, so do not compare times.")
    busy = sum(_is_busy(origin.get("busy_cores")) for origin in origins)
    if busy:
        found.append(f"Busy machine: other work was going on when {busy} of {total} runs began; do not trust times.")
    return found


def _is_busy(cores: Any) -> bool:
    return isinstance(cores, int | float) and cores >= BUSY_LIMIT


def join_values(values: Iterable[Any]) -> str:
    """Different values, the smallest first."""
    found = {value if isinstance(value, int | float) else str(value) for value in values if value is not None}
    return ", ".join(map(str, sorted(found, key=lambda value: (isinstance(value, str), value)))) or "-"


def _by_value(values: Mapping[str, str]) -> str:
    """The names of each value."""
    names: dict[str, list[str]] = {}
    for name, value in values.items():
        names.setdefault(value, []).append(name)
    return "; ".join(f"{value} for {', '.join(members)}" for value, members in names.items())
