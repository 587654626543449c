"""One size of the operator benchmark in a process of its own: ``python -m benchmarks.operator_entry JSON``."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from benchmarks.accuracy import check_output, compare_errors
from benchmarks.contenders import CONTENDERS, FORWARD, PASSES, TRAIN_STEP, UnavailableError
from benchmarks.entries import KEPT, Entry
from benchmarks.floor import FLOORS
from benchmarks.memory import saved_bytes
from benchmarks.operations import count_step
from benchmarks.timing import Task, measure, training_step
from torchsonic.functional import keep_all_pages

__all__ = ["Settings", "measure_apart"]

SAVED_BY = ("sonic", "sonic_recompute", "paper_order", "conv3")
COUNTED = ("sonic", "paper_order", "conv3")
DETAILS_SHARE = 0.25
CORNER = 16  # samples along an axis that are few enough for one chunk


@dataclass(frozen=True)
class Settings:
    """How to measure an entry; ``details`` asks for accuracy, memory and operations besides times."""

    pages: str
    details: bool
    repeats: int
    seed: int
    device: str
    budget: float
    threads: int


def measure_apart(entry: Entry, settings: Settings, advance: Callable[[float], None]) -> dict:
    """Measure an entry in a fresh process, whose allocator has seen nothing else."""
    command = [sys.executable, "-m", "benchmarks.operator_entry", json.dumps([asdict(entry), asdict(settings)])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    line = ""
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env=environment, cwd=Path(__file__).parents[1]
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if not line.startswith("{"):
                advance(float(line))
    if process.returncode != 0:
        raise RuntimeError(f"measuring {entry.name} ended with code {process.returncode}; see above")
    return json.loads(line)


def _measure_entry(entry: Entry, settings: Settings, advance: Callable[[float], None]) -> dict:
    device = torch.device(settings.device)
    modules, skipped = _build(entry, settings.seed, device)
    generator = torch.Generator().manual_seed(settings.seed)
    x, grad_y = (torch.randn(entry.shape, generator=generator).to(device) for _ in range(2))
    share = 1 - DETAILS_SHARE * settings.details
    tasks = _tasks(entry, modules, x.detach().requires_grad_(), grad_y)
    measure(
        tasks,
        repeats=settings.repeats,
        budget=settings.budget,
        device=device,
        on_progress=lambda fraction: advance(share * fraction),
    )
    times: dict[str, dict] = {}
    for task in tasks:
        times.setdefault(task.contender, {})[task.kind] = task.summary()
    found = {"times": times, "skipped": skipped}
    if settings.details:
        found |= _details(entry, modules, x, grad_y)
        advance(DETAILS_SHARE)
    return found


def _details(entry: Entry, modules: dict[str, nn.Module], x: Tensor, grad_y: Tensor) -> dict:
    accuracy = compare_errors(entry, modules["sonic"], modules["paper_order"], x, grad_y)
    with torch.no_grad():
        checks = {name: check_output(module(x), entry) for name, module in modules.items()}
    leaf = x.detach().requires_grad_()
    corner = (slice(1), slice(None), *[slice(CORNER)] * entry.num_axes)
    return {
        "accuracy": accuracy,
        "checks": checks,
        "saved": {name: saved_bytes(modules[name], leaf) / x.nbytes for name in SAVED_BY},
        "operations": {name: count_step(modules[name], leaf, grad_y) for name in COUNTED},
        "operations_of_chunk": count_step(
            modules["sonic"], x[corner].clone().requires_grad_(), grad_y[corner].contiguous()
        ),
    }


def _build(entry: Entry, seed: int, device: torch.device) -> tuple[dict[str, nn.Module], dict[str, str]]:
    modules: dict[str, nn.Module] = {}
    skipped: dict[str, str] = {}
    for contender in CONTENDERS:
        torch.manual_seed(seed)  # the same parameters for all that share them
        try:
            modules[contender.name] = contender.build(entry).to(device)
        except UnavailableError as reason:
            skipped[contender.name] = str(reason)
    return modules, skipped


def _tasks(entry: Entry, modules: dict[str, nn.Module], x: Tensor, grad_y: Tensor) -> list[Task]:
    """Pass by pass, so that calls to be compared follow each other."""
    floors = {name: build(entry, x.device) for name, build in FLOORS.items()}
    tasks = []
    for kind in PASSES:
        tasks += [
            Task(contender.name, kind, _call(modules[contender.name], kind, x, grad_y), contender.most_samples)
            for contender in CONTENDERS
            if kind in contender.passes and contender.name in modules
        ]
        tasks += [Task(name, kind, {FORWARD: f.forward, TRAIN_STEP: f.step}[kind]) for name, f in floors.items()]
    return tasks


def _call(module: nn.Module, kind: str, x: Tensor, grad_y: Tensor) -> Callable[[], object]:
    if kind == FORWARD:
        return torch.no_grad()(lambda: module(x))
    return lambda: training_step(module, x, grad_y)


def _main() -> None:
    entry, settings = json.loads(sys.argv[1])
    entry, settings = Entry(**{**entry, "size": tuple(entry["size"])}), Settings(**settings)
    torch.set_num_threads(settings.threads)
    if settings.pages == KEPT:
        keep_all_pages()
    print(json.dumps(_measure_entry(entry, settings, lambda fraction: print(fraction, flush=True))))


if __name__ == "__main__":
    _main()
