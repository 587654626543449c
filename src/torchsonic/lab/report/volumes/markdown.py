"""The report on volumes as Markdown, with the pictures beside it."""

from __future__ import annotations

from torchsonic.lab.report.table1.marks import as_code, as_list, as_table, as_text
from torchsonic.lab.report.volumes.results import Evaluation, compare, find_warnings
from torchsonic.lab.report.volumes.words import (
    Cell,
    about_line,
    case_rows,
    cost_headers,
    difference_rows,
    explanations,
    lesion_headers,
    lesion_rows,
    score_groups,
    score_rows,
    spacing_words,
)
from torchsonic.lab.runs.provenance import summary_line

__all__ = ["picture_name", "to_markdown"]


def picture_name(place: int, case: str) -> str:
    """File of a case's picture within the folder of the report; names of cases are names of files already."""
    return f"pictures/{place:03d}_{case}.webp"


def to_markdown(evaluation: Evaluation) -> str:
    """The whole report."""
    parts = [f"# {as_text(evaluation.title)}", as_text(about_line(evaluation))]
    warnings = find_warnings(evaluation)
    if warnings:
        parts += ["## Before comparing", as_list(map(as_text, warnings))]
    headers = [
        "",
        *[f"{group}, {measure}" for group in score_groups(evaluation) for measure in ("Dice", "NSD")],
        *cost_headers(evaluation),
    ]
    rows = [[as_text(name), *map(_cell, cells), *map(as_text, costs)] for name, cells, costs in score_rows(evaluation)]
    parts += ["## Scores", as_table(headers, rows, left=1, escaped=True)]
    parts += map(as_text, explanations(evaluation))
    differences = difference_rows(compare(evaluation.models))
    if differences:
        rows = [[as_text(name), *map(_cell, cells), count] for name, cells, count in differences]
        table = as_table(["difference of means", "Dice", "NSD", "cases"], rows, left=1, escaped=True)
        parts += ["## Differences", table]
    lesions = lesion_rows(evaluation)
    if lesions:
        rows = [[as_text(name), *map(_cell, cells)] for name, cells in lesions]
        parts += ["## Lesions", as_table(["", *lesion_headers()], rows, left=1, escaped=True)]
    rows = [[name, spacing, *words] for name, spacing, words in case_rows(evaluation)]
    headers = ["case", "spacing (D, H, W)", *[f"{model.name}, Dice" for model in evaluation.models]]
    parts += ["## Cases, the worst first", as_table(headers, rows, left=2)]
    for place, name in enumerate(evaluation.cases):
        if name in evaluation.pictures:
            parts += [f"### {as_text(name)}, {as_text(spacing_words(evaluation.spacings[name]))}"]
            parts += [f"![{as_text(name)}](<{picture_name(place, name)}>)"]
    parts += ["## Where the numbers come from", summary_line(dict(evaluation.run))]
    parts += [as_list(f"{as_text(model.name)}: {as_code(model.source)}" for model in evaluation.models)]
    if evaluation.skipped:
        left_out = (f"{as_code(name)}: {as_text(reason)}" for name, reason in evaluation.skipped)
        parts += [f"## Left out ({len(evaluation.skipped)})", as_list(left_out)]
    return "\n\n".join(parts) + "\n"


def _cell(cell: Cell) -> str:
    text = f"**{as_text(cell.text)}**" if cell.best else as_text(cell.text)
    return text + (f" ({as_text(cell.interval)})" if cell.interval else "")
