"""Reads and describes finished runs for all reports, and warns about what makes them hard to compare."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from torchsonic.lab.report.document import MINUS, NONE, Code, Text
from torchsonic.lab.runs.folder import read_facts
from torchsonic.lab.runs.provenance import BUSY_LIMIT, summary_line

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)


def read_results(folder: Path, *names: str) -> dict[str, Any]:
    """``results.json`` of a finished run, which must hold some names."""
    return read_facts(folder / "results.json", *names)


def load_runs(folders: Sequence[Path], load: Callable[[Path], T], subject: str) -> list[T]:
    """What ``load`` reads from each folder; all are read before any is tested, which may take long.

    A folder that is named twice, or holds no finished run on the subject, is refused.
    """
    places = [folder.resolve() for folder in folders]
    twice = next((folder for number, folder in enumerate(folders) if places[number] in places[:number]), None)
    if twice is not None:
        raise ValueError(f"{twice} is named twice, and would count as two runs; name each run once")
    loaded = []
    for folder in folders:
        try:
            loaded.append(load(folder))
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise ValueError(f"{folder} contains no finished run on {subject}: {error}") from error
    return loaded


def group_by(items: Iterable[T], key: Callable[[T], K]) -> dict[K, list[T]]:
    """Items grouped by key, both in order of appearance.

    Examples
    --------
    >>> group_by([1, 2, 3], lambda number: number % 2)
    {1: [1, 3], 0: [2]}
    """
    groups: dict[K, list[T]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups


def origin_text(run: Mapping[str, Any], name: str = "") -> Text:
    """Command, commit, seed, date and machine of a run, after the name of what it made."""
    command = Code(run["command"])
    facts = summary_line(dict(run)).removeprefix(f"`{command.text}`")
    return (f"{name}: ", command, facts) if name else (command, facts)


def commit_of(run: Mapping[str, Any]) -> str:
    """The commit in short."""
    return str(run.get("commit") or "unknown")[:10]


def count(number: int, noun: str) -> str:
    """A number and its noun, in the plural if needed.

    Examples
    --------
    >>> count(1, "run"), count(2, "run")
    ('1 run', '2 runs')
    """
    return f"{number} {noun}{'' if number == 1 else 's'}"


def decimal(value: float | None, digits: int = 3) -> str:
    """A number with the given digits after the point, or the text of an empty cell."""
    return NONE if value is None or math.isnan(value) else f"{value:.{digits}f}"


def signed(value: float, digits: int = 3, *, zero: str = "") -> str:
    """A difference with its sign, which is ``zero`` if it rounds to 0."""
    text = f"{abs(value):.{digits}f}"
    return (zero if float(text) == 0 else "+" if value > 0 else MINUS) + text


@dataclass(frozen=True, kw_only=True)
class Compared:
    """What is compared of a run."""

    name: str
    """The row or column that it counts towards."""
    settings: Mapping[str, Any]
    """Settings that should be equal; the most important first."""
    repeat: Hashable
    """What distinguishes it from other runs of its name: seed, or fold and seed."""
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
        found.append(f"unequal budgets, {words} differ between models: {_by_value(sizes)}.")
    twice = [name for name, seen in counts.items() if max(seen.values()) > 1]
    if twice:
        found.append(f"repeated {words}, so the spread is too small: {', '.join(twice)}.")
    return found


def _origins(origins: Sequence[Mapping[str, Any]]) -> list[str]:
    found, total = [], len(origins)
    commits = {commit_of(origin) for origin in origins}
    commits |= {str(commit)[:10] for origin in origins for commit in origin.get("earlier_commits", ())}
    if len(commits) > 1:
        found.append(
            f"Mixed commits: the runs were made with {len(commits)} versions of the code, {join_values(commits)}."
        )
    dirty = sum(bool(origin.get("dirty")) for origin in origins)
    if dirty:
        found.append(
            f"Uncommitted changes: {dirty} of {total} runs were made with uncommitted changes, so the commit does not "
            "identify their code."
        )
    if len({str([origin.get(name) for name in ("cpu", "device", "threads")]) for origin in origins}) > 1:
        found.append("Mixed machines: devices or thread counts differ, so times cannot be compared.")
    busy = sum(_is_busy(origin.get("busy_cores")) for origin in origins)
    if busy:
        found.append(
            f"Busy machine: other programs were running when {busy} of {total} runs started, so times are unreliable."
        )
    return found


def _is_busy(cores: Any) -> bool:
    return isinstance(cores, int | float) and cores >= BUSY_LIMIT


def join_values(values: Iterable[Any]) -> str:
    """Distinct values, in ascending order."""
    found = {value if isinstance(value, int | float) else str(value) for value in values if value is not None}
    return ", ".join(map(str, sorted(found, key=lambda value: (isinstance(value, str), value)))) or "-"


def _by_value(values: Mapping[str, str]) -> str:
    """The names of each value."""
    names: dict[str, list[str]] = {}
    for name, value in values.items():
        names.setdefault(value, []).append(name)
    return "; ".join(f"{value} for {', '.join(members)}" for value, members in names.items())
