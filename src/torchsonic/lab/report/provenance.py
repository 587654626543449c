"""Numbers, and where they come from, as text of a document."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from torchsonic.lab.report.document import MINUS, NONE, Code, Text
from torchsonic.lab.runs.provenance import summary_line

__all__ = ["commit_of", "count", "decimal", "origin_text", "signed"]


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
