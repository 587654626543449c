"""Round-robin timing: every call is measured once in each round, so that slow drifts of the machine hit all alike."""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from statistics import median

import torch
from torch import Tensor, nn

__all__ = ["Task", "measure", "training_step"]

# A sample shorter than this is repeated within the sample: timers and schedulers are no finer.
SHORTEST_SAMPLE = 0.02
# A call longer than this has warmed up whatever there is to warm up.
LONG_CALL = 1.0
# A first call longer than this many shares of the time is not repeated; a shorter one may have met other work.
TOO_SLOW = 4.0


@dataclass
class Task:
    """A call to be timed, and the seconds per call of its samples."""

    contender: str
    kind: str
    call: Callable[[], object]
    most_samples: int | None = None
    """Rounds after which the call is left out; by default it takes part in all."""
    samples: list[float] = field(default_factory=list)
    calls_per_sample: int = 1

    def summary(self) -> dict[str, float | int]:
        return {
            "best_s": min(self.samples),
            "median_s": median(self.samples),
            "samples": len(self.samples),
            "calls_per_sample": self.calls_per_sample,
        }


def _seconds(call: Callable[[], object], calls: int, device: torch.device) -> float:
    start = time.perf_counter()
    for _ in range(calls):
        call()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return (time.perf_counter() - start) / calls


def measure(
    tasks: list[Task],
    *,
    repeats: int,
    budget: float,
    device: torch.device | None = None,
    on_progress: Callable[[float], None] = lambda fraction: None,
) -> None:
    """Fill in the samples of all tasks.

    Parameters
    ----------
    repeats
        Rounds.
    budget
        Seconds that all tasks together may take, shared equally. A task that has used up its share is left out of
        further rounds after its third sample; one whose first two calls exceed it keeps them as its only samples.
    on_progress
        Told the fraction of the work done since the last time.
    """
    device = device or torch.device("cpu")
    share = budget / len(tasks)
    step = 1 / (len(tasks) * (repeats + 2))
    enabled = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        first = []
        for task in tasks:
            first.append(_seconds(task.call, 1, device))
            on_progress(step)
        for task, seconds in zip(tasks, first, strict=True):
            if seconds > TOO_SLOW * share:
                task.samples.append(seconds)
            elif seconds < LONG_CALL or seconds > share:
                estimate = _seconds(task.call, 1, device)
                if estimate > share:
                    task.samples += [seconds, estimate]
                task.calls_per_sample = max(1, math.ceil(SHORTEST_SAMPLE / estimate))
            on_progress(step)
        slow = {id(task) for task in tasks if task.samples}
        for turn in range(repeats):
            # Starting elsewhere each time gives every call different predecessors.
            for task in _rotated(tasks, turn):
                spent, taken = sum(task.samples) * task.calls_per_sample, len(task.samples)
                done = (spent > share and taken >= 3) or taken == task.most_samples
                if id(task) not in slow and not done:
                    task.samples.append(_seconds(task.call, task.calls_per_sample, device))
                on_progress(step)
    finally:
        if enabled:
            gc.enable()


def _rotated(tasks: list[Task], turn: int) -> Iterable[Task]:
    shift = turn % len(tasks)
    return tasks[shift:] + tasks[:shift]


def training_step(module: nn.Module, x: Tensor, grad_y: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
    """Output, and gradients of ``x`` if it wants one and of all parameters."""
    y = module(x)
    wanted = [x] if x.requires_grad else []
    return y, torch.autograd.grad(y, [*wanted, *module.parameters()], grad_y)
