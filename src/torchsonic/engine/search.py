"""Plans measured on this machine: at the first use of a shape each candidate runs a few times, and the fastest is used.

The choice is remembered in the process and, if a file is given, on disk. Results do not depend on it beyond rounding.
By default (``"model"``) nothing is measured, and the same shape always has the same plan.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal, NamedTuple

import torch

from torchsonic.arguments import choice
from torchsonic.engine.plan import ORDERS, known_order
from torchsonic.io import write_json

__all__ = ["PlanSearch", "measured_choice", "plan_search", "remembered_plans", "restore_plans", "set_plan_search"]

PlanSearch = Literal["model", "measure"]
VARIABLE = "TORCHSONIC_PLAN_SEARCH"
RUNS = 3
"""Runs of each candidate; the fastest counts, so that the first, which fills caches, does not."""


class Choice(NamedTuple):
    order: str
    sample_chunk: int


_chosen: PlanSearch | None = None
_file: Path | None = None
_remembered: dict[str, Choice] = {}


def set_plan_search(name: PlanSearch, *, file: str | os.PathLike | None = None) -> None:
    """Choose how plans are found. A plan is the order of operations in a call, and its chunks.

    Parameters
    ----------
    name
        ``"model"`` uses a cost model, which always gives the same plan. ``"measure"`` times candidates at the first use
        of a shape, which takes about as long as twenty calls, and then uses the fastest. Layers in evaluation mode that
        reuse their responses always use the cost model. The environment variable ``TORCHSONIC_PLAN_SEARCH`` sets the
        default of a process.
    file
        File in which processes share measured plans. Plans already in the file are used at once. Its folder must exist.

    Examples
    --------
    >>> torchsonic.set_plan_search("model")
    >>> torchsonic.plan_search()
    'model'
    """
    global _chosen, _file
    choice(name, ("model", "measure"), "name")
    path = None if file is None else Path(file)
    if path is not None:
        if not path.parent.is_dir():
            raise FileNotFoundError(f"file {path} cannot be written: there is no folder {path.parent}")
        _remembered.update(_read(path))
    _chosen, _file = name, path


def plan_search() -> PlanSearch:
    """How plans are found; see :func:`set_plan_search`."""
    if _chosen is not None:
        return _chosen
    return choice(os.environ.get(VARIABLE) or "model", ("model", "measure"), VARIABLE)  # type: ignore[return-value]


def searching() -> bool:
    """Whether plans are or were measured."""
    return bool(_remembered) or plan_search() == "measure"


def remembered_plans() -> dict[str, list]:
    """All measured plans, ready for JSON. Checkpoints store them, so that a resumed run uses the same plans."""
    return {key: list(found) for key, found in _remembered.items()}


def restore_plans(plans: Mapping[str, list]) -> None:
    """Use plans measured earlier, whatever :func:`set_plan_search` was set to."""
    _remembered.update(_checked(plans))


def _checked(plans: Mapping[str, list]) -> dict[str, Choice]:
    found = {str(key): Choice(known_order(str(order)), int(chunk)) for key, (order, chunk) in plans.items()}
    for key, (order, chunk) in found.items():
        if order not in ORDERS or chunk < 1:
            raise ValueError(f"plan {key!r} has order {order!r} and chunks of {chunk} samples")
    return found


def measured_choice(key: str, batch: int, forced: str, run: Callable[[str, int], None]) -> Choice | None:
    """The remembered choice for a call, or a new one if plans are measured; ``None`` for the cost model's.

    Parameters
    ----------
    key
        Identifies the call.
    forced
        The requested order, or ``"auto"``.
    run
        Runs the call once with an order and a number of samples at a time.
    """
    if key in _remembered or plan_search() == "model":
        return _remembered.get(key)
    times: dict[Choice, float] = {}
    for order in ORDERS if forced == "auto" else (forced,):
        times[Choice(order, batch)] = _time(run, Choice(order, batch))
    best = min(times, key=times.__getitem__)
    while batch > 1:
        batch = (batch + 1) // 2
        times[Choice(best.order, batch)] = _time(run, Choice(best.order, batch))
    _remembered[key] = min(times, key=times.__getitem__)
    if _file is not None:
        write_json(_file, {**_read(_file), **remembered_plans()})  # others may have written meanwhile
    return _remembered[key]


def _time(run: Callable[[str, int], None], candidate: Choice) -> float:
    def seconds() -> float:
        start = time.perf_counter()
        run(*candidate)
        if torch.accelerator.is_available():
            torch.accelerator.synchronize()
        return time.perf_counter() - start

    return min(seconds() for _ in range(RUNS))


def _read(path: Path) -> dict[str, Choice]:
    if not path.exists():
        return {}
    try:
        return _checked(json.loads(path.read_text()))
    except (ValueError, TypeError, AttributeError) as error:
        raise ValueError(f"file {path} contains no plans ({error}); delete it, or name another") from error
