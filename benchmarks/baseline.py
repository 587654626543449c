"""A run against the stored results of an earlier one on the same processor, by ratios within each run.

Processors differ in how fast they transform, multiply and convolve, so that even ratios mean nothing across them.
"""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks.entries import NOT_KEPT, PAGES
from benchmarks.goals import Record, speed_up, step_over_floor

__all__ = ["FORMAT", "SLOWER", "compare_with_stored", "read_stored"]

FORMAT = 2
SLOWER = 1.10
"""Change of a ratio above which there is a warning."""


def read_stored(path: Path) -> dict | None:
    """An earlier result in any format, or ``None`` where there is no such file."""
    if not path.is_file():
        return None
    try:
        stored = json.loads(path.read_text())
    except ValueError:
        stored = None
    if not isinstance(stored, dict) or stored.get("kind") != "operator":
        raise ValueError(f"{path} is no result of torchsonic bench operator")
    return stored


def _over_conv3(record: Record, pages: str) -> float | None:
    ratio = speed_up(record, "conv3", "train_step", pages)
    return None if ratio is None else 1 / ratio


QUANTITIES = {"step / 3x3 convolution": _over_conv3, "step / floor": step_over_floor}


def compare_with_stored(records: list[Record], stored: dict, run: dict) -> dict:
    """Compare all sizes that both have, if both ran on one kind of processor.

    Parameters
    ----------
    run
        Provenance of the records.

    Returns
    -------
    dict
        ``run`` (provenance of the stored results), ``same_processor``, and ``rows`` of ``entry``, ``pages``,
        ``quantity``, ``stored``, ``measured`` and ``change``, which is above 1 where Sonic became slower.
    """
    if any(stored["run"].get(name) != run[name] for name in ("cpu", "device")):
        return {"run": stored["run"], "same_processor": False, "rows": []}
    before = {record["name"]: record for record in stored["entries"]}
    if stored.get("format") != FORMAT:  # earlier results knew one kind of process
        before = {name: {**record, "times": {NOT_KEPT: record["times"]}} for name, record in before.items()}
    rows = []
    for record in records:
        for pages in PAGES:
            for quantity, ratio in QUANTITIES.items():
                old, new = ratio(before.get(record["name"], {"times": {}}), pages), ratio(record, pages)
                if old is not None and new is not None:
                    found = {"stored": old, "measured": new, "change": new / old}
                    rows.append({"entry": record["name"], "pages": pages, "quantity": quantity, **found})
    return {"run": stored["run"], "same_processor": True, "rows": rows}
