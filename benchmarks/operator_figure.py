"""Figure of the operator benchmark, from its result."""

from __future__ import annotations

from benchmarks.contenders import TRAIN_STEP
from benchmarks.entries import KEPT, NOT_KEPT, PAGES
from benchmarks.figures import COLOURS, Figure, draw_bars, new_figure, use_log_scale
from benchmarks.goals import SPEED_GOALS, floor_goal, saved_goal, speed_up, step_over_floor
from benchmarks.operator_report import LABELS, RIVALS

__all__ = ["draw_operator"]


def draw_operator(result: dict) -> Figure:
    """Three panels: speed-ups with their goals, step over the floor, bytes saved."""
    records = result["entries"]
    names = [record["name"] for record in records]
    figure, (step, floor, saved) = new_figure(3, 1, width=max(11.0, 1.15 * len(names) + 3.5), height=11.0)
    # Where pages cannot be kept, what was measured is shown.
    shown = KEPT if any(KEPT in record["times"] for record in records) else NOT_KEPT

    bars = {LABELS[name]: [speed_up(record, name, TRAIN_STEP, shown) for record in records] for name in RIVALS}
    draw_bars(step, names, bars, {LABELS[name]: COLOURS[name] for name in RIVALS}, baseline=1.0)
    for name in ("paper_order", "conv3"):
        goals = [SPEED_GOALS.get(record["group"], {}).get((name, shown)) for record in records]
        _mark_goals(step, goals, COLOURS[name], f"goal (mean), {LABELS[name]}")
    use_log_scale(step)
    step.set_ylabel("time / Sonic's time")
    step.set_title(f"Forward + backward, pages {shown}: speed-up of Sonic (above 1: Sonic is faster)")

    over = {f"pages {pages}": [step_over_floor(record, pages) for record in records] for pages in PAGES}
    draw_bars(floor, names, over, dict(zip(over, (COLOURS["sonic"], COLOURS["sonic_recompute"]), strict=True)))
    _mark_goals(floor, [floor_goal(record) for record in records], "black", "goal, pages kept")
    floor.set_ylabel("Sonic's time / floor")
    floor.set_title("Forward + backward relative to the floor of matrix products and Fourier transforms alone")

    kept = ("sonic", "sonic_recompute", "paper_order", "conv3")
    draw_bars(
        saved,
        names,
        {LABELS[name]: [record["saved"][name] for record in records] for name in kept},
        {LABELS[name]: COLOURS[name] for name in kept},
    )
    _mark_goals(saved, [saved_goal(record, recompute=False) for record in records], COLOURS["sonic"], "goal, Sonic")
    _mark_goals(saved, [saved_goal(record, recompute=True) for record in records], "black", "goal, recompute")
    saved.set_ylabel("bytes / bytes of the input")
    saved.set_title("Memory kept for the backward pass")
    saved.set_xlabel("entry: axes - channels - modes - size in pixels")
    for panel in (step, floor, saved):
        panel.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False)
    return figure


def _mark_goals(panel, goals: list[float | None], colour: str, label: str) -> None:
    """A dashed stroke across each entry that has a goal."""
    for index, goal in enumerate(goals):
        if goal is not None:
            panel.hlines(
                goal, index - 0.45, index + 0.45, colors=colour, linestyles="dashed", linewidth=1.5, label=label
            )
            label = "_nolegend_"
