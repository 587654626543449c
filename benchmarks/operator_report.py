"""Tables of the operator benchmark, from its result; see ``operator_figure`` for the picture."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.baseline import SLOWER
from benchmarks.contenders import CONTENDERS, FORWARD, TRAIN_STEP
from benchmarks.entries import KEPT, PAGES
from benchmarks.goals import floor_goal, floor_time, over_floor, saved_goal, speed_up
from benchmarks.tables import Table, alarm, milliseconds, verdict, written
from torchsonic.lab.report import Code

__all__ = ["LABELS", "RIVALS", "operator_tables", "operator_warnings"]

LABELS = {contender.name: contender.label for contender in CONTENDERS}
PADDED = {contender.name: f"{contender.label} ({contender.padding})" for contender in CONTENDERS}
FLOORS = {"floor_complex": "complex floor, ms", "floor_real": "real floor, ms", "floor_onednn": "oneDNN floor, ms"}
RIVALS = ("paper_order", "conv3", "depthwise31", "neuralop")
STARTUP = {
    "import_torch": "import torch",
    "import_torchsonic": "import torchsonic, after torch",
    "first_step": "first training step of a SonicConv2d",
    "second_step": "second training step",
}


def operator_tables(result: dict) -> list[Table]:
    records = result["entries"]
    return [
        _goal_table(result["summary"]),
        *_baseline_table(result["baseline"]),
        _step_table(records),
        _floor_table(records),
        _forward_table(records),
        _operation_table(records),
        _accuracy_table(records),
        _saved_table(records),
        _startup_table(result["startup"]),
        *_skipped_table(records),
    ]


def _goal_table(summary: list[dict]) -> Table:
    rows = [
        [
            row["group"],
            row["quantity"],
            row["statistic"],
            row["entries"],
            written(row["measured"], ".0f" if row["measured"] >= 100 else ".2f"),
            row["goal"] or "-",
            verdict(row["met"]),
        ]
        for row in summary
    ]
    return Table("Goals", ["group", "quantity", "statistic", "entries", "measured", "goal", ""], rows, left=4)


def operator_warnings(result: dict) -> list[str]:
    """What has become slower than in the stored results."""
    return [
        f"{row['entry']}, pages {row['pages']}: {row['quantity']} was {row['stored']:.3f} and is "
        f"{row['measured']:.3f}, {row['change'] - 1:.0%} slower."
        for row in (result["baseline"] or {"rows": []})["rows"]
        if row["change"] > SLOWER
    ]


def _baseline_table(baseline: dict | None) -> list[Table]:
    if baseline is None:
        return []
    rows = []
    for row in baseline["rows"]:
        cells = [row["entry"], row["pages"], row["quantity"], f"{row['stored']:.3f}", f"{row['measured']:.3f}"]
        rows.append([*cells, alarm(f"{row['change'] - 1:+.0%}", when=row["change"] > SLOWER)])
    run = baseline["run"]
    note = f"Stored results: commit {(run['commit'] or 'unknown')[:10]}, {run['cpu']}, {run['threads']} threads."
    if not baseline.get("same_processor", True):
        note += " They were measured on another processor and are not compared."
    headers = ["entry", "pages", "quantity", "stored", "measured", "change"]
    return [Table("Compared with the stored results", headers, rows, [note], left=3)]


def _each(records: list[dict]) -> Iterator[tuple[dict, str]]:
    yield from ((record, pages) for record in records for pages in PAGES if pages in record["times"])


def _times(record: dict, contender: str, kind: str, pages: str) -> str:
    timing = record["times"][pages].get(contender, {}).get(kind)
    return "-" if timing is None else f"{milliseconds(timing['best_s'])} / {milliseconds(timing['median_s'])}"


def _step_table(records: list[dict]) -> Table:
    others = ("sonic_recompute", "sonic_border", *RIVALS)
    rows = [
        [
            record["name"],
            pages,
            _times(record, "sonic", TRAIN_STEP, pages),
            *[written(speed_up(record, name, TRAIN_STEP, pages), ".2f", "x") for name in others],
        ]
        for record, pages in _each(records)
    ]
    return Table(
        "Forward + backward: time relative to Sonic",
        ["entry", "pages", f"{PADDED['sonic']}, ms", *[PADDED[name] for name in others]],
        rows,
        [
            "Entries are named axes-C-M-size; padding is in brackets. Milliseconds are best / median; ratios use "
            "the best.",
            (
                "Pages not kept: a new process, like a user's script. Pages kept: a new process that first calls ",
                Code("torchsonic.functional.keep_all_pages()"),
                ", which helps all contenders. All contenders take turns in one process, and ratios are between times "
                "from the same process.",
            ),
        ],
        left=2,
    )


def _floor_table(records: list[dict]) -> Table:
    rows = []
    for record, pages in _each(records):
        ratio, goal = over_floor(record, "sonic", TRAIN_STEP, pages), floor_goal(record) if pages == KEPT else None
        floors = [_times(record, name, TRAIN_STEP, pages) for name in FLOORS]
        cells = [record["name"], pages, _times(record, "sonic", TRAIN_STEP, pages), *floors, written(ratio, ".2f", "x")]
        met = None if goal is None or ratio is None else ratio <= goal
        rows.append([*cells, written(goal, ".2f"), verdict(met)])
    return Table(
        "Forward + backward relative to the floor",
        ["entry", "pages", "Sonic, ms", *FLOORS.values(), "Sonic / floor", "goal", ""],
        rows,
        [
            "The floor is the matrix products (two forward, four backward) and Fourier transforms (two forward, two "
            "backward) of a training step, and nothing else. Products write to preallocated memory. Complex: "
            "transforms of the M complex mode signals. Real: transforms of the C channels, products on half spectra. "
            "oneDNN: as complex, with the products of that library. The fastest floor counts."
        ],
        left=2,
    )


def _forward_table(records: list[dict]) -> Table:
    rows = [
        [
            record["name"],
            pages,
            _times(record, "sonic", FORWARD, pages),
            milliseconds(floor_time(record, FORWARD, pages)),
            *[written(over_floor(record, name, FORWARD, pages), ".2f", "x") for name in ("sonic", "sonic_cached")],
            *[written(speed_up(record, name, FORWARD, pages), ".2f", "x") for name in ("sonic_border", *RIVALS)],
        ]
        for record, pages in _each(records)
    ]
    rivals = [f"{PADDED[name]} / Sonic" for name in ("sonic_border", *RIVALS)]
    return Table(
        "Forward, without gradients",
        ["entry", "pages", "Sonic, ms", "floor, ms", "Sonic / floor", "evaluation mode / floor", *rivals],
        rows,
        ["The floor is for the forward pass only. Evaluation mode caches the responses between calls."],
        left=2,
    )


def _operation_table(records: list[dict]) -> Table:
    counted = ("sonic", "paper_order", "conv3")
    rows = []
    for record in records:
        counts = [record["operations_of_chunk"], *[record["operations"][name] for name in counted]]
        cells = [f"{c['forward']['operations']} + {c['backward']['operations']}" for c in counts]
        cells += [f"{(c['forward']['bytes'] + c['backward']['bytes']) / 1e6:.0f}" for c in counts[1:]]
        rows.append([record["name"], *cells])
    return Table(
        "Operations and bytes of a training step",
        [
            "entry",
            "Sonic, one chunk, operations",
            *[f"{LABELS[name]}, operations" for name in counted],
            *[f"{LABELS[name]}, MB" for name in counted],
        ],
        rows,
        [
            "Operations that PyTorch dispatches, forward + backward, including those inside autograd functions and "
            "custom operators. Views and bookkeeping do not count: view, expand, transpose, slice, unflatten, select, "
            "detach, alias, as_strided, empty and the like. One chunk: one sample of at most 16 px a side. Megabytes "
            "are the sizes of the tensors that these operations read and write; expanded tensors count with their "
            "size in memory, and what an operation allocates internally is not included.",
            "Tensors that a layer reuses between calls, such as frequencies, are recomputed while operations are "
            "counted, so they are included.",
        ],
    )


def _accuracy_table(records: list[dict]) -> Table:
    kinds = list(records[0]["accuracy"]["sonic"]) if records else []
    rows = []
    for record in records:
        accuracy = record["accuracy"]
        pairs = [f"{accuracy['sonic'][kind]:.1e} / {accuracy['paper_order'][kind]:.1e}" for kind in kinds]
        flagged = alarm(f"above: {', '.join(accuracy['flagged'])}") if accuracy["flagged"] else "ok"
        wrong = [f"{LABELS[name]}: {found}" for name, found in record["checks"].items() if found != "ok"]
        worst = f"{accuracy['worst']['sonic']:.1e} / {accuracy['worst']['paper_order']:.1e}"
        rows.append([record["name"], *pairs, flagged, worst, alarm("; ".join(wrong)) if wrong else "ok"])
    return Table(
        "float32 error: Sonic / paper's order",
        ["entry", *kinds, "at most twice", "worst draw", "outputs finite and of the right shape"],
        rows,
        [
            "max|a - b| / max|b| relative to the same step in float64 (for Sonic, in another order of evaluation): "
            "geometric means over several draws of parameters and inputs, and over the tensors of a kind."
        ],
    )


def _saved_table(records: list[dict]) -> Table:
    rows = []
    for record in records:
        cells = [record["name"]]
        for name, recompute in (("sonic", False), ("sonic_recompute", True)):
            saved, goal = record["saved"][name], saved_goal(record, recompute=recompute)
            cells += [alarm(f"{saved:.3f}", when=saved > goal), f"{goal:.3f}"]
        rows.append([*cells, *[f"{record['saved'][name]:.3f}" for name in ("paper_order", "conv3")]])
    headers = ["entry", "Sonic", "goal", "Sonic, recompute", "goal", LABELS["paper_order"], LABELS["conv3"]]
    return Table("Bytes saved for the backward pass / bytes of the input", headers, rows)


def _startup_table(startup: dict[str, float]) -> Table:
    rows = [[words, f"{startup[name]:.3f}"] for name, words in STARTUP.items()]
    return Table("Process start-up", ["what", "seconds"], rows, ["Best of several new processes, with files cached."])


def _skipped_table(records: list[dict]) -> list[Table]:
    rows = [[r["name"], LABELS[name], reason] for r in records for name, reason in r["skipped"].items()]
    return [Table("Not measured", ["entry", "contender", "reason"], rows, left=3)] if rows else []
