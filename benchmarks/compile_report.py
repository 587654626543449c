"""Tables and figure of the benchmark of compiled layers and models, from its result."""

from __future__ import annotations

from benchmarks.compile_bench import DYNAMIC, EAGER, MOST_GRAPHS, MOST_TIME, STATIC
from benchmarks.figures import COLOURS, Figure, draw_bars, new_figure
from benchmarks.tables import Table, milliseconds, verdict

__all__ = ["compile_tables", "draw_compile"]

LABELS = {"forward": "evaluation", "train_step": "training step"}


def _ratio(record: dict, kind: str, contender: str) -> float:
    times = record["times"][kind]
    return times[contender]["best_s"] / times[EAGER]["best_s"]


def compile_tables(result: dict) -> list[Table]:
    return [_goals(result), *[_times(_measured(result), kind) for kind in LABELS if _measured(result)]]


def _measured(result: dict) -> list[dict]:
    return [record for record in result["subjects"] if "failure" not in record]


def _goals(result: dict) -> Table:
    rows = [
        [record["name"], record["failure"], "", "", "", verdict(False)]
        for record in result["subjects"]
        if "failure" in record
    ]
    for record in _measured(result):
        slowest = max(_ratio(record, kind, STATIC) for kind in LABELS)
        graphs = max(record["graphs"].values())
        met = slowest <= MOST_TIME and graphs <= MOST_GRAPHS
        errors = [f"{record[name]:.1e}" for name in ("output_error", "gradient_error")]
        rows.append([record["name"], f"{slowest:.2f}", str(graphs), *errors, verdict(met)])
    headers = ["", "time / eager, slower pass", "graphs for five sizes", "output error", "gradient error", ""]
    notes = [f"Goals: at most {MOST_TIME:g} of the eager time, at most {MOST_GRAPHS} graphs."]
    return Table("Compiled in one graph", headers, rows, notes)


def _times(records: list[dict], kind: str) -> Table:
    contenders = list(records[0]["times"][kind])
    rows = []
    for record in records:
        times = record["times"][kind]
        cells = [record["name"], " x ".join(map(str, record["shape"]))]
        for name in contenders:
            cells.append(milliseconds(times[name]["best_s"]))
            if name != EAGER:
                cells.append(f"{_ratio(record, kind, name):.2f}")
        rows.append(cells)
    headers = ["", "input"]
    for name in contenders:
        headers += [f"{name}, ms"] + ([] if name == EAGER else ["/ eager"])
    notes = ["Best of several rounds; the compilation itself is not included."]
    return Table(LABELS[kind].capitalize(), headers, rows, notes, left=2)


def draw_compile(result: dict) -> Figure:
    """One panel for each kind of pass: time over eager."""
    records = _measured(result)
    figure, panels = new_figure(len(LABELS), 1, width=10.0, height=3.4 * len(LABELS))
    names = [record["name"] for record in records]
    for panel, (kind, label) in zip(panels, LABELS.items(), strict=True):
        colours = {STATIC: COLOURS["sonic"], DYNAMIC: COLOURS["paper_order"]}
        bars: dict[str, list[float | None]] = {
            name: [_ratio(record, kind, name) for record in records] for name in colours
        }
        draw_bars(panel, [name.replace("(", "\n(") for name in names], bars, colours, baseline=1)
        panel.set(ylabel="time / eager", title=f"{label} (below 1: faster)")
        panel.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False)
    return figure
