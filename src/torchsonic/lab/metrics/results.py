"""Numbers in ``results.json``, where a missing one is ``None``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from statistics import fmean
from typing import Any


def find_value(results: Any, path: Iterable[Any]) -> float | None:
    """The number at the end of a path, or the mean of a list of numbers there; ``None`` if there is none.

    Steps are names of entries, and tables that choose a row of a list.

    Examples
    --------
    >>> find_value({"rows": [{"rate": 2, "told": [0.25, None, 0.75]}]}, ("rows", {"rate": 2}, "told"))
    0.5
    """
    for step in path:
        if isinstance(step, Mapping):
            results = next((row for row in results or () if all(row.get(k) == v for k, v in step.items())), None)
        else:
            results = results.get(step) if isinstance(results, Mapping) else None
    return mean_known(results) if isinstance(results, list) else results


def mean_known(values: Iterable[float | None]) -> float | None:
    """Mean of the numbers that are there; ``None`` if there are none."""
    known = [value for value in values if value is not None]
    return fmean(known) if known else None
