"""Tables and figure of the benchmark of whole models, from its result."""

from __future__ import annotations

from benchmarks.figures import COLOURS, Figure, draw_bars, new_figure, use_log_scale
from benchmarks.models_bench import FORWARD, TRAIN, time_ratio
from benchmarks.tables import Table, milliseconds, verdict, written
from torchsonic.lab.metrics import paper_results
from torchsonic.models import model_entry

__all__ = ["draw_models", "models_tables"]

LABELS = {FORWARD: "forward", TRAIN: "forward + backward"}


def models_tables(result: dict) -> list[Table]:
    goals = [_goal_table(result["summary"])] if result["summary"] else []
    kept = result.get("pages_kept", False)
    both = [(_group_table(record, pages_kept=kept), _paper_table(record)) for record in result["groups"]]
    tables = [table for pair in both for table in pair if table]
    return [*goals, *tables]


def _goal_table(summary: list[dict]) -> Table:
    rows = [
        [row["group"], row["quantity"], written(row["measured"]), row["goal"], verdict(row["met"])] for row in summary
    ]
    return Table("Goals", ["group", "quantity", "measured", "goal", ""], rows, left=2)


def _kinds(record: dict) -> list[str]:
    return [kind for kind in LABELS if any(kind in model["times"] for model in record["models"])]


def _speed(record: dict, model: dict, kind: str) -> float | None:
    """Images per second over those of the reference."""
    ratio = time_ratio(record, model["name"], kind)
    return None if ratio is None else 1 / ratio


def _group_table(record: dict, *, pages_kept: bool) -> Table:
    kinds = _kinds(record)
    headers = ["model", "parameters, M", "GFLOPs"]
    for kind in kinds:
        headers += [f"{LABELS[kind]}, ms", "images/s", "/ plain conv"]
    if TRAIN in kinds:
        headers.append("peak, MB")
    rows = []
    for model in record["models"]:
        cells = [model["name"], f"{model['parameters'] / 1e6:.3f}", f"{model['flops'] / 1e9:.3g}"]
        for kind in kinds:
            timing = model["times"][kind]
            cells.append(f"{milliseconds(timing['best_s'])} / {milliseconds(timing['median_s'])}")
            cells.append(f"{record['batch'] / timing['best_s']:.3g}")
            cells.append(written(_speed(record, model, kind), ".2f", "x"))
        if TRAIN in kinds:
            cells.append(written(model["peak_bytes"] / 1e6, ".0f"))
        rows.append(cells)
    size = f"{record['image_size']} x {record['image_size']} px, batch {record['batch']}"
    notes = [
        f"Ratios are to the images/s of {record['reference']}. Milliseconds per batch are best / median; images/s and "
        "ratios use the best. GFLOPs are for one image, forward, including transforms. Forward is in evaluation mode; "
        "forward + backward is in training mode, with gradients of all parameters but no optimiser step. Peak is the "
        "peak of allocated bytes, including parameters and input."
        + (" Freed memory is kept for reuse, as in training." if pages_kept else "")
    ]
    return Table(f"{record['group']}: {size}", headers, rows, notes)


def _paper_table(record: dict) -> Table | None:
    """Costs and speeds beside the paper's, as ratios to the reference of each; ``None`` if the paper has no speeds."""
    rows = {model["name"]: _paper_row(model["name"]) for model in record["models"]}
    reference = rows.get(record["reference"])
    if reference is None:
        return None
    own = next(model for model in record["models"] if model["name"] == record["reference"])
    kinds = _kinds(record)
    headers = ["model", "paper's row", "parameters, M", "paper", "GFLOPs", "paper", "GFLOPs ratio", "paper"]
    headers += [f"{LABELS[kind]}, images/s ratio" for kind in kinds] + ["paper"]
    headers += ["peak ratio"] if TRAIN in kinds else []
    cells = []
    for model in record["models"]:
        paper = rows[model["name"]]
        row = [model["name"], "-" if paper is None else paper["row"]]
        row += [f"{model['parameters'] / 1e6:.2f}", _of(paper, "params_millions")]
        row += [f"{model['flops'] / 1e9:.2f}", _of(paper, "gflops")]
        row += [f"{model['flops'] / own['flops']:.2f}", _ratio(paper, reference, "gflops")]
        row += [written(_speed(record, model, kind), ".2f") for kind in kinds]
        row.append(_ratio(paper, reference, "images_per_second"))
        row += [f"{model['peak_bytes'] / own['peak_bytes']:.2f}"] if TRAIN in kinds else []
        cells.append(row)
    note = (
        f"Ratios are relative to {record['reference']} in the same run, and for the paper to its {reference['row']}. "
        "The paper does not say on which machine its images/s were measured, nor whether forward or in training. Above "
        "1 means faster for images/s, and costlier for GFLOPs and peak."
    )
    return Table(f"{record['group']}: compared with the paper", headers, cells, [note])


def _paper_row(name: str) -> dict | None:
    """What the paper's table of classifiers says of a model."""
    base, _, preset = name.partition(".")
    entry, _ = model_entry(base)
    row = entry.paper.get(preset)
    table = paper_results()["imagenet_50m"]
    if row not in table["rows"] or entry.task != "classification":
        return None
    return {"row": row, **dict(zip(table["columns"], table["rows"][row], strict=True))}


def _of(paper: dict | None, column: str) -> str:
    return "-" if paper is None else f"{paper[column]:g}"


def _ratio(paper: dict | None, reference: dict, column: str) -> str:
    return "-" if paper is None else f"{paper[column] / reference[column]:.2f}"


def draw_models(result: dict) -> Figure:
    """One panel for each group: images per second over those of plain convolution."""
    records = result["groups"]
    widest = max(len(record["models"]) for record in records)
    figure, panels = new_figure(len(records), 1, width=max(9.0, 1.0 * widest + 2.0), height=4.2 * len(records))
    for panel, record in zip(panels, records, strict=True):
        names = [_wrapped(model["name"]) for model in record["models"]]
        bars = {LABELS[kind]: [_speed(record, model, kind) for model in record["models"]] for kind in _kinds(record)}
        colours = dict(zip(LABELS.values(), (COLOURS["sonic"], COLOURS["paper_order"]), strict=True))
        draw_bars(panel, names, bars, colours, baseline=1.0)
        use_log_scale(panel)
        panel.tick_params(axis="x", labelsize="small")
        panel.set_ylabel(f"images/s / {record['reference']}")
        panel.set_title(f"{record['group']}: {record['image_size']} px, batch {record['batch']} (above 1: faster)")
        panel.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False)
    return figure


def _wrapped(name: str) -> str:
    return name.replace("_", "\n").replace(".", "\n.")
