"""Tables and figure of the benchmark of networks for volumes, from its result."""

from __future__ import annotations

from benchmarks.figures import COLOURS, Figure, draw_bars, new_figure, use_log_scale
from benchmarks.tables import Table, verdict
from benchmarks.volumes_bench import PAPER, PAPER_BYTES, REFERENCE, UNET
from torchsonic.lab.report import Code

__all__ = ["draw_volumes", "volumes_tables"]


def volumes_tables(result: dict) -> list[Table]:
    kept = result.get("pages_kept", False)
    return [_goal_table(result), *[_patch_table(record, pages_kept=kept) for record in result["patches"]]]


def _reference(record: dict) -> str:
    return record.get("reference", REFERENCE)  # earlier results compared with one network alone


def _named(record: dict) -> dict[str, dict]:
    return {network["name"]: network for network in record["networks"]}


def _ratio(record: dict, name: str, quantity: str) -> float:
    networks = _named(record)
    return networks[name][quantity] / networks[_reference(record)][quantity]


def _title(record: dict) -> str:
    return f"{' x '.join(map(str, record['size']))} voxels, batch {record['batch']}"


def _goal_table(result: dict) -> Table:
    rows = []
    for record in result["patches"]:
        bounds = record.get("goals", (1 / 2, 1 / 3))
        for quantity, words, bound in zip(("best_s", "peak_bytes"), ("time", "peak memory"), bounds, strict=True):
            default = record["networks"][0]["name"]  # earlier results had another one
            ratio = _ratio(record, default, quantity)
            cells = [_title(record), f"{words} of {default} / {_reference(record)}"]
            rows.append([*cells, f"{ratio:.2f}", f"<= {bound:.2f}", verdict(ratio <= bound)])
        if tuple(record["size"]) == (96, 96, 96) and PAPER in _named(record):
            peak = _named(record)[PAPER]["peak_bytes"]
            cells = [_title(record), f"peak memory of {PAPER}, GB"]
            rows.append([*cells, f"{peak / 1e9:.2f}", f"<= {PAPER_BYTES / 1e9:.0f}", verdict(peak <= PAPER_BYTES)])
    return Table("Goals", ["patch", "quantity", "measured", "goal", ""], rows, left=2)


def _patch_table(record: dict, *, pages_kept: bool) -> Table:
    over = f"/ {_reference(record).removeprefix('nnU-Net ')}"
    headers = ["network", "parameters, M", "GFLOPs", "step, s", over, "peak, GB", over]
    rows = [
        [
            network["name"],
            f"{network['parameters'] / 1e6:.3f}",
            f"{network['flops'] / 1e9:.3g}",
            f"{network['best_s']:.2f} / {network['median_s']:.2f} ({network['samples']})",
            f"{_ratio(record, network['name'], 'best_s'):.3f}",
            f"{network['peak_bytes'] / 1e9:.2f}",
            f"{_ratio(record, network['name'], 'peak_bytes'):.3f}",
        ]
        for network in record["networks"]
    ]
    spacing = " x ".join(f"{step:g}" for step in record["spacing"])
    note: list[str | Code] = [
        f"Voxels of {spacing} mm. A step is forward and backward in training mode, with gradients of all parameters "
        "but no optimiser step: best / median (samples), interleaved; ratios use the best. GFLOPs are for one patch, "
        "forward, including transforms. Peak of bytes allocated by PyTorch, including parameters, input and gradients, "
        "but not what oneDNN allocates within a convolution. ResEnc L and DynUNet have the stages that nnU-Net plans "
        "for the patch."
    ]
    if record.get("margin"):
        note += [f" Sonic networks have a margin of {record['margin']} zeros unless marked as wrapping."]
    if UNET in _named(record):
        note += [" MONAI UNet has the levels and strides that ", Code("train volumes --model unet"), " gives it."]
    if pages_kept:
        note += [" Freed memory is kept for reuse, as in training."]
    if record.get("once"):
        note += [
            f" {', '.join(record['once'])}: one step only, timed while memory was measured, which makes it slower."
        ]
    return Table(_title(record), headers, rows, [tuple(note)])


def draw_volumes(result: dict) -> Figure:
    """One panel for each patch: time and memory over those of the reference."""
    records = result["patches"]
    figure, panels = new_figure(len(records), 1, width=10.0, height=3.8 * len(records))
    labels = {"best_s": "time of a step", "peak_bytes": "peak memory"}
    colours = dict(zip(labels.values(), (COLOURS["sonic"], COLOURS["paper_order"]), strict=True))
    for panel, record in zip(panels, records, strict=True):
        networks = [network["name"] for network in record["networks"]]
        bars: dict[str, list[float | None]] = {
            label: [_ratio(record, name, quantity) for name in networks] for quantity, label in labels.items()
        }
        draw_bars(
            panel, [name.replace(", ", ",\n").replace(" ", "\n", 1) for name in networks], bars, colours, baseline=1
        )
        use_log_scale(panel)
        panel.set(ylabel=f"over {_reference(record)}", title=f"{_title(record)} (below 1: cheaper)")
        panel.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False)
    return figure
