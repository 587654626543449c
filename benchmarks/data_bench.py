"""How fast the synthetic images are made, by one process and by several."""

from __future__ import annotations

import time
from collections.abc import Sequence
from multiprocessing import get_context

import torch

from benchmarks.figures import COLOURS, Figure, draw_bars, new_figure
from benchmarks.progress import progress_bar
from benchmarks.tables import Table, verdict
from torchsonic.lab.data import HalliGalli, SynthShape
from torchsonic.lab.runs.provenance import describe_run

__all__ = ["data_tables", "draw_data", "run_data_bench"]

DATA = {"SynthShape": SynthShape(), "HalliGalli": HalliGalli()}
BATCH, GOAL = 50, 2000


def _render(job: tuple[str, int]) -> None:
    name, start = job
    DATA[name].samples(range(start, start + BATCH))


def _one_thread() -> None:
    torch.set_num_threads(1)


def run_data_bench(processes: Sequence[int], *, images: int, repeats: int, seed: int = 0) -> dict:
    """Images per second of each task and number of processes, best of some rounds; rounds are interleaved."""
    run = describe_run(seed=seed, device=torch.device("cpu"))
    best: dict[tuple[str, int], float] = {}
    with progress_bar("rendering", repeats * len(processes) * len(DATA)) as part:
        for _ in range(repeats):
            for count in processes:
                # Spawned, since a process that has started threads must not be forked.
                with get_context("spawn").Pool(count, _one_thread) as pool:
                    for name in DATA:
                        done = part(f"{name}, {count} processes", 1.0)
                        pool.map(_render, [(name, 0)] * count, chunksize=1)  # imports and first touches
                        start = time.perf_counter()
                        pool.map(_render, [(name, BATCH * i) for i in range(images // BATCH)], chunksize=1)
                        speed = images / (time.perf_counter() - start)
                        best[name, count] = max(speed, best.get((name, count), 0.0))
                        done(1.0)
    rows = [{"data": n, "processes": c, "images_per_second": s} for (n, c), s in best.items()]
    return {"kind": "data", "run": run, "images": images, "repeats": repeats, "rows": rows}


def data_tables(result: dict) -> list[Table]:
    rows = []
    for row in result["rows"]:
        goal = row["data"] == "SynthShape" and row["processes"] == 2
        met = row["images_per_second"] >= GOAL if goal else None
        rows.append([row["data"], str(row["processes"]), f"{row['images_per_second']:,.0f}", verdict(met)])
    note = f"64 x 64 pixels, batches of {BATCH}, {result['images']} images, best of {result['repeats']}."
    return [Table("Making images", ["data", "processes", "images/s", f"goal {GOAL:,}"], rows, [note])]


def draw_data(result: dict) -> Figure:
    names = list(dict.fromkeys(row["data"] for row in result["rows"]))
    counts = sorted({row["processes"] for row in result["rows"]})
    speed = {(row["data"], row["processes"]): row["images_per_second"] for row in result["rows"]}
    figure, (panel,) = new_figure(1, 1, width=7, height=3.6)
    titles = {count: f"{count} {'process' if count == 1 else 'processes'}" for count in counts}
    colours = dict(zip(titles.values(), COLOURS.values(), strict=False))
    draw_bars(panel, names, {titles[c]: [speed.get((n, c)) for n in names] for c in counts}, colours)
    panel.axhline(GOAL, color="0.3", linewidth=0.8, linestyle="--")
    panel.set(title="Making images of 64 x 64 pixels", ylabel="images per second")
    panel.legend(frameon=False)
    return figure
