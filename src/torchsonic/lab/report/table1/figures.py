"""Training curves, and Dice over the strength of each perturbation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from torchsonic.lab.report.style import new_figure, plain, thin_axes
from torchsonic.lab.report.table1.collect import TASKS, Column
from torchsonic.lab.report.table1.table import Row, Table1

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["draw_curves", "draw_levels"]

SMOOTHED = 0.04
"""Part of a run over which a curve is averaged."""
MODELS = {
    "convnet": ("#D55E00", "s"),
    "vit": ("#CC79A7", "^"),
    "s4nd": ("#E69F00", "D"),
    "niff": ("#009E73", "v"),
    "gfnet": ("#56B4E9", "P"),
    "sonicnet": ("#0072B2", "o"),
}
OTHERS = (("#000000", "X"), ("#777777", "*"), ("#AA8800", "h"))
LINES = ("-", "--", ":", "-.")


def column_styles(columns: Sequence[Column]) -> list[dict[str, Any]]:
    """Colour and marker of each model, and another line for each of its variants."""
    seen: dict[str, int] = {}
    styles = []
    for column in columns:
        unknown = [name for name in seen if name not in MODELS]
        place = unknown.index(column.model) if column.model in unknown else len(unknown)
        colour, marker = MODELS.get(column.model) or OTHERS[place % len(OTHERS)]
        turn = seen.get(column.model, 0)
        seen[column.model] = turn + 1
        styles.append({"color": colour, "marker": marker, "linestyle": LINES[turn % len(LINES)]})
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
            curves = [_smooth(run.losses) for run in column.of(task) if run.losses]
            if curves:
                handles.setdefault(plain(column.name), _draw_band(panel, curves, style))
        thin_axes(panel)
        _log_scale(panel)
        panel.set(title=TASKS[task], xlabel="step", ylabel="training loss")
    figure.legend(
        list(handles.values()), list(handles), loc="outside lower center", ncols=min(6, len(handles)), frameon=False
    )
    return figure


def _smooth(losses: Sequence[tuple[int, float]]) -> dict[int, float]:
    """A running mean, over fewer lines at the ends."""
    values = np.array([loss for _, loss in losses])
    half = int(SMOOTHED * len(values) / 2)
    total = np.concatenate([[0.0], values.cumsum()])
    low = np.maximum(np.arange(len(values)) - half, 0)
    high = np.minimum(np.arange(len(values)) + half + 1, len(values))
    return dict(zip((step for step, _ in losses), ((total[high] - total[low]) / (high - low)).tolist(), strict=True))


def _draw_band(panel: Axes, curves: Sequence[dict[int, float]], style: dict[str, Any]) -> Any:
    steps = sorted({step for curve in curves for step in curve})
    values = [[curve[step] for curve in curves if step in curve] for step in steps]
    look = {"color": style["color"], "linestyle": style["linestyle"]}
    (line,) = panel.plot(steps, [sum(each) / len(each) for each in values], linewidth=1.6, **look)
    if len(curves) > 1:
        panel.fill_between(
            steps, [min(e) for e in values], [max(e) for e in values], color=style["color"], alpha=0.18, linewidth=0
        )
    return line


def _log_scale(panel: Axes) -> None:
    """A logarithmic vertical axis labelled in plain numbers, at least three of them."""
    from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

    low, high = panel.get_ylim()
    panel.set_yscale("log")
    fine = (1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0) if high < 10 * max(low, 1e-9) else (1.0, 2.0, 5.0)
    panel.yaxis.set_major_locator(LogLocator(subs=fine))
    panel.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    panel.yaxis.set_minor_formatter(NullFormatter())


def draw_levels(table: Table1) -> Figure | None:
    """Dice over level, one panel for each perturbation: lines are ours, faint markers beside them the paper's."""
    groups: dict[str, list[Row]] = {}
    for row in table.rows:
        if row.test and row.test[0] != "clean":
            groups.setdefault(row.test[0], []).append(row)
    if not groups:
        return None
    across = min(4, len(groups))
    down = -(-len(groups) // across)
    figure = new_figure(3.2 * across, 2.9 * down + 0.6)
    panels = figure.subplots(down, across, squeeze=False).ravel().tolist()
    for panel, (name, rows) in zip(panels, groups.items(), strict=False):
        _draw_panel(panel, table.columns, rows)
        panel.set(title=plain(TASKS.get(name, name)), ylim=(-0.03, 1.03))
        panel.set_xlabel({"halligalli": "noise"}.get(name, "level"))
    for panel in panels[::across]:
        panel.set_ylabel("Dice")
    for panel in panels[len(groups) :]:
        panel.set_axis_off()
    _draw_legend(figure, table.columns, ncols=2 * across)
    return figure


def _draw_panel(panel: Axes, columns: Sequence[Column], rows: Sequence[Row]) -> None:
    levels = sorted({row.test[1] for row in rows if row.test})
    place = {level: number for number, level in enumerate(levels)}
    styles = column_styles(columns)
    for number, style in enumerate(styles):
        beside = 0.5 * ((number + 0.5) / len(styles) - 0.5)  # so that models of one score do not hide each other
        for told in (False, True):
            cells = [
                (place[row.test[1]] + beside, row.cells[number]) for row in rows if row.test and row.test[2] == told
            ]
            ours = [(x, cell.ours) for x, cell in cells if cell.ours is not None]
            if ours:
                look = {**style, "linestyle": (0, (1, 1)), "markerfacecolor": "white"} if told else style
                spread = [estimate.spread or 0.0 for _, estimate in ours]
                means = [estimate.mean for _, estimate in ours]
                panel.errorbar(
                    [x for x, _ in ours], means, spread, markersize=4.5, linewidth=1.3, elinewidth=0.9, **look
                )
            paper = [(x + 0.03, cell.paper) for x, cell in cells if cell.paper is not None]
            if paper and columns[number].is_default:
                panel.scatter(*zip(*paper, strict=True), s=46, marker=style["marker"], color=style["color"], alpha=0.25)
    panel.set_xticks(list(place.values()), [f"{level:g}" for level in levels])
    panel.set_xlim(-0.45, len(levels) - 0.55)
    thin_axes(panel)


def _draw_legend(figure: Figure, columns: Sequence[Column], *, ncols: int) -> None:
    from matplotlib.lines import Line2D

    styles = column_styles(columns)
    handles = [Line2D([], [], markersize=5, **style) for style in styles]
    names = [plain(column.name) for column in columns]
    handles.append(Line2D([], [], color="0.4", marker="o", markerfacecolor="white", linestyle=(0, (1, 1))))
    names.append("told the spacing")
    handles.append(Line2D([], [], color="0.4", marker="o", markersize=7, alpha=0.3, linestyle="none"))
    names.append("the paper's (faint)")
    ncols = min(ncols, len(names))
    figure.legend(handles, names, loc="outside lower center", ncols=ncols, frameon=False, fontsize="small")
