"""Finished runs as every report reads and describes them: each folder named once, or refused with the reason."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from torchsonic.lab.report.document import MINUS, NONE, Code, Text
from torchsonic.lab.runs.folder import read_facts
from torchsonic.lab.runs.provenance import summary_line

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)


def read_results(folder: Path, *names: str) -> dict[str, Any]:
    """``results.json`` of a finished run, which must hold some names."""
    return read_facts(folder / "results.json", *names)


def load_runs(folders: Sequence[Path], load: Callable[[Path], T], subject: str) -> list[T]:
    """What ``load`` reads from each folder, all of them before any is tested, which may take long.

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
            raise ValueError(f"{folder} holds no finished run on {subject}: {error}") from error
    return loaded


def group_by(items: Iterable[T], key: Callable[[T], K]) -> dict[K, list[T]]:
    """Items under what they have in common, both in the order in which they come.

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
    """A number and its noun, in the plural where there are several.

    Examples
    --------
    >>> count(1, "run"), count(2, "run")
    ('1 run', '2 runs')
    """
    return f"{number} {noun}{'' if number == 1 else 's'}"


def decimal(value: float | None, digits: int = 3) -> str:
    """A number with so many digits behind the point, or what a cell without a value shows."""
    return NONE if value is None or math.isnan(value) else f"{value:.{digits}f}"


def signed(value: float, digits: int = 3, *, zero: str = "") -> str:
    """A difference with its sign, which is ``zero`` for one that rounds to nothing."""
    text = f"{abs(value):.{digits}f}"
    return (zero if float(text) == 0 else "+" if value > 0 else MINUS) + text
