"""Our numbers beside the paper's: the page in which every recipe ends."""

from __future__ import annotations

import json
import math
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from torchsonic.lab.report import Cell, Column, Document, Group, Section, Table, print_document, write_document
from torchsonic.lab.report.document import NONE
from torchsonic.lab.report.runs import origin_text
from torchsonic.lab.runs.provenance import describe_run

__all__ = ["Numbers", "beside_paper", "publish", "read_json"]

Numbers = Sequence[float | None]
SMOKE_WARNING = "A smoke test: a few small cases and steps. The numbers show that the chain works, and nothing else."
PARTIAL_WARNING = "Cases or images of the protocol are missing, so the numbers cannot be compared with the paper's."


def beside_paper(
    title: str,
    columns: Sequence[Column | str],
    rows: Sequence[tuple[str, Numbers, Numbers]],
    *,
    reported: Mapping[str, Numbers] | None = None,
    digits: int | Sequence[int] = 2,
    notes: Sequence[str] = (),
) -> Table:
    """A row for each network, the paper's number under ours.

    Parameters
    ----------
    rows
        Name, our numbers and the paper's; ``None`` where there is none.
    reported
        Rows that only the paper has, with its numbers.
    digits
        Behind the point, of all columns or of each.
    """
    places = [digits] * len(columns) if isinstance(digits, int) else list(digits)

    def cells(ours: Numbers, paper: Numbers) -> list[Cell]:
        shown = zip(ours, paper, places, strict=True)
        return [Cell(_text(own, place), _text(its, place, "paper ", "")) for own, its, place in shown]

    lines: list[Group | list[str | Cell]] = [[name, *cells(ours, paper)] for name, ours, paper in rows]
    if reported:
        lines.append(Group("Only in the paper, which quotes them"))
        for name, paper in reported.items():
            lines.append([name, *(_text(number, place) for number, place in zip(paper, places, strict=True))])
    return Table(title, ["network", *columns], lines, list(notes), note="paper")


def _text(value: float | None, digits: int, before: str = "", none: str = NONE) -> str:
    return none if value is None or math.isnan(value) else f"{before}{value:,.{digits}f}"


def publish(
    out: Path,
    *,
    title: str,
    protocol: str,
    sections: Sequence[Section],
    data: Mapping[str, Any],
    smoke: bool,
    partial: bool,
    warnings: Sequence[str] = (),
) -> None:
    """Write the page to ``out/report.html`` and print its tables."""
    recipe, words = Path(sys.argv[0]).stem, [word for word in sys.argv[1:] if word != "--page"]
    run = {
        **describe_run(seed=0, device=torch.device("cpu")),
        "command": f"python -m recipes.{recipe} {shlex.join(words)}",
    }
    found = [*([SMOKE_WARNING] if smoke else [PARTIAL_WARNING] if partial else []), *warnings]
    document = Document(
        title=title,
        about=protocol,
        sections=sections,
        warnings=found,
        origins=[origin_text(run)],
        data={**data, "run": run, "warnings": found},
    )
    print_document(document)
    print("written:", write_document(document, out)[0])


def read_json(path: Path) -> Any:
    """What a step wrote."""
    return json.loads(path.read_text(encoding="utf-8"))
