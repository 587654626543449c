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
from torchsonic.lab.report.operators.laws import CHANNELS, EXACT, LAWS, SIZE, TITLES
from torchsonic.lab.report.operators.measure import BATCH, Budget, Measured
from torchsonic.lab.report.runs import origin_text
from torchsonic.lab.runs.provenance import activity_warning

CAPTION = (
    "Groups are those of the paper's figure on the taxonomy of operators; marks are measured with random initial "
    "weights. 'n/a': the operator cannot be given the spacing, or its parameters cannot be rotated."
)


def make_page(measured: Sequence[Measured], budget: Budget, run: Mapping[str, Any]) -> Document:
    """The page; ``run`` is where the numbers come from."""
    title = "Operators with a large receptive field, grouped as in the paper and measured"
    warning = activity_warning(dict(run)).strip()
    return Document(
        title=title,
        about=f"{len(measured)} operators, each with {budget.seeds} draws of random weights; nothing is trained.",
        warnings=[warning] if warning else [],
        sections=[
            Section("Findings", [Prose(line, "finding") for line in findings(measured)]),
            Section("The taxonomy, measured", [Figure("taxonomy", title, CAPTION, to_png(draw_taxonomy(measured)))]),
            Section("All numbers", [operator_table(measured, budget)]),
            Section("How it was measured", [Items(_explanations(budget))], folded=True),
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
        f"All laws hold, given the spacing and the rotation where possible, for: {_names(lawful)}.",
        f"Of these, the following prefer directions: {_names(directed)}.",
        "Sampling a field more finely does not change the output, even if the spacing is not given, for: "
        f"{_names(untold)}.",
    ]
    if fixed:
        lines.append(
            f"Of these, the following depend on the extent of the image and fail on a larger one: {_names(fixed)}."
        )
    return lines


def _names(measured: Sequence[Measured]) -> str:
    return ", ".join(one.contender.name for one in measured) or "none"


def operator_table(measured: Sequence[Measured], budget: Budget) -> Table:
    """One row for each operator, under the headings of the taxonomy."""
    sizes = " / ".join(map(str, budget.sizes))
    headers = [
        "operator",
        *[Column(TITLES[law], "error") for law in LAWS],
        Column("reach, px", "field"),
        Column("selectivity", "directions"),
        Column("diagonals", "directions"),
        "accepts other sizes",
        "parameters",
        Column("MFLOPs", f"at {sizes} px"),
        Column("step, relative to 3x3", f"at {sizes} px"),
        Column("memory, relative to 3x3", f"at {sizes} px"),
    ]
    rows: list[Group | list[str | Cell]] = []
    for place in PLACES:
        members = [one for one in measured if one.contender.place == place]
        rows += [Group(place), *[_row(one, measured[0]) for one in members]] if members else []
    return Table("Operators", headers, rows, legend=f"Green: below {EXACT:g}. Red: {SLIGHT:g} and above.")


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
    laws = [f"Error, {TITLES[law]}: {text}." for law, text in LAWS.items()]
    return [
        f"Errors are relative to the variation of the output, in float64, on {SIZE} x {SIZE} pixels and {CHANNELS} "
        f"channels, away from the border; below {EXACT:g} they count as zero. A dash: the operator cannot be given the "
        "spacing, or its parameters cannot be rotated.",
        *laws,
        "The image consists of random waves under a window that vanishes at the border. For rotations it is periodic, "
        "with waves that fit the pixels before and after a rotation by 53.13 degrees, so nothing is interpolated. A "
        "larger image is the image repeated if the operator wraps around, and padded with zeros if it pads with zeros.",
        f"Reach is the radius that contains 90 % of the squared sensitivity, on noise of {FIELD} x {FIELD} pixels.",
        "Selectivity is 0 if waves of all directions pass equally and 1 if only one direction passes; from "
        f"{DIRECTED:g} on, an operator counts as preferring directions. Diagonals is 0 if mirrored waves pass "
        f"equally, as through separable kernels; from {OBLIQUE:g} on, directions between the axes also count as "
        "preferred.",
        "Weights are random. Networks of frequency (NIFF, continuous FNO) start nearly flat, so they appear to break "
        "laws less, and to be less selective, than after training. NIFF's networks fill the half spectrum of a real "
        "transform, so swapping the axes gives a different operator.",
        "Operators are measured without a residual connection. SONIC with the paper's notes standardises its input.",
        f"Costs: {budget.channels} channels in and out. FLOPs are for a forward pass over one image, including "
        f"transforms. Time and peak memory are for a training step over {BATCH} images, relative to the 3x3 "
        f"convolution; best of {budget.rounds} interleaved rounds.",
    ]


def _as_data(one: Measured) -> dict[str, Any]:
    data = asdict(one)
    return {**data.pop("contender"), **data}
