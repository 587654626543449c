"""Where numbers come from, as text of a document."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torchsonic.lab.report.document import Code, Text
from torchsonic.lab.runs.provenance import summary_line

__all__ = ["commit_of", "count", "origin_text"]


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
