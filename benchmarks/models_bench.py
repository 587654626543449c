"""Whole models: images per second forward and in training, beside the plain convolution of their group."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from benchmarks.memory import peak_bytes, storage_bytes
from benchmarks.progress import progress_bar
from benchmarks.timing import Task, measure, training_step
from torchsonic import create_model, list_models
from torchsonic.functional import keep_all_pages
from torchsonic.lab.metrics import count_flops, count_parameters
from torchsonic.lab.runs.provenance import describe_run
from torchsonic.models import PretrainedModel, model_entry

__all__ = ["FORWARD", "FULL", "QUICK", "TRAIN", "Group", "ModelGoal", "run_models_bench", "time_ratio"]

FORWARD, TRAIN = "forward", "train_step"
# Share of a group's work; measured roughly.
SHARES = {FORWARD: 0.25, TRAIN: 0.6, "peak": 0.15}


@dataclass(frozen=True)
class ModelGoal:
    """A bound on the time of a model over that of its group's reference."""

    model: str
    kind: str
    at_most: float


@dataclass(frozen=True)
class Group:
    """Models that do the same, and the one that does it by plain convolution."""

    name: str
    patterns: tuple[str, ...]
    reference: str
    image_size: int
    batch: int
    budget: float
    """Seconds for each kind of pass, beyond which slow models get fewer samples."""
    goals: tuple[ModelGoal, ...] = ()

    def with_size(self, *, image_size: int | None, batch: int | None) -> Group:
        """The group at another size, for which no goals are set."""
        if image_size is None and batch is None:
            return self
        return replace(self, image_size=image_size or self.image_size, batch=batch or self.batch, goals=())

    def models(self) -> list[str]:
        return list(dict.fromkeys(name for pattern in self.patterns for name in list_models(pattern)))


FULL = {
    "synthshape": Group(
        "synthshape",
        ("synthshape_*",),
        "synthshape_convnet",
        image_size=64,
        batch=32,
        budget=300.0,
        goals=(ModelGoal("synthshape_sonicnet", TRAIN, 1.15),),
    ),
    "resnet50": Group(
        "resnet50",
        ("resnet50*", "vit_s16*", "sonic_*"),
        "resnet50",
        image_size=224,
        batch=8,
        budget=900.0,
        goals=(ModelGoal("resnet50_sonic", FORWARD, 1.0),),
    ),
}
QUICK = {
    "synthshape": replace(FULL["synthshape"], image_size=32, batch=2, budget=10.0, goals=()),
    "resnet50": replace(FULL["resnet50"], image_size=64, batch=2, budget=10.0, goals=()),
}


def run_models_bench(
    groups: Sequence[Group], *, train: bool = True, repeats: int = 7, seed: int = 0, device: str = "cpu"
) -> dict:
    """Measure all models of some groups.

    Parameters
    ----------
    train
        Also measure a training step: forward and backward, gradients of all parameters.

    Returns
    -------
    dict
        ``run`` (provenance), ``pages_kept`` (whether freed memory was kept, as in training), ``groups`` (a record
        each, with one of each model) and ``summary`` (rows against the goals); see ``report``.
    """
    where = torch.device(device)
    run = describe_run(seed=seed, device=where)
    pages_kept = keep_all_pages()
    records = []
    with progress_bar("models", sum(group.budget for group in groups)) as part:
        for group in groups:
            advance = part(group.name, group.budget)
            records.append(_measure_group(group, train, repeats, seed, where, advance))
    return {
        "kind": "models",
        "run": run,
        "repeats": repeats,
        "pages_kept": pages_kept,
        "groups": records,
        "summary": [row for group, record in zip(groups, records, strict=True) for row in _summary(group, record)],
    }


def _make(name: str, size: int) -> PretrainedModel:
    """A model for images of a size; classifiers have masks, positions and initial modes of that size."""
    classifies = model_entry(name)[0].task == "classification"
    return create_model(name, **({"image_size": size} if classifies else {}))


def _measure_group(
    group: Group, train: bool, repeats: int, seed: int, device: torch.device, advance: Callable[[float], None]
) -> dict:
    torch.manual_seed(seed)
    models = {name: _make(name, group.image_size).to(device) for name in group.models()}
    x = torch.randn(group.batch, 3, group.image_size, group.image_size, device=device)
    records = {name: {"name": name, **_cost(model, x[:1]), "times": {}} for name, model in models.items()}
    # One kind of pass after the other: changing between training and evaluation empties the caches of layers.
    tasks = [Task(name, FORWARD, torch.no_grad()(_Forward(model.eval(), x))) for name, model in models.items()]
    _measure(tasks, group, repeats, device, lambda fraction: advance(SHARES[FORWARD] * fraction))
    if train:
        steps = {name: _Step(model.train(), x) for name, model in models.items()}
        trained = [Task(name, TRAIN, step) for name, step in steps.items()]
        _measure(trained, group, repeats, device, lambda fraction: advance(SHARES[TRAIN] * fraction))
        tasks += trained
        for name, step in steps.items():
            records[name]["peak_bytes"] = step.held() + peak_bytes(step, device)
            advance(SHARES["peak"] / len(steps))
    for task in tasks:
        records[task.contender]["times"][task.kind] = task.summary()
    return {
        "group": group.name,
        "reference": group.reference,
        "image_size": group.image_size,
        "batch": group.batch,
        "models": list(records.values()),
    }


def _measure(
    tasks: list[Task], group: Group, repeats: int, device: torch.device, on_progress: Callable[[float], None]
) -> None:
    measure(tasks, repeats=repeats, budget=group.budget, device=device, on_progress=on_progress)


def _cost(model: nn.Module, x: Tensor) -> dict[str, int]:
    return {"parameters": count_parameters(model), "flops": count_flops(model, x)}


class _Forward:
    def __init__(self, model: nn.Module, x: Tensor) -> None:
        self.model, self.x = model, x

    def __call__(self) -> Tensor:
        return self.model(self.x)


class _Step:
    """A training step without the optimiser's part."""

    def __init__(self, model: nn.Module, x: Tensor) -> None:
        self.model, self.x = model, x
        with torch.no_grad():
            self.grad_y = torch.randn_like(model(x))

    def __call__(self) -> object:
        return training_step(self.model, self.x, self.grad_y)

    def held(self) -> int:
        """Bytes that are allocated before the step begins."""
        return storage_bytes([self.x, self.grad_y, *self.model.parameters(), *self.model.buffers()])


def time_ratio(record: dict, model: str, kind: str) -> float | None:
    """Best time of a model over that of the group's reference; ``None`` where it was not measured."""
    times = {entry["name"]: entry["times"] for entry in record["models"]}
    if kind not in times[model]:
        return None
    return times[model][kind]["best_s"] / times[record["reference"]][kind]["best_s"]


def _summary(group: Group, record: dict) -> list[dict]:
    rows = []
    for goal in group.goals:
        measured = time_ratio(record, goal.model, goal.kind)
        if measured is not None:
            rows.append(
                {
                    "group": group.name,
                    "quantity": f"{goal.kind}: time of {goal.model} / {group.reference}",
                    "measured": measured,
                    "goal": f"<= {goal.at_most:g}",
                    "met": measured <= goal.at_most,
                }
            )
    return rows
