"""The page on operators: findings, the taxonomy, one table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from torchsonic.lab.report import Cell, Column, Document, Figure, Group, Items, Prose, Section, Table
from torchsonic.lab.report.document import NONE
from torchsonic.lab.report.files import to_png
from torchsonic.lab.report.operators.contenders import PLACES
from torchsonic.lab.report.operators.directions import FIELD
from torchsonic.lab.report.operators.figure import DIRECTED, OBLIQUE, SLIGHT, draw_taxonomy
from torchsonic.lab.report.operators.laws import CHANNELS, EXACT, LAWS, SIZE
from torchsonic.lab.report.operators.measure import BATCH, Budget, Measured
from torchsonic.lab.report.runs import origin_text
from torchsonic.lab.runs.provenance import activity_warning

CAPTION = (
    "Groups are those of the paper's figure on the taxonomy of operators; marks are measured on freshly drawn weights. "
    "'Told' means the spacing, or the operator's own directions turned with the image; 'cannot' means that no setting "
    "of its parameters says so."
)


def make_page(measured: Sequence[Measured], budget: Budget, run: Mapping[str, Any]) -> Document:
    """The page; ``run`` is where the numbers come from."""
    title = "Operators with a large field, sorted by the paper and measured here"
    warning = activity_warning(dict(run)).strip()
    return Document(
        title=title,
        about=f"{len(measured)} operators, {budget.seeds} draws of weights each; nothing is trained.",
        warnings=[warning] if warning else [],
        sections=[
            Section("Findings", [Prose(line, "finding") for line in findings(measured)]),
            Section("The taxonomy, measured", [Figure("taxonomy", title, CAPTION, to_png(draw_taxonomy(measured)))]),
            Section("All numbers", [operator_table(measured, budget)]),
            Section("What is measured", [Items(_explanations(budget))], folded=True),
        ],
        origins=[origin_text(run)],
        data={"run": dict(run), "budget": asdict(budget), "operators": [_as_data(one) for one in measured]},
    )


def _keeps_all(one: Measured) -> bool:
    """Whether every law holds, told what can be told."""

    def kept(*laws: str) -> bool:
        return any(error is not None and error < EXACT for error in (one.errors[law] for law in laws))

    finer, turned = kept("finer, told", "finer, not told"), kept("turned", "turned, not told")
    return kept("shift") and kept("axes") and kept("larger") and finer and turned


def findings(measured: Sequence[Measured]) -> list[str]:
    """What to remember, in sentences made from the numbers."""
    lawful = [one for one in measured if _keeps_all(one)]
    directed = [one for one in lawful if one.selectivity >= DIRECTED]
    untold = [one for one in measured if (one.errors["finer, not told"] or 0.0) < EXACT]
    fixed = [one for one in untold if (one.errors["larger"] or 0.0) >= EXACT]
    lines = [
        f"Every law is kept, where the operator is told what it can be told, by: {_names(lawful)}.",
        f"Of these, directions are preferred by: {_names(directed)}.",
        f"A field that is sampled more finely comes out the same without telling by: {_names(untold)}.",
    ]
    if fixed:
        lines.append(f"Of these, tied to the extent of the image instead, and wrong on a larger one: {_names(fixed)}.")
    return lines


def _names(measured: Sequence[Measured]) -> str:
    return ", ".join(one.contender.name for one in measured) or "none"


def operator_table(measured: Sequence[Measured], budget: Budget) -> Table:
    """One row for each operator, under the headings of the taxonomy."""
    sizes = " / ".join(map(str, budget.sizes))
    headers = [
        "operator",
        *[Column(law, "error") for law in LAWS],
        Column("reach, px", "field"),
        Column("selectivity", "directions"),
        Column("diagonals", "directions"),
        "takes other sizes",
        "parameters",
        Column("MFLOPs", f"at {sizes} px"),
        Column("step, times 3x3", f"at {sizes} px"),
        Column("memory, times 3x3", f"at {sizes} px"),
    ]
    rows: list[Group | list[str | Cell]] = []
    for place in PLACES:
        members = [one for one in measured if one.contender.place == place]
        rows += [Group(place), *[_row(one, measured[0]) for one in members]] if members else []
    return Table("Operators", headers, rows, legend=f"green: below {EXACT:g}; red: {SLIGHT:g} and above")


def _row(one: Measured, unit: Measured) -> list[str | Cell]:
    pairs = list(zip(one.costs, unit.costs, strict=True))
    return [
        one.contender.name,
        *[_error(one.errors[law]) for law in LAWS],
        f"{one.reach:.1f}",
        f"{one.selectivity:.2f}",
        f"{one.diagonals:.2f}",
        "yes" if one.other_sizes else "no",
        f"{one.costs[0].parameters:,}",
        " / ".join(f"{cost.flops / 1e6:.3g}" for cost in one.costs),
        " / ".join(f"{cost.seconds / base.seconds:.1f}" for cost, base in pairs),
        " / ".join(f"{cost.bytes / base.bytes:.1f}" for cost, base in pairs),
    ]


def _error(error: float | None) -> str | Cell:
    if error is None:
        return NONE
    if error < EXACT:
        return Cell("exact", mark="better")
    return Cell(f"{error:.2g}", mark="worse" if error >= SLIGHT else "")


def _explanations(budget: Budget) -> list[str]:
    laws = [f"Error, {law}: {text}." for law, text in LAWS.items()]
    return [
        f"Errors are relative to what varies over the output, in float64, on {SIZE} x {SIZE} pixels and {CHANNELS} "
        f"channels, away from the border; below {EXACT:g} they count as none. A dash: no way to be told.",
        *laws,
        "The image is random waves under a window that is zero at the border; for turns it is periodic, of waves that "
        "fit the pixels before and after a turn by 53.13 degrees, so that nothing is interpolated. A larger image is "
        "the image repeated where an operator wraps, and surrounded by zeros where it has zeros outside.",
        f"Reach is the radius within which 90 % of the squared sensitivity lies, on noise of {FIELD} x {FIELD} pixels.",
        f"Selectivity is 0 if waves of all directions pass alike and 1 if one direction alone does; from {DIRECTED:g} "
        "on an operator counts as preferring directions. Diagonals is 0 if mirrored waves pass alike, as through "
        f"separable kernels; from {OBLIQUE:g} on directions between the axes count as preferred, too.",
        "Weights are freshly drawn. Networks of frequency (NIFF, continuous FNO) start nearly flat, so they look "
        "closer to laws that they break, and less selective, than after training. NIFF's networks fill the half "
        "spectrum of a real transform, which is why swapped axes make another operator of it.",
        "Operators stand without a path round them. SONIC with the paper's notes standardises its input.",
        f"Costs: {budget.channels} channels in and out; FLOPs of a forward pass over one image, transforms counted; "
        f"time and peak memory of a training step over {BATCH} images relative to the 3x3 convolution, the best of "
        f"{budget.rounds}, taken in turns.",
    ]


def _as_data(one: Measured) -> dict[str, Any]:
    data = asdict(one)
    return {**data.pop("contender"), **data}
