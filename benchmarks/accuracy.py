"""Rounding errors of a float32 training step against the same step in float64.

An error is ``max|a - b| / max|b|`` of one tensor. The dense definition is too large for these sizes, so Sonic's
reference is evaluated in an order that the library did not choose; laws against the definition are the tests' matter.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from copy import deepcopy

import torch
from torch import Tensor, nn

from benchmarks.contenders import PaperOrder, entry_order, sonic_layer
from benchmarks.entries import Entry
from benchmarks.timing import training_step

__all__ = ["ALLOWED_RATIO", "check_output", "compare_errors", "geometric_mean", "step_errors"]

ALLOWED_RATIO = 2.0
MORE_DRAWS = 4
KINDS = {"output": "output", "x": "grad x", "mix_in": "grad mixing", "mix_out": "grad mixing"}


def _step_tensors(module: nn.Module, x: Tensor, grad_y: Tensor) -> dict[str, Tensor]:
    y, grads = training_step(module, x.detach().requires_grad_(), grad_y)
    names = ["x", *[name.rpartition(".")[2] for name, _ in module.named_parameters()]]
    return {"output": y.detach(), **{f"grad {name}": grad for name, grad in zip(names, grads, strict=True)}}


def _relative_error(value: Tensor, reference: Tensor) -> float:
    return float((value - reference).abs().max() / reference.abs().max())


def step_errors(module: nn.Module, reference: nn.Module, x: Tensor, grad_y: Tensor) -> dict[str, float]:
    """Errors of output and of every gradient; ``reference`` holds the same parameters in float64."""
    exact = _step_tensors(reference, x.double(), grad_y.double())
    found = _step_tensors(module, x, grad_y)
    return {name: _relative_error(found[name], exact[name]) for name in exact}


def _classes(errors: dict[str, float]) -> dict[str, float]:
    """The worst of each kind of tensor: output, gradients of x, of the mixing matrices, of the modes."""
    worst: dict[str, float] = {}
    for name, error in errors.items():
        parameter = name.removeprefix("grad ")
        kind = KINDS.get(parameter, "grad modes")
        worst[kind] = max(worst.get(kind, 0.0), error)
    return worst


def compare_errors(entry: Entry, sonic: nn.Module, paper: nn.Module, x: Tensor, grad_y: Tensor) -> dict:
    """Errors of Sonic and of the paper's order, each against itself in float64.

    The first draw is what is timed. Gradients of modes are sums that nearly cancel, whose error varies tenfold from
    draw to draw; so more draws follow, of other parameters and a quarter of the batch, and geometric means compare.

    Returns
    -------
    dict
        ``sonic`` and ``paper_order`` (mean error by kind), ``draws`` (every error by tensor), and ``flagged``: the
        kinds in which Sonic's error is more than twice that of the paper's order.
    """
    other = "modes-modes" if entry_order(entry) == "channels-channels" else "channels-channels"
    few = max(1, entry.batch // 4)
    draws = [_draw(entry, other, sonic, paper, x, grad_y)]
    for _ in range(MORE_DRAWS):
        layer = sonic_layer(entry).to(x.device)
        paper = PaperOrder(deepcopy(layer), entry.size)
        draws.append(_draw(entry, other, layer, paper, torch.randn_like(x[:few]), torch.randn_like(x[:few])))
    errors: dict[str, dict[str, float]] = {}
    for name in ("sonic", "paper_order"):
        kinds = [_classes(draw[name]) for draw in draws]
        errors[name] = {kind: geometric_mean([found[kind] for found in kinds]) for kind in kinds[0]}
    flagged = [k for k, error in errors["sonic"].items() if error > ALLOWED_RATIO * errors["paper_order"][k]]
    return {**errors, "reference_order": other, "flagged": flagged, "draws": draws}


def _draw(
    entry: Entry, other_order: str, sonic: nn.Module, paper: nn.Module, x: Tensor, grad_y: Tensor
) -> dict[str, dict[str, float]]:
    assert isinstance(paper, PaperOrder)
    reference = sonic_layer(entry, order=other_order).to(device=x.device, dtype=torch.float64)
    reference.load_state_dict(sonic.state_dict())
    return {
        "sonic": step_errors(sonic, reference, x, grad_y),
        "paper_order": step_errors(paper, paper.double_copy(), x, grad_y),
    }


def geometric_mean(values: Sequence[float]) -> float:
    return math.exp(sum(map(math.log, values)) / len(values))


def check_output(y: Tensor, entry: Entry) -> str:
    """``"ok"``, or what is wrong with an output."""
    if tuple(y.shape) != entry.shape:
        return f"shape {tuple(y.shape)} instead of {entry.shape}"
    return "ok" if bool(torch.isfinite(y).all()) else "not finite"
