"""``torch.compile``: time of compiled layers and models over eager ones, graphs for several sizes, and agreement."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
import torch._dynamo
from torch import Tensor, nn
from torch._dynamo.testing import CompileCounterWithBackend

from benchmarks.progress import progress_bar
from benchmarks.timing import Task, measure, training_step
from torchsonic import SonicConv2d, SonicConv3d, create_model
from torchsonic.export.run import first_line
from torchsonic.lab.runs.provenance import describe_run
from torchsonic.nn import SonicBlock
from torchsonic.testing import relative_error

__all__ = ["DYNAMIC", "EAGER", "FULL", "MOST_GRAPHS", "MOST_TIME", "QUICK", "STATIC", "Subject", "run_compile_bench"]

EAGER, STATIC, DYNAMIC = "eager", "compiled", "compiled for any size"
FORWARD, TRAIN = "forward", "train_step"
MOST_TIME, MOST_GRAPHS = 1.05, 2
STEPS = (0, 1, 2, 3, 5)  # what the five sizes are larger by, odd ones among them


@dataclass(frozen=True)
class Subject:
    """What is compiled, and the input it gets."""

    name: str
    build: Callable[[], nn.Module]
    shape: tuple[int, ...]
    budget: float = 60.0
    """Seconds for each kind of pass."""

    def inputs(self, device: torch.device, *, larger: int = 0) -> Tensor:
        return torch.randn(*self.shape[:2], *[n + larger for n in self.shape[2:]], device=device)


FULL = (
    Subject("SonicConv2d(64, 64, 16)", lambda: SonicConv2d(64, 64, num_modes=16), (8, 64, 64, 64)),
    Subject("SonicConv3d(32, 32, 16)", lambda: SonicConv3d(32, 32, num_modes=16), (1, 32, 24, 24, 24)),
    Subject("SonicBlock(64, 64)", lambda: SonicBlock(64, 64, num_modes=16), (8, 64, 64, 64)),
    Subject("synthshape_sonicnet", lambda: create_model("synthshape_sonicnet"), (8, 3, 64, 64)),
    Subject("sonic_tiny", lambda: create_model("sonic_tiny", num_classes=10), (4, 3, 96, 96)),
    Subject(
        "sonicnet3d.light",
        lambda: create_model("sonicnet3d.light", in_channels=1, num_classes=4),
        (1, 1, 32, 32, 32),
    ),
)
QUICK = (
    replace(FULL[0], build=lambda: SonicConv2d(8, 8, num_modes=4), name="SonicConv2d(8, 8, 4)", shape=(2, 8, 16, 16)),
)


def run_compile_bench(subjects: Sequence[Subject], *, repeats: int, seed: int = 0, device: str = "cpu") -> dict:
    """Compile each subject in one graph, for one size and for any, and measure it beside the eager one.

    Returns
    -------
    dict
        ``run`` (provenance) and ``subjects``, a record each: times by kind of pass and contender, relative errors of
        output and gradients against eager, and graphs that five sizes needed; ``failure`` instead of these where a
        subject could not be compiled.
    """
    where = torch.device(device)
    run = describe_run(seed=seed, device=where)
    with progress_bar("compiled", sum(subject.budget for subject in subjects)) as part:
        records = [
            _try_subject(subject, repeats, seed, where, part(subject.name, subject.budget)) for subject in subjects
        ]
    return {"kind": "compile", "run": run, "repeats": repeats, "subjects": records}


def _try_subject(
    subject: Subject, repeats: int, seed: int, device: torch.device, advance: Callable[[float], None]
) -> dict:
    """A failure is a result, and must not cost the minutes that the other subjects took."""
    try:
        return _measure_subject(subject, repeats, seed, device, advance)
    except Exception as error:
        return {"name": subject.name, "shape": subject.shape, "failure": first_line(error)}


def _measure_subject(
    subject: Subject, repeats: int, seed: int, device: torch.device, advance: Callable[[float], None]
) -> dict:
    torch.manual_seed(seed)
    torch._dynamo.reset()
    model = subject.build().to(device)
    x = subject.inputs(device)
    forms: dict[str, Any] = {  # modules, though torch.compile does not say so
        EAGER: model,
        STATIC: torch.compile(model, fullgraph=True),
        DYNAMIC: torch.compile(model, fullgraph=True, dynamic=True),
    }
    times: dict[str, dict] = {}
    for kind, run in ((FORWARD, _forward), (TRAIN, training_step)):
        model.train(kind == TRAIN)
        grad_y = torch.randn_like(_forward(model, x))
        tasks = [Task(name, kind, partial(run, form, x, grad_y)) for name, form in forms.items()]
        for task in tasks:
            task.call()  # compiles
        measure(
            tasks, repeats=repeats, budget=subject.budget, device=device, on_progress=lambda share: advance(0.4 * share)
        )
        times[kind] = {task.contender: task.summary() for task in tasks}
    errors = _errors(model, forms[STATIC], x, torch.randn_like(_forward(model, x)))
    graphs = {kind: _graphs(model, subject, device, train=kind == TRAIN) for kind in (FORWARD, TRAIN)}
    advance(0.2)
    return {"name": subject.name, "shape": subject.shape, "times": times, "graphs": graphs, **errors}


def _forward(form: Callable[..., Tensor], x: Tensor, *_: object) -> Tensor:
    with torch.no_grad():
        return form(x)


def _errors(model: nn.Module, compiled: nn.Module, x: Tensor, grad_y: Tensor) -> dict[str, float]:
    """Relative errors of the output and of the whole gradient against the eager model.

    Of the whole, since some parts of it vanish but for rounding: what shifts a channel in front of a batch norm.
    """
    model.train()
    y, expected = training_step(model, x, grad_y)
    found, grads = training_step(compiled, x, grad_y)
    gradient = relative_error(*(torch.cat([part.flatten() for part in whole]) for whole in (grads, expected)))
    return {"output_error": float(relative_error(found, y)), "gradient_error": float(gradient)}


def _graphs(model: nn.Module, subject: Subject, device: torch.device, *, train: bool) -> int:
    """Graphs that five sizes need when nothing is said about sizes beforehand."""
    torch._dynamo.reset()
    model.train(train)
    counter = CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(model, fullgraph=True, backend=counter)
    for larger in STEPS:
        y = compiled(subject.inputs(device, larger=larger))
        if train:
            y.sum().backward()
    model.zero_grad()
    return counter.frame_count
