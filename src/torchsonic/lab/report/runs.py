"""Finished runs, as every report reads them back: each folder named once, or refused with the reason."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from torchsonic.lab.runs.folder import read_facts

__all__ = ["group_by", "load_runs", "read_results"]

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)


def read_results(folder: Path, *names: str) -> dict[str, Any]:
    """``results.json`` of a finished run, which must hold some names."""
    return read_facts(folder / "results.json", *names)


def load_runs(folders: Sequence[Path], load: Callable[[Path], T], subject: str) -> list[T]:
    """What ``load`` reads from each folder, all of them before any is tested, which may take long.

    Parameters
    ----------
    subject
        What the runs are on, for errors.

    Raises
    ------
    ValueError
        If a folder is named twice, or holds no finished run.
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
