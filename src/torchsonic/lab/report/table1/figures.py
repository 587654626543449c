"""Training curves, and Dice over the strength of each perturbation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from torchsonic.lab.report.runs import group_by
from torchsonic.lab.report.style import OPERATORS, draw_band, log_scale, plain, smooth
from torchsonic.lab.report.table1.collect import TASKS, Column
from torchsonic.lab.report.table1.table import Row, Table1
from torchsonic.viz.style import new_figure, thin_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

OTHERS = (("#000000", "X"), ("#777777", "*"), ("#AA8800", "h"))
LINES = ("-", "--", ":", "-.")
TOLD = (0, (1, 1))


def column_styles(columns: Sequence[Column]) -> list[dict[str, Any]]:
    """Colour and marker of each model, and another line for each of its variants."""
    variants = group_by(columns, lambda column: column.model)
    unknown = [model for model in variants if model not in OPERATORS]
    looks = {model: OTHERS[place % len(OTHERS)] for place, model in enumerate(unknown)}
    styles = []
    for column in columns:
        colour, marker = looks.get(column.model) or OPERATORS[column.model]
        line = LINES[variants[column.model].index(column) % len(LINES)]
        styles.append({"color": colour, "marker": marker, "linestyle": line})
    return styles


def draw_curves(columns: Sequence[Column]) -> Figure | None:
    """Loss over steps for each task: mean over runs, the band from the lowest run to the highest."""
    tasks = [task for task in TASKS if any(run.losses for column in columns for run in column.of(task))]
    if not tasks:
        return None
    figure = new_figure(5.2 * len(tasks) + 0.6, 4.3)
    panels = figure.subplots(1, len(tasks), squeeze=False).ravel().tolist()
    handles: dict[str, Any] = {}
    for panel, task in zip(panels, tasks, strict=True):
        for column, style in zip(columns, column_styles(columns), strict=True):
            curves = [smooth(run.losses) for run in column.of(task) if run.losses]
            if curves:
                handles.setdefault(plain(column.name), draw_band(panel, curves, style))
        thin_axes(panel)
        log_scale(panel)
        panel.set(title=TASKS[task], xlabel="step", ylabel="training loss")
    columns_of_legend = min(6, len(handles))
    figure.legend(handles.values(), handles, loc="outside lower center", ncols=columns_of_legend, frameon=False)
    return figure


def draw_levels(table: Table1) -> Figure | None:
    """Dice over level, one panel for each perturbation: lines are ours, faint markers beside them the paper's."""
    perturbed = [row for row in table.rows if row.test and row.test[0] != "clean"]
    groups = group_by(perturbed, lambda row: (row.group, row.test[0] if row.test else ""))
    if not groups:
        return None
    across = min(4, len(groups))
    down = -(-len(groups) // across)
    figure = new_figure(3.2 * across, 2.9 * down + 0.6)
    panels = figure.subplots(down, across, squeeze=False).ravel().tolist()
    for panel, ((group, name), rows) in zip(panels, groups.items(), strict=False):
        _draw_panel(panel, table.columns, rows)
        protocol = ", released" if group.startswith(TASKS["released"]) else ""
        panel.set(title=plain(TASKS.get(name, name)) + protocol, ylim=(-0.03, 1.03))
        panel.set_xlabel("noise" if group.startswith(TASKS["halligalli"]) else "level")
    for panel in panels[::across]:
        panel.set_ylabel("Dice")
    for panel in panels[len(groups) :]:
        panel.set_axis_off()
    _draw_legend(figure, table.columns, ncols=2 * across)
    return figure


def _draw_panel(panel: Axes, columns: Sequence[Column], rows: Sequence[Row]) -> None:
    tests = [(row.test, row.cells) for row in rows if row.test]
    levels = sorted({level for (_, level, _), _ in tests})
    for number, (column, style) in enumerate(zip(columns, column_styles(columns), strict=True)):
        beside = 0.5 * ((number + 0.5) / len(columns) - 0.5)  # so that models of one score do not hide each other
        for told in (False, True):
            cells = [(levels.index(test[1]) + beside, found[number]) for test, found in tests if test[2] == told]
            ours = [(x, cell.ours.mean, cell.ours.spread or 0.0) for x, cell in cells if cell.ours]
            if ours:
                look = {**style, "linestyle": TOLD, "markerfacecolor": "white"} if told else style
                places, means, spreads = zip(*ours, strict=True)
                panel.errorbar(places, means, spreads, markersize=4.5, linewidth=1.3, elinewidth=0.9, **look)
            paper = [(x + 0.03, cell.paper) for x, cell in cells if cell.paper is not None]
            if paper and column.is_default:
                panel.scatter(*zip(*paper, strict=True), s=46, marker=style["marker"], color=style["color"], alpha=0.25)
    panel.set_xticks(range(len(levels)), [f"{level:g}" for level in levels])
    panel.set_xlim(-0.45, len(levels) - 0.55)
    thin_axes(panel)


def _draw_legend(figure: Figure, columns: Sequence[Column], *, ncols: int) -> None:
    from matplotlib.lines import Line2D

    entries = {plain(c.name): {"markersize": 5, **s} for c, s in zip(columns, column_styles(columns), strict=True)}
    grey = {"color": "0.4", "marker": "o"}
    entries["given the spacing"] = {**grey, "markerfacecolor": "white", "linestyle": TOLD}
    entries["paper (faint)"] = {**grey, "markersize": 7, "alpha": 0.3, "linestyle": "none"}
    handles = [Line2D([], [], **look) for look in entries.values()]
    place = {"loc": "outside lower center", "ncols": min(ncols, len(entries))}
    figure.legend(handles, entries, frameon=False, fontsize="small", **place)
