"""Tables and figure of the operator benchmark, from its result."""

from __future__ import annotations

from pathlib import Path

from benchmarks.contenders import CONTENDERS
from benchmarks.figures import COLOURS, draw_bars, new_figure, save_figure, use_log_scale
from benchmarks.goals import FLOOR_GOALS, SPEED_GOALS, floor_ratio, saved_goal, speed_up
from benchmarks.tables import Table, milliseconds, verdict, written

__all__ = ["draw_operator", "operator_tables"]

LABELS = {contender.name: contender.label for contender in CONTENDERS}
RIVALS = ("paper_order", "conv3", "depthwise31", "neuralop")


def operator_tables(result: dict) -> list[Table]:
    records = result["entries"]
    tables = [_goal_table(result["summary"]), _step_table(records), _forward_table(records)]
    return [*tables, _accuracy_table(records), _saved_table(records), *_skipped_table(records)]


def _goal_table(summary: list[dict]) -> Table:
    rows = [
        [
            row["group"],
            row["quantity"],
            row["statistic"],
            row["entries"],
            written(row["measured"], ".2f"),
            row["goal"] or "-",
            verdict(row["met"]),
        ]
        for row in summary
    ]
    return Table("Goals", ["group", "quantity", "statistic", "entries", "measured", "goal", ""], rows)


def _times(record: dict, contender: str, kind: str) -> str:
    timing = record["times"].get(contender, {}).get(kind)
    return "-" if timing is None else f"{milliseconds(timing['best_s'])} / {milliseconds(timing['median_s'])}"


def _step_table(records: list[dict]) -> Table:
    others = ("sonic_recompute", *RIVALS)
    rows = [
        [
            record["name"],
            record["order"],
            _times(record, "sonic", "train_step"),
            *[written(speed_up(record, name, "train_step"), ".2f", "x") for name in others],
        ]
        for record in records
    ]
    return Table(
        "Forward + backward: time of each over Sonic's",
        ["entry", "order", "Sonic, ms", *[LABELS[name] for name in others]],
        rows,
        ["Entries are named axes-C-M-size. Milliseconds are best / median; ratios are of the best."],
    )


def _forward_table(records: list[dict]) -> Table:
    rows = [
        [
            record["name"],
            _times(record, "sonic", "forward"),
            _times(record, "floor", "forward"),
            written(floor_ratio(record), ".2f", "x"),
            written(floor_ratio(record, "sonic_cached"), ".2f", "x"),
            written(floor_ratio(record, "sonic", "train_forward"), ".2f", "x"),
            *[written(speed_up(record, name, "forward"), ".2f", "x") for name in RIVALS],
        ]
        for record in records
    ]
    over = ["no_grad / floor", "evaluation mode / floor", "training / floor"]
    rivals = [f"{LABELS[name]} / Sonic" for name in RIVALS]
    return Table(
        "Forward",
        ["entry", "Sonic, ms", "floor, ms", *over, *rivals],
        rows,
        ["The floor is the bare matrix products and Fourier transforms. Evaluation mode keeps the responses."],
    )


def _accuracy_table(records: list[dict]) -> Table:
    kinds = list(records[0]["accuracy"]["sonic"]) if records else []
    rows = []
    for record in records:
        accuracy = record["accuracy"]
        pairs = [f"{accuracy['sonic'][kind]:.1e} / {accuracy['paper_order'][kind]:.1e}" for kind in kinds]
        flagged = f"**above: {', '.join(accuracy['flagged'])}**" if accuracy["flagged"] else "ok"
        wrong = [f"{LABELS[name]}: {found}" for name, found in record["checks"].items() if found != "ok"]
        worst = f"{accuracy['worst']['sonic']:.1e} / {accuracy['worst']['paper_order']:.1e}"
        rows.append([record["name"], *pairs, flagged, worst, f"**{'; '.join(wrong)}**" if wrong else "ok"])
    return Table(
        "float32 error: Sonic / paper's order",
        ["entry", *kinds, "at most twice", "worst of all draws", "outputs finite, of right shape"],
        rows,
        [
            "max|a - b| / max|b| against the same step in float64, Sonic's in another order of evaluation: geometric "
            "means over several draws of parameters and inputs and over the tensors of a kind."
        ],
    )


def _saved_table(records: list[dict]) -> Table:
    rows = []
    for record in records:
        cells = [record["name"]]
        for name, recompute in (("sonic", False), ("sonic_recompute", True)):
            saved, goal = record["saved"][name], saved_goal(record, recompute=recompute)
            cells.append(f"{saved:.3f}" if saved <= goal else f"**{saved:.3f}**")
            cells.append(f"{goal:.3f}")
        rows.append([*cells, *[f"{record['saved'][name]:.3f}" for name in ("paper_order", "conv3")]])
    headers = ["entry", "Sonic", "goal", "Sonic, recompute", "goal", LABELS["paper_order"], LABELS["conv3"]]
    return Table("Bytes saved for the backward pass / bytes of the input", headers, rows)


def _skipped_table(records: list[dict]) -> list[Table]:
    rows = [[r["name"], LABELS[name], reason] for r in records for name, reason in r["skipped"].items()]
    return [Table("Not measured", ["entry", "contender", "reason"], rows)] if rows else []


def draw_operator(result: dict, path: Path) -> None:
    """Three panels: speed-ups with their goals, forward over the floor, bytes saved."""
    records = result["entries"]
    names = [record["name"] for record in records]
    figure, (step, floor, saved) = new_figure(3, 1, width=max(11.0, 1.15 * len(names) + 3.5), height=11.0)

    bars = {LABELS[name]: [speed_up(record, name, "train_step") for record in records] for name in RIVALS}
    draw_bars(step, names, bars, {LABELS[name]: COLOURS[name] for name in RIVALS}, baseline=1.0)
    for name in ("paper_order", "conv3"):
        goals = [SPEED_GOALS.get(record["group"], {}).get(name) for record in records]
        _mark_goals(step, goals, COLOURS[name], f"goal (mean), {LABELS[name]}")
    use_log_scale(step)
    step.set_ylabel("time / Sonic's time")
    step.set_title("Forward + backward: how many times faster Sonic is (above 1: Sonic faster)")

    forward = {
        "no_grad": [floor_ratio(record) for record in records],
        "evaluation mode": [floor_ratio(record, "sonic_cached") for record in records],
        "training": [floor_ratio(record, "sonic", "train_forward") for record in records],
    }
    shades = dict(zip(forward, (COLOURS["sonic"], COLOURS["sonic_cached"], COLOURS["sonic_recompute"]), strict=True))
    draw_bars(floor, names, forward, shades)
    _mark_goals(floor, [FLOOR_GOALS.get(record["group"]) for record in records], "black", "goal (mean)")
    floor.set_ylabel("Sonic's time / floor")
    floor.set_title("Forward over the floor: the bare matrix products and Fourier transforms")

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
    saved.set_title("Kept for the backward pass")
    saved.set_xlabel("entry: axes - channels - modes - size in pixels")
    for panel in (step, floor, saved):
        panel.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False)
    save_figure(figure, path, result["run"])


def _mark_goals(panel, goals: list[float | None], colour: str, label: str) -> None:
    """A dashed stroke across each entry that has a goal."""
    for index, goal in enumerate(goals):
        if goal is not None:
            panel.hlines(
                goal, index - 0.45, index + 0.45, colors=colour, linestyles="dashed", linewidth=1.5, label=label
            )
            label = "_nolegend_"
