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

from benchmarks.contenders import PaperOrder, sonic_layer
from benchmarks.entries import Entry
from benchmarks.timing import training_step

__all__ = ["ALLOWED_RATIO", "check_output", "compare_errors", "geometric_mean", "step_errors"]

ALLOWED_RATIO = 2.0
FEWEST_DRAWS, MOST_DRAWS = 4, 24
DRAWN_VALUES = 5e7  # input values that all draws together may hold, so that small sizes get many
LEAST_ERROR = 1e-9
KINDS = {"output": "output", "x": "grad x", "mix_in": "grad mixing", "mix_out": "grad mixing"}


def _step_tensors(module: nn.Module, x: Tensor, grad_y: Tensor) -> dict[str, Tensor]:
    y, grads = training_step(module, x.detach().requires_grad_(), grad_y)
    names = ["x", *[name.rpartition(".")[2] for name, _ in module.named_parameters()]]
    return {"output": y.detach(), **{f"grad {name}": grad for name, grad in zip(names, grads, strict=True)}}


def _relative_error(value: Tensor, reference: Tensor) -> float:
    error = float((value - reference).abs().max() / reference.abs().max())
    # A number that happens to be right to the last bit must not end the comparison of logarithms.
    return max(error, LEAST_ERROR) if math.isfinite(error) else math.inf


def step_errors(module: nn.Module, reference: nn.Module, x: Tensor, grad_y: Tensor) -> dict[str, float]:
    """Errors of output and of every gradient; ``reference`` holds the same parameters in float64."""
    exact = _step_tensors(reference, x.double(), grad_y.double())
    found = _step_tensors(module, x, grad_y)
    return {name: _relative_error(found[name], exact[name]) for name in exact}


def _kind(tensor: str) -> str:
    return KINDS.get(tensor.removeprefix("grad "), "grad modes")


def compare_errors(entry: Entry, sonic: nn.Module, paper: nn.Module, x: Tensor, grad_y: Tensor) -> dict:
    """Errors of Sonic and of the paper's order, each against itself in float64.

    The first draw is what is timed. Gradients of modes are sums that nearly cancel, and the error of one such tensor
    varies tenfold from draw to draw; so more draws follow, of other parameters and a quarter of the batch, and the
    comparison is of geometric means over draws and over the tensors of a kind.

    Returns
    -------
    dict
        ``sonic`` and ``paper_order`` (mean error by kind), ``flagged`` (the kinds in which Sonic's is more than twice
        that of the paper's order), ``worst`` (of any tensor in any draw) and ``draws`` (every error).
    """
    other = "channels" if 2 * entry.modes <= entry.channels else "modes"  # the one with more transforms
    few = max(1, entry.batch // 4)
    draws = [_draw(entry, other, sonic, paper, x, grad_y)]
    for _ in range(int(min(MOST_DRAWS, max(FEWEST_DRAWS, DRAWN_VALUES / entry.num_values)))):
        layer = sonic_layer(entry).to(x.device)
        paper = PaperOrder(deepcopy(layer), entry.size)
        draws.append(_draw(entry, other, layer, paper, torch.randn_like(x[:few]), torch.randn_like(x[:few])))
    errors = {name: _means([draw[name] for draw in draws]) for name in ("sonic", "paper_order")}
    return {
        **errors,
        "flagged": [kind for kind, e in errors["sonic"].items() if e > ALLOWED_RATIO * errors["paper_order"][kind]],
        "worst": {name: max(max(draw[name].values()) for draw in draws) for name in errors},
        "reference_order": other,
        "draws": draws,
    }


def _means(draws: list[dict[str, float]]) -> dict[str, float]:
    by_kind: dict[str, list[float]] = {}
    for errors in draws:
        for tensor, error in errors.items():
            by_kind.setdefault(_kind(tensor), []).append(error)
    return {kind: geometric_mean(values) for kind, values in by_kind.items()}


def _draw(
    entry: Entry, other_order: str, sonic: nn.Module, paper: nn.Module, x: Tensor, grad_y: Tensor
) -> dict[str, dict[str, float]]:
    assert isinstance(paper, PaperOrder)
    reference = sonic_layer(entry, execution={"order": other_order}).to(device=x.device, dtype=torch.float64)
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
