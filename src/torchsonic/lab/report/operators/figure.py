"""The taxonomy with measured marks: one row per operator, one column per measurement."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from torchsonic.lab.report.operators.contenders import PLACES
from torchsonic.lab.report.operators.directions import FIELD
from torchsonic.lab.report.operators.laws import EXACT
from torchsonic.lab.report.operators.measure import Measured
from torchsonic.viz.style import new_figure, styled

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SLIGHT = 0.1
"""Errors below this are slight."""
DIRECTED, OBLIQUE = 0.1, 0.2
"""Selectivity from which directions are preferred, and diagonals from which also those between the axes."""
KEPT, NEARLY, BROKEN, SILENT = "#009E73", "#E69F00", "#D55E00", "0.6"
BANDS = ("#edd1e7", "#c3dde4", "#FFE9C7", "#D6E0FF")
COLUMNS = {
    "shift": "shift",
    "axes": "axes\nswapped",
    "finer, told": "finer,\nspacing\ngiven",
    "finer, not told": "finer,\nspacing\nnot given",
    "larger": "larger\nimage",
    "turned": "image and\noperator\nrotated",
    "turned, not told": "only\nimage\nrotated",
}
WIDTH, ROW, HEAD = 10.5, 0.3, 1.3
"""Inches."""


@styled
def draw_taxonomy(measured: Sequence[Measured]) -> Figure:
    """A row for each operator, in the groups of the paper's figure; a mark for each law, then field and directions."""
    rows = sorted(measured, key=lambda one: PLACES.index(one.contender.place))
    figure = new_figure(WIDTH, HEAD + ROW * len(rows))
    panel = figure.subplots()
    for y, one in enumerate(rows):
        panel.text(-0.7, y, one.contender.name, ha="right", va="center", fontsize=9)
        for x, law in enumerate(COLUMNS):
            _mark(panel, x, y, one.errors[law])
        _field(panel, len(COLUMNS), y, one.reach)
        _directions(panel, len(COLUMNS) + 1, y, one)
    _bands(panel, [one.contender.place for one in rows])
    heads = [*COLUMNS.values(), f"reach, px\n(of {FIELD})", "directions"]
    panel.set_xticks(range(len(heads)), heads)
    panel.xaxis.tick_top()
    panel.tick_params(length=0)
    panel.set_yticks([])
    panel.set_xlim(-5.9, len(heads) - 0.4)
    panel.set_ylim(len(rows) - 0.5, -0.5)
    for spine in panel.spines.values():
        spine.set_visible(False)
    _legend(panel)
    return figure


def _mark(panel: Axes, x: float, y: float, error: float | None) -> None:
    if error is None:
        panel.text(x, y, "n/a", ha="center", va="center", fontsize=7, color=SILENT)
        return
    colour = KEPT if error < EXACT else NEARLY if error < SLIGHT else BROKEN
    shape = "o" if error < EXACT else "D" if error < SLIGHT else "X"
    panel.plot([x - 0.22], [y], shape, color=colour, markersize=6)
    text = "exact" if error < EXACT else f"{error:.1g}" if error < SLIGHT else f"{error:.2f}"
    panel.text(x - 0.08, y, text, ha="left", va="center", fontsize=7)


def _field(panel: Axes, x: float, y: float, reach: float) -> None:
    """Radius of 90 % of the sensitivity as a bar."""
    panel.barh([y], [0.75 * reach / (FIELD / 2**0.5)], left=x - 0.42, height=0.3, color="#0072B2")
    panel.text(x - 0.38 + 0.75 * reach / (FIELD / 2**0.5), y, f"{reach:.0f}", ha="left", va="center", fontsize=7)


def _directions(panel: Axes, x: float, y: float, one: Measured) -> None:
    """A dot for none, a cross for those of the axes, a star for any."""
    oriented = one.selectivity >= DIRECTED
    shape, size = (".", 7) if not oriented else ("+", 9) if one.diagonals < OBLIQUE else ((8, 2, 0), 9)
    panel.plot([x - 0.22], [y], marker=shape, color="#0072B2", markersize=size)
    panel.text(x - 0.02, y, f"{one.selectivity:.2f}", ha="left", va="center", fontsize=7)


def _bands(panel: Axes, places: Sequence[str]) -> None:
    """A coloured box for each group, with its name on the left."""
    for place, colour in zip(PLACES, BANDS, strict=True):
        members = [y for y, other in enumerate(places) if other == place]
        if not members:
            continue
        low, high = members[0] - 0.5, members[-1] + 0.5
        panel.axhspan(low + 0.04, high - 0.04, color=colour, alpha=0.55, zorder=0, linewidth=0)
        panel.text(
            -5.8, (low + high) / 2, place.replace(", ", ",\n"), ha="left", va="center", weight="bold", fontsize=8
        )


def _legend(panel: Axes) -> None:
    from matplotlib.lines import Line2D

    looks = [
        (KEPT, "o", f"law holds, error below {EXACT:g}"),
        (NEARLY, "D", f"error below {SLIGHT:g}"),
        (BROKEN, "X", "broken"),
        ("#0072B2", ".", "prefers no direction"),
        ("#0072B2", "+", "prefers the axes"),
        ("#0072B2", (8, 2, 0), "prefers any direction"),
    ]
    handles = [Line2D([], [], linestyle="", marker=marker, color=colour) for colour, marker, _ in looks]
    names = [name for *_, name in looks]
    panel.legend(handles, names, ncols=6, frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.01), fontsize=7.5)
