"""Settings that must lie in an interval."""

from __future__ import annotations

import math

WORDS = {
    "(0, inf)": "be positive and finite",
    "(0, inf]": "be positive",
    "[0, inf)": "not be negative, nor infinite",
    "[0, inf]": "not be negative",
}


def check_ranges(settings: object, interval: str, *names: str) -> None:
    """Refuse settings, or entries of them, outside an interval such as ``[0, 1)``; ``None`` is left open."""
    low, high = (float(end) for end in interval[1:-1].split(","))
    words = WORDS.get(interval, f"be at least {low:g}" if high == math.inf else f"be in {interval}")
    ends = [end for end, bracket in ((low, interval[0]), (high, interval[-1])) if bracket in "[]"]
    for name in names:
        given = getattr(settings, name)
        for value in given if isinstance(given, tuple) else (given,):
            if value is not None and not low < value < high and value not in ends:
                raise ValueError(f"{name} must {words}, got {given}")
