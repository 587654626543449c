"""The table of models: what each costs, beside what the paper says, for a console and for Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torchsonic.lab.metrics.paper import PaperCost

__all__ = ["BEGIN", "END", "HEADERS", "NOTES", "CatalogueRow", "put_table", "table_cells", "to_markdown"]

BEGIN, END = "<!-- table of models: begin -->", "<!-- table of models: end -->"
HEADERS = ("model", "task", "input", "parameters, M", "paper", "GFLOPs", "paper")
NOTES = (
    "GFLOPs of one forward pass of one image in evaluation, 2 for each multiply-add; Fourier transforms (5 N log2 N, "
    "half of that for real ones) and complex multiplications are counted, norms and activations are not.",
    "(a) Twice the paper's GMACs, which fit an image of 32 x 32 pixels.",
)


@dataclass(frozen=True)
class CatalogueRow:
    """One model; ``flops`` is ``None`` where nobody counted."""

    name: str
    task: str
    input_size: tuple[int, ...]
    parameters: int
    flops: int | None
    paper: PaperCost


def table_cells(row: CatalogueRow) -> list[str]:
    """The row as text, in the order of :data:`HEADERS`."""
    from_macs = row.task == "segmentation" and row.paper.gflops is not None
    return [
        row.name,
        row.task,
        " x ".join(map(str, row.input_size)),
        f"{row.parameters / 1e6:.3f}",
        _printed(row.paper.params_millions),
        "-" if row.flops is None else _rounded(row.flops / 1e9),
        _printed(row.paper.gflops) + (" (a)" if from_macs else ""),
    ]


def _printed(value: float | None) -> str:
    return "-" if value is None else f"{value:g}"


def _rounded(gflops: float) -> str:
    return f"{gflops:.3f}" if gflops < 1 else f"{gflops:.2f}" if gflops < 1000 else f"{gflops:.0f}"


def to_markdown(rows: Sequence[CatalogueRow], command: str) -> str:
    """The table, how it was made and what it counts, between the marks by which :func:`put_table` finds it again."""
    cells = [list(HEADERS), ["---"] * 3 + ["---:"] * (len(HEADERS) - 3), *[table_cells(row) for row in rows]]
    lines = [f"Made by `{command}`.", "", *[f"| {' | '.join(line)} |" for line in cells]]
    notes = [part for note in NOTES for part in ("", note)]
    return "\n".join([BEGIN, "", *lines, *notes, "", END])


def put_table(text: str, table: str) -> str:
    """Put a table made by :func:`to_markdown` into a text in place of the one it holds; the rest stays as it is."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the text has no place for the table, between {BEGIN} and {END}")
    return before + table + after
