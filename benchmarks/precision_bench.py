"""Errors by number type: a Sonic layer and a 3-wide convolution, each against itself in float64.

The total error is against float64 with unrounded weights and input; the error of the arithmetic alone is against
float64 with the same rounded numbers. An error is ``max|a - b| / max|b|`` of one tensor, the largest of a kind of
tensors, and the geometric mean over draws.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from copy import deepcopy
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from benchmarks.accuracy import LEAST_ERROR, geometric_mean
from benchmarks.progress import progress_bar
from torchsonic.lab.runs.provenance import describe_run
from torchsonic.nn.conv import make_sonic

__all__ = ["SETTINGS", "SIZES", "Setting", "run_precision_bench"]

CHANNELS, MODES, BATCH, DRAWS = 16, 8, 2, 4
SIZES = ((128,), (127,), (32, 32), (31, 33), (12, 12, 12), (11, 13, 9))
CONVOLUTIONS = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}
MODULES: dict[str, Callable[[int], nn.Module]] = {
    "sonic": lambda axes: make_sonic(CHANNELS, CHANNELS, num_modes=MODES, spatial_dims=axes, bias=False),
    "conv": lambda axes: CONVOLUTIONS[axes](CHANNELS, CHANNELS, 3, padding=1, padding_mode="circular", bias=False),
}
KINDS = {
    "output": "output",
    "x": "grad x",
    "mix_in": "grad weights",
    "mix_out": "grad weights",
    "weight": "grad weights",
}


@dataclass(frozen=True)
class Setting:
    """Types of weights and input, and what autocast computes in if it is on."""

    name: str
    weights: torch.dtype
    input: torch.dtype
    autocast: torch.dtype | None = None

    def context(self, device: torch.device) -> AbstractContextManager:
        return nullcontext() if self.autocast is None else torch.autocast(device.type, dtype=self.autocast)


# Autocast layers get half-precision input, as from a layer before them.
SETTINGS = (
    Setting("float32", torch.float32, torch.float32),
    Setting("autocast bf16", torch.float32, torch.bfloat16, torch.bfloat16),
    Setting("autocast fp16", torch.float32, torch.float16, torch.float16),
    Setting("bf16 weights", torch.bfloat16, torch.bfloat16),
    Setting("fp16 weights", torch.float16, torch.float16),
)


def run_precision_bench(*, seed: int = 0, device: str = "cpu") -> dict:
    """Errors of all settings at all sizes.

    Returns
    -------
    dict
        ``run`` and ``rows``: size, setting and module with ``total`` and ``arithmetic`` errors by kind of tensor, or
        ``skipped`` with the reason.
    """
    where = torch.device(device)
    run, rows = describe_run(seed=seed, device=where), []
    with progress_bar("precision", len(SIZES)) as part:
        for size in SIZES:
            advance = part("x".join(map(str, size)), 1.0)
            for setting in SETTINGS:
                for name in MODULES:
                    found = _measure(name, size, setting, seed, where)
                    rows.append({"size": list(size), "setting": setting.name, "module": name, **found})
                advance(1 / len(SETTINGS))
    sizes = {"channels": CHANNELS, "modes": MODES, "batch": BATCH, "draws": DRAWS}
    return {"kind": "precision", "run": run, **sizes, "rows": rows}


def _measure(name: str, size: tuple[int, ...], setting: Setting, seed: int, device: torch.device) -> dict:
    total: list[dict[str, float]] = []
    arithmetic: list[dict[str, float]] = []
    for draw in range(DRAWS):
        torch.manual_seed(seed + draw)  # the same numbers for all settings
        module = MODULES[name](len(size))
        x, grad_y = (torch.randn(BATCH, CHANNELS, *size) for _ in range(2))
        rounded = deepcopy(module).to(device=device, dtype=setting.weights)
        try:
            with setting.context(device):
                found = _step(rounded, x.to(device, setting.input), grad_y.to(device))
        except RuntimeError as error:  # a type that this device's convolutions do not know
            return {"skipped": str(error).splitlines()[0]}
        # On the CPU: not every device has float64.
        exact = _step(deepcopy(module).double(), x.double(), grad_y.double())
        same = _step(deepcopy(rounded).cpu().double(), x.to(setting.input).double(), grad_y.double())
        total.append(_errors(found, exact))
        arithmetic.append(_errors(found, same))
    return {"total": _mean(total), "arithmetic": _mean(arithmetic)}


def _step(module: nn.Module, x: Tensor, grad_y: Tensor) -> dict[str, Tensor]:
    x = x.detach().requires_grad_()
    y = module(x)
    names = ["x", *[name for name, _ in module.named_parameters()]]
    grads = torch.autograd.grad(y, [x, *module.parameters()], grad_y.to(y.dtype))
    return {"output": y.detach(), **dict(zip(names, grads, strict=True))}


def _errors(found: dict[str, Tensor], exact: dict[str, Tensor]) -> dict[str, float]:
    errors: dict[str, float] = {}
    typical = exact["x"].abs().max()
    for name, wanted in exact.items():
        largest = wanted.abs().max()
        if largest <= 1e-9 * typical:  # no such gradient: in one dimension a direction cannot turn
            continue
        error = float((found[name].cpu().double() - wanted).abs().max() / largest)
        kind = KINDS.get(name, "grad modes")
        errors[kind] = max(error, errors.get(kind, LEAST_ERROR))
    return errors


def _mean(draws: list[dict[str, float]]) -> dict[str, float]:
    return {kind: geometric_mean([draw[kind] for draw in draws]) for kind in draws[0]}
