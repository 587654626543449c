"""Images per second that trained classifiers answer: ``python -m recipes.throughput RUN.. --out speed.json``.

All networks take turns, so that what else the machine does hits all alike.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from benchmarks.timing import Task, measure
from torchsonic.io import write_whole
from torchsonic.lab.runs.images import load_run

__all__ = ["measure_throughput"]


def measure_throughput(runs: Sequence[Path], *, batch: int, seconds: float, device: str) -> dict[str, Any]:
    """Forward passes in evaluation at the training size; the median of seven rounds."""
    where, tasks = torch.device(device), []
    for run in runs:
        model, config, _ = load_run(run)
        model.to(where).eval()
        images = torch.randn(batch, 3, config.image_size, config.image_size, device=where)
        tasks.append(Task(str(run), "forward", lambda model=model, images=images: model(images)))
    with torch.inference_mode():
        measure(tasks, repeats=7, budget=seconds * len(tasks), device=where)
    found = {task.contender: batch / task.summary()["median_s"] for task in tasks}
    name = torch.cuda.get_device_name(where) if where.type == "cuda" else where.type
    return {"images_per_second": found, "batch": batch, "device": name}


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--seconds", type=float, default=30.0, help="for each network, at most")
    parser.add_argument("--device", default="cuda")
    options = parser.parse_args()
    asked = {"batch": options.batch, "seconds": options.seconds, "device": options.device}
    write_whole(options.out, json.dumps(measure_throughput(options.runs, **asked), indent=1) + "\n")
    print("written:", options.out)


if __name__ == "__main__":
    main()
