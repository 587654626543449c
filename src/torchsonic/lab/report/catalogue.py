"""The table of models: the cost of each, compared with the paper."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torchsonic.lab.metrics.paper import PaperCost
from torchsonic.lab.report.document import Table
from torchsonic.lab.report.markdown import table_to_markdown

BEGIN, END = "<!-- table of models: begin -->", "<!-- table of models: end -->"
HEADERS = ("model", "task", "input", "parameters, M", "paper", "GFLOPs", "paper")
NOTES = (
    "GFLOPs are for a forward pass of one image in evaluation mode. A multiply-add counts as 2. Fourier transforms "
    "(5 N log2 N, half of that if real) and complex multiplications are counted; norms and activations are not.",
    "(a) Twice the paper's GMACs, which match an image of 32 x 32 pixels.",
)


@dataclass(frozen=True)
class CatalogueRow:
    """One model; ``flops`` is ``None`` if not counted."""

    name: str
    task: str
    input_size: tuple[int, ...]
    parameters: int
    flops: int | None
    paper: PaperCost


def catalogue_table(rows: Sequence[CatalogueRow]) -> Table:
    """A row for each model, and what is counted."""
    cells = [_cells(row) for row in rows]
    notes = NOTES if any("(a)" in line[-1] for line in cells) else NOTES[:1]
    return Table("Models", HEADERS, cells, notes, left=3)


def _cells(row: CatalogueRow) -> list[str]:
    gflops = (row.flops or 0) / 1e9
    from_macs = row.task == "segmentation" and row.paper.gflops is not None
    return [
        row.name,
        row.task,
        " x ".join(map(str, row.input_size)),
        f"{row.parameters / 1e6:.3f}",
        _printed(row.paper.params_millions),
        "-" if row.flops is None else f"{gflops:.{3 if gflops < 1 else 2 if gflops < 1000 else 0}f}",
        _printed(row.paper.gflops) + (" (a)" if from_macs else ""),
    ]


def _printed(value: float | None) -> str:
    return "-" if value is None else f"{value:g}"


def marked_table(rows: Sequence[CatalogueRow], command: str) -> str:
    """The table as Markdown, with the command that made it, between the marks that :func:`put_table` looks for."""
    return "\n\n".join([BEGIN, f"Made by `{command}`.", table_to_markdown(catalogue_table(rows)), END])


def put_table(text: str, table: str) -> str:
    """Put a table made by :func:`marked_table` into a text in place of the one it holds; the rest stays as it is."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the text has no place for the table, between {BEGIN} and {END}")
    return before + table + after
