"""How time and memory of a block grow with the image, the channels and the modes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from benchmarks.blocks import conv_block, sonic_block, transformer_block
from benchmarks.memory import peak_bytes, storage_bytes
from benchmarks.progress import progress_bar
from benchmarks.timing import Task, measure, training_step
from torchsonic.lab.metrics import paper_results
from torchsonic.lab.runs.provenance import describe_run

__all__ = ["FULL", "QUICK", "Sweeps", "fit_line", "run_scaling_bench"]

CHANNELS, MODES = 64, 16
TIME_LIMIT, MEMORY_LIMIT = 20.0, 6e9
POINT_BUDGET = 60.0
PAPER_FIGURES = ("block_runtime_ms", "block_peak_memory_mb")


@dataclass(frozen=True)
class Sweeps:
    """The values on each horizontal axis; channels and modes vary at ``pixels_fixed`` and ``batch_fixed``."""

    pixels: tuple[int, ...]
    channels: tuple[int, ...]
    modes: tuple[int, ...]
    pixels_fixed: int = 128
    batch_fixed: int = 4
    modes_fixed: int = 16
    channels_fixed: int = 128


# All sweeps stay at 2M <= C, where the order of evaluation is the same for all points.
FULL = Sweeps(
    pixels=(64, 96, 128, 160, 192, 224, 256, 320, 384, 448, 512),
    channels=(32, 64, 96, 128, 160, 192, 224, 256),
    modes=(8, 16, 24, 32, 40, 48, 56, 64),
)
QUICK = Sweeps(pixels=(64, 96, 128), channels=(32, 64, 96), modes=(8, 16, 24), pixels_fixed=64, batch_fixed=1)


def run_scaling_bench(sweeps: Sweeps, *, repeats: int = 7, seed: int = 0, device: str = "cpu") -> dict:
    """Measure blocks over image sizes, and a Sonic block over channels and over modes.

    Returns
    -------
    dict
        ``run``, ``resolution``, ``sweeps`` and the paper's figures under ``paper``; see ``report``.
    """
    where = torch.device(device)
    run = describe_run(seed=seed, device=where)
    torch.manual_seed(seed)
    points = sum(px**2 for px in sweeps.pixels)
    sweep_weight = points / 4
    with progress_bar("scaling", points + 2 * sweep_weight) as part:
        resolution = _over_pixels(sweeps.pixels, repeats, where, lambda px: part(f"{px} px", px**2))
        varied = {}
        for name, values in (("channels", sweeps.channels), ("modes", sweeps.modes)):
            varied[name] = _over(name, values, sweeps, repeats, where, part(name, sweep_weight))
    return {
        "kind": "scaling",
        "run": run,
        "repeats": repeats,
        "resolution": resolution,
        "sweeps": varied,
        "paper": {name: figure for name, figure in paper_results().items() if name in PAPER_FIGURES},
    }


def _step(block: nn.Module, batch: int, channels: int, pixels: int, device: torch.device) -> tuple[Callable, int]:
    """A training step, and the bytes that are allocated before it begins."""
    x = torch.randn(batch, channels, pixels, pixels, device=device, requires_grad=True)
    with torch.no_grad():
        grad_y = torch.randn_like(block(x))
    held: list[Tensor] = [x, grad_y, *block.parameters(), *block.buffers()]
    return lambda: training_step(block, x, grad_y), storage_bytes(held)


def _over_pixels(
    pixels: Sequence[int], repeats: int, device: torch.device, advance: Callable[[int], Callable[[float], None]]
) -> dict:
    blocks = {
        "sonic": sonic_block(CHANNELS, MODES).to(device),
        "sonic_recompute": sonic_block(CHANNELS, MODES, recompute=True).to(device),
        "conv3": conv_block(CHANNELS).to(device),
        "vit": transformer_block(CHANNELS).to(device),
    }
    found: dict[str, list[dict]] = {name: [] for name in blocks}
    stopped: dict[str, str] = {}
    for px in pixels:
        on_progress = advance(px)
        for name in blocks:
            if name not in stopped and (reason := _too_much(found[name], px)):
                stopped[name] = reason
        steps = {name: _step(blocks[name], 1, CHANNELS, px, device) for name in blocks if name not in stopped}
        tasks = [Task(name, "train_step", step) for name, (step, _) in steps.items()]
        measure(tasks, repeats=repeats, budget=POINT_BUDGET, device=device, on_progress=on_progress)
        for task in tasks:
            step, held = steps[task.contender]
            found[task.contender].append(
                {"pixels": px, **task.summary(), "peak_bytes": held + peak_bytes(step, device)}
            )
    return {"batch": 1, "channels": CHANNELS, "modes": MODES, "blocks": found, "stopped": stopped}


def _too_much(points: list[dict], px: int) -> str | None:
    """Why the next size should not be tried, by the power law through the last two points."""
    if len(points) < 2:
        return None
    before, last = points[-2:]
    steps = math.log(px / last["pixels"]) / math.log(last["pixels"] / before["pixels"])
    for key, limit, unit in (("best_s", TIME_LIMIT, "s"), ("peak_bytes", MEMORY_LIMIT, "B")):
        expected = last[key] * max(1.0, last[key] / before[key]) ** steps
        if expected > limit:
            return f"from {px} px on: would take about {expected:.2g} {unit} (limit {limit:.2g} {unit})"
    return None


def _over(
    name: str, values: Sequence[int], sweeps: Sweeps, repeats: int, device: torch.device, on_progress: Callable
) -> dict:
    """Time and memory of a Sonic block over channels or modes, all points interleaved, with straight-line fits."""
    px, batch = sweeps.pixels_fixed, sweeps.batch_fixed
    steps = []
    for value in values:
        channels, modes = (value, sweeps.modes_fixed) if name == "channels" else (sweeps.channels_fixed, value)
        steps.append(_step(sonic_block(channels, modes).to(device), batch, channels, px, device))
    tasks = [Task(str(value), "train_step", step) for value, (step, _) in zip(values, steps, strict=True)]
    measure(tasks, repeats=repeats, budget=POINT_BUDGET, device=device, on_progress=on_progress)
    times = [min(task.samples) for task in tasks]
    peaks = [held + peak_bytes(step, device) for step, held in steps]
    fixed = {"modes": sweeps.modes_fixed} if name == "channels" else {"channels": sweeps.channels_fixed}
    return {
        "fixed": {**fixed, "pixels": px, "batch": batch},
        "values": list(values),
        "best_s": times,
        "peak_bytes": peaks,
        "fits": {"best_s": fit_line(values, times), "peak_bytes": fit_line(values, peaks)},
    }


def fit_line(x: Sequence[float], y: Sequence[float]) -> dict[str, float]:
    """Least-squares line: slope, intercept and the fraction ``r2`` of the variance that it explains."""
    a, b = torch.tensor([x, y], dtype=torch.float64)
    slope = ((a - a.mean()) * (b - b.mean())).sum() / (a - a.mean()).square().sum()
    intercept = b.mean() - slope * a.mean()
    rest = (b - slope * a - intercept).square().sum() / (b - b.mean()).square().sum()
    return {"slope": slope.item(), "intercept": intercept.item(), "r2": 1 - rest.item()}
