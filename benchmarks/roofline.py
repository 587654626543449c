"""How long a training step would take at the published speed of a device: a prediction, never a measurement.

Each operation takes the longest of three times: to move its bytes at the device's bandwidth, to do its flops at the
device's peak, and to be launched. Nothing overlaps, nothing stays in a cache, and both rates are reached, which
libraries do not quite do. How far to trust this can be seen on this CPU, where the prediction stands beside a
measurement.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import NamedTuple

import torch

from benchmarks.costs import MODULES, Cost, attention_costs, costs_on_cpu, costs_on_fake_cuda
from benchmarks.entries import Entry
from benchmarks.progress import progress_bar
from benchmarks.timing import Task, measure, training_step
from torchsonic.engine.memory import keep_all_pages
from torchsonic.lab.runs.provenance import describe_run

__all__ = ["DEVICES", "Device", "predict", "run_roofline"]


class Device(NamedTuple):
    """Published rates in float32 without tensor cores, and the time between two launches."""

    bandwidth: float
    peak: float
    launch: float = 5e-6


DEVICES = {
    "A100 80 GB": Device(2.039e12, 19.5e12),
    "H100 SXM": Device(3.35e12, 67e12),
    "MI300X": Device(5.3e12, 163.4e12),
    "RTX 4090": Device(1.008e12, 82.6e12),
}
"""Memory bandwidth and peak as the makers publish them."""
CPU_LAUNCH = 2e-6
COPY_BYTES = 1 << 28


def predict(costs: Sequence[Cost], device: Device) -> float:
    """Seconds that a step takes at least."""
    return sum(max(cost.bytes / device.bandwidth, cost.flops / device.peak, device.launch) for cost in costs)


def measure_cpu() -> Device:
    """Bandwidth of this CPU, by a copy, and its peak, by a product of matrices or a convolution."""
    source, target = torch.ones(COPY_BYTES // 4), torch.zeros(COPY_BYTES // 4)
    a, image, kernel = torch.randn(1024, 1024), torch.randn(8, 64, 64, 64), torch.randn(64, 64, 3, 3)
    copy = _best(lambda: target.copy_(source))
    product = 2 * 1024**3 / _best(lambda: a @ a)
    convolution = 2 * 9 * 64 * image.numel() / _best(lambda: torch.conv2d(image, kernel, padding=1))
    return Device(2 * COPY_BYTES / copy, max(product, convolution), CPU_LAUNCH)


def _best(call, runs: int = 5) -> float:
    times = []
    for _ in range(runs):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return min(times)


def run_roofline(entries: Sequence[Entry], *, repeats: int = 5, seed: int = 0, budget: float = 20.0) -> dict:
    """Predictions for all sizes and devices, and the measurement on this CPU.

    Returns
    -------
    dict
        ``run``, ``devices`` with their rates, and ``rows``: size, contender, operations, bytes and flops on CUDA,
        predicted seconds by device, ``cpu_predicted`` and ``cpu_measured``.
    """
    torch.manual_seed(seed)
    run, rows, cpu = describe_run(seed=seed, device=torch.device("cpu")), [], measure_cpu()
    keep_all_pages()
    on_cuda = costs_on_fake_cuda(list(entries))
    with progress_bar("roofline", len(entries)) as part:
        for entry in entries:
            advance = part(entry.name, 1.0)
            counted = {**on_cuda[entry.name], "attention": attention_costs(entry)}
            measured = _measure(entry, repeats, budget)
            for name, costs in counted.items():
                own = costs if name == "attention" else costs_on_cpu(name, entry)
                rows.append({
                    "size": entry.name,
                    "contender": name,
                    "operations": len(costs),
                    "bytes": sum(cost.bytes for cost in costs),
                    "flops": sum(cost.flops for cost in costs),
                    "predicted": {label: predict(costs, device) for label, device in DEVICES.items()},
                    "cpu_predicted": predict(own, cpu),
                    "cpu_measured": measured.get(name),
                })  # fmt: skip
            advance(1.0)
    rates = {name: device._asdict() for name, device in {**DEVICES, "this CPU": cpu}.items()}
    return {"kind": "roofline", "run": run, "devices": rates, "rows": rows}


def _measure(entry: Entry, repeats: int, budget: float) -> dict[str, float]:
    x, grad_y = torch.randn(entry.shape, requires_grad=True), torch.randn(entry.shape)
    modules = {name: make(entry) for name, make in MODULES.items()}
    tasks = [
        Task(name, "train_step", lambda module=module: training_step(module, x, grad_y))
        for name, module in modules.items()
    ]
    measure(tasks, repeats=repeats, budget=budget)
    return {task.contender: min(task.samples) for task in tasks}
