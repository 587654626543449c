"""The operator against its rivals: time, accuracy and bytes saved for the backward pass."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from benchmarks.accuracy import check_output, compare_errors
from benchmarks.contenders import CONTENDERS, FORWARD, PASSES, TRAIN_FORWARD, UnavailableError, entry_order
from benchmarks.entries import Entry, group_of
from benchmarks.goals import summarise
from benchmarks.memory import saved_bytes
from benchmarks.progress import progress_bar
from benchmarks.timing import Task, measure, training_step
from torchsonic.evaluation.provenance import describe_run

__all__ = ["ENTRY_BUDGET", "QUICK_BUDGET", "run_operator_bench"]

ENTRY_BUDGET, QUICK_BUDGET = 150.0, 15.0
SAVED_BY = ("sonic", "sonic_recompute", "paper_order", "conv3")
ACCURACY_SHARE = 0.15


def run_operator_bench(
    entries: Sequence[Entry], *, repeats: int = 7, seed: int = 0, device: str = "cpu", budget: float = ENTRY_BUDGET
) -> dict:
    """Measure all contenders at all entries.

    Parameters
    ----------
    budget
        Seconds of timing for one entry, beyond which slow contenders get fewer samples.

    Returns
    -------
    dict
        ``run`` (provenance), ``entries`` (a record each), ``summary`` (rows against the goals); see ``report``.
    """
    where = torch.device(device)
    run = describe_run(seed=seed, device=where)
    records = []
    with progress_bar("operator", sum(_weight(entry) for entry in entries)) as part:
        for entry in entries:
            advance = part(entry.name, _weight(entry))
            records.append(_measure_entry(entry, repeats, seed, where, budget, advance))
    return {
        "kind": "operator",
        "run": run,
        "repeats": repeats,
        "entries": records,
        "summary": summarise(records),
    }


def _weight(entry: Entry) -> float:
    return entry.num_values * math.sqrt(entry.channels)


def _measure_entry(
    entry: Entry, repeats: int, seed: int, device: torch.device, budget: float, advance: Callable[[float], None]
) -> dict:
    modules, skipped = _build(entry, seed, device)
    generator = torch.Generator().manual_seed(seed)
    x, grad_y = (torch.randn(entry.shape, generator=generator).to(device) for _ in range(2))
    accuracy = compare_errors(entry, modules["sonic"], modules["paper_order"], x, grad_y)
    with torch.no_grad():
        checks = {name: check_output(module(x), entry) for name, module in modules.items()}
    leaf = x.detach().requires_grad_()
    saved = {name: saved_bytes(modules[name], leaf) / (x.numel() * x.element_size()) for name in SAVED_BY}
    advance(ACCURACY_SHARE)
    # Pass by pass, so that calls to be compared follow each other.
    tasks = [
        Task(contender.name, kind, _call(modules[contender.name], kind, leaf, grad_y))
        for kind in PASSES
        for contender in CONTENDERS
        if kind in contender.passes and contender.name in modules
    ]
    measure(
        tasks,
        repeats=repeats,
        budget=budget,
        device=device,
        on_progress=lambda fraction: advance((1 - ACCURACY_SHARE) * fraction),
    )
    times: dict[str, dict] = {}
    for task in tasks:
        times.setdefault(task.contender, {})[task.kind] = task.summary()
    return {
        "name": entry.name,
        "group": group_of(entry),
        "batch": entry.batch,
        "channels": entry.channels,
        "modes": entry.modes,
        "size": list(entry.size),
        "order": entry_order(entry),
        "times": times,
        "skipped": skipped,
        "accuracy": accuracy,
        "checks": checks,
        "saved": saved,
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


def _call(module: nn.Module, kind: str, x: Tensor, grad_y: Tensor) -> Callable[[], object]:
    if kind == FORWARD:
        return torch.no_grad()(lambda: module(x))
    if kind == TRAIN_FORWARD:
        return lambda: module(x)
    return lambda: training_step(module, x, grad_y)
