"""Compare an exported file with its model: the numbers, and the speed."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import torch
from torch import Tensor, nn

from torchsonic.export.config import ExportConfig, ExportError
from torchsonic.export.program import call_model, example_inputs
from torchsonic.export.run import first_line, load_exported
from torchsonic.nn.network_spacing import evaluating

TOLERANCE = 1e-4
"""Largest difference from PyTorch, relative to the largest answer."""
TIMED_SECONDS = 2.0
MOST_REPEATS = 20


@dataclass(frozen=True)
class CheckRow:
    """One input: its shape, the file's error, and the times of both in seconds if they were measured."""

    shape: tuple[int, ...]
    spacing: tuple[float, ...]
    """Of the first sample, if it is an input."""
    error: float
    torch_seconds: float | None = None
    file_seconds: float | None = None

    @property
    def ratio(self) -> float | None:
        """Time of the file over that of PyTorch."""
        if self.torch_seconds is None or self.file_seconds is None:
            return None
        return self.file_seconds / self.torch_seconds


def check_file(
    model: nn.Module, path: Path, config: ExportConfig, *, timed_seconds: float = TIMED_SECONDS
) -> list[CheckRow]:
    """Compare a file with its model, in evaluation mode, at the configured sizes and at others that they allow.

    Parameters
    ----------
    timed_seconds
        How long to time both at the first size, alternating between them; 0 skips the timing.
    """
    exported = load_exported(path, config.to)
    rows = []
    with evaluating(model):
        for index, (batch, size) in enumerate(_cases(config)):
            inputs = example_inputs(model, config, size=size, batch=batch, others=index > 0)
            with torch.no_grad():
                expected = call_model(model, inputs, config)
            try:
                actual = exported(*inputs)
            except Exception as error:  # each runtime has errors of its own
                raise ExportError(
                    f"the exported file refuses an input {tuple(inputs[0].shape)}; {first_line(error)}; "
                    "export with a larger size, or with fewer dynamic axes"
                ) from error
            error = _relative_error(actual, expected)
            seconds: tuple[float | None, float | None] = (None, None)
            if index == 0 and timed_seconds > 0:
                seconds = _time_in_turns(
                    lambda given=inputs: call_model(model, given, config),
                    lambda given=inputs: exported(*given),
                    timed_seconds,
                )
            told = tuple(inputs[1].reshape(-1, len(size))[0].tolist()) if config.spacing_input != "no" else ()
            rows.append(CheckRow(tuple(inputs[0].shape), told, error, *seconds))
    return rows


def _cases(config: ExportConfig) -> list[tuple[int, tuple[int, ...]]]:
    """Batch and size: as configured, then other ones where they are free; odd, even, smaller and larger."""
    cases = [(config.batch, config.size)]
    if config.dynamic or len(config.input_names) > 1:
        free_batch, free_size = "batch" in config.dynamic, "size" in config.dynamic
        smaller = tuple(max(4, 3 * n // 4 + 1 + d) for d, n in enumerate(config.size))
        larger = tuple(n + 3 - d for d, n in enumerate(config.size))
        for batch, size in ((1, smaller), (config.batch + 2, larger)):
            cases.append((batch if free_batch else config.batch, size if free_size else config.size))
    return cases


def _relative_error(actual: Tensor, expected: Tensor) -> float:
    if actual.shape != expected.shape:
        raise ValueError(f"the file returns shape {tuple(actual.shape)}, the model {tuple(expected.shape)}")
    actual, expected = actual.cpu().double(), expected.cpu().double()  # ONNX answers on the CPU, wherever the model is
    difference = (actual - expected).abs().amax()
    return float(difference / expected.abs().amax().clamp_min(1e-30))


@torch.no_grad()
def _time_in_turns(first: Callable[[], Tensor], second: Callable[[], Tensor], seconds: float) -> tuple[float, float]:
    """Median times; alternating, so that other work on the machine affects both."""
    times: tuple[list[float], list[float]] = ([], [])
    start = time.perf_counter()
    while len(times[0]) < 3 or (time.perf_counter() - start < seconds and len(times[0]) < MOST_REPEATS):
        for function, taken in zip((first, second), times, strict=True):
            before = time.perf_counter()
            function()
            taken.append(time.perf_counter() - before)
    return median(times[0]), median(times[1])
