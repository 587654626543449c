"""The operator against its rivals: time, accuracy, operations, and bytes saved for the backward pass."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch

from benchmarks.baseline import FORMAT, compare_with_stored
from benchmarks.entries import KEPT, NOT_KEPT, Entry, group_of
from benchmarks.goals import summarise
from benchmarks.operator_entry import Settings, measure_apart
from benchmarks.progress import progress_bar
from benchmarks.startup import measure_startup
from torchsonic.functional import keep_all_pages
from torchsonic.lab.runs.provenance import describe_run

__all__ = ["ENTRY_BUDGET", "QUICK_BUDGET", "run_operator_bench"]

ENTRY_BUDGET, QUICK_BUDGET = 30.0, 8.0
STARTS = 3


def run_operator_bench(
    entries: Sequence[Entry],
    *,
    repeats: int = 7,
    seed: int = 0,
    device: str = "cpu",
    budget: float = ENTRY_BUDGET,
    stored: dict | None = None,
) -> dict:
    """Measure all contenders at all entries, each in a fresh process that keeps freed pages and in one that does not.

    Parameters
    ----------
    budget
        Seconds of timing for one process, beyond which slow contenders get fewer samples.
    stored
        An earlier result to compare with.

    Returns
    -------
    dict
        ``run`` (provenance), ``entries`` (a record each), ``summary`` (rows against the goals), ``startup`` (seconds)
        and ``baseline`` (changes since the stored result, or ``None``); see ``report``.
    """
    where = torch.device(device)
    run = describe_run(seed=seed, device=where)
    pages = _kinds_of_pages(where)
    common = {"repeats": repeats, "seed": seed, "device": device, "budget": budget, "threads": run["threads"]}
    with progress_bar("operator", sum(_weight(entry) for entry in entries)) as part:
        startup = measure_startup(min(repeats, STARTS))
        records = [_measure_entry(entry, pages, common, part(entry.name, _weight(entry))) for entry in entries]
    return {
        "kind": "operator",
        "format": FORMAT,
        "run": run,
        "repeats": repeats,
        "entries": records,
        "summary": summarise(records),
        "startup": startup,
        "baseline": None if stored is None else compare_with_stored(records, stored, run),
    }


def _kinds_of_pages(device: torch.device) -> tuple[str, ...]:
    """An accelerator's allocator always keeps what is freed; a C library other than glibc never can be told to."""
    if device.type != "cpu":
        return (KEPT,)
    return (NOT_KEPT, KEPT) if keep_all_pages() else (NOT_KEPT,)


def _weight(entry: Entry) -> float:
    # Small sizes are measured as often, and processes take their time to start.
    return 4e7 + entry.num_values * math.sqrt(entry.channels)


def _measure_entry(entry: Entry, pages: Sequence[str], common: dict, advance: Callable[[float], None]) -> dict:
    found = {
        kind: measure_apart(
            entry,
            Settings(pages=kind, details=kind == pages[-1], **common),
            lambda fraction: advance(fraction / len(pages)),
        )
        for kind in pages
    }
    last = found[pages[-1]]
    return {
        "name": entry.name,
        "group": group_of(entry),
        "batch": entry.batch,
        "channels": entry.channels,
        "modes": entry.modes,
        "size": list(entry.size),
        **last,
        "times": {kind: measured["times"] for kind, measured in found.items()},
    }
