"""Memory of a training step: over the modes, and of one layer on a large volume in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from benchmarks.memory import peak_bytes, storage_bytes
from benchmarks.progress import progress_bar
from torchsonic import SonicConv3d
from torchsonic.engine.memory import keep_pages
from torchsonic.functional import estimated_bytes
from torchsonic.lab.runs.provenance import describe_run

__all__ = ["FULL", "QUICK", "SETTINGS", "Case", "run_memory_bench"]

SETTINGS = {
    "default": {},
    "recompute=True": {"recompute": True},
    "mode_chunk=4": {"mode_chunk": 4},
}
CHUNKS = (None, 16, 8, 4, 2, 1)


@dataclass(frozen=True)
class Case:
    """A sweep over modes on a small volume, and one layer on a large one."""

    modes: tuple[int, ...]
    size: int
    channels: int
    large_size: int
    large_channels: int = 32
    large_modes: int = 64
    large_chunk: int = 2


FULL = Case(modes=(8, 16, 32, 64, 128), size=32, channels=16, large_size=128)
QUICK = Case(modes=(8, 16), size=12, channels=8, large_size=24, large_channels=8, large_modes=8)


def run_memory_bench(case: Case, *, seed: int = 0) -> dict:
    """Measure and estimate.

    Returns
    -------
    dict
        ``run``, ``case``, ``sweep`` (a row for each setting and number of modes) and ``large``.
    """
    run = describe_run(seed=seed, device=torch.device("cpu"))
    sweep = []
    with progress_bar("memory", len(SETTINGS) * len(case.modes) + 4) as part:
        for setting, options in SETTINGS.items():
            for modes in case.modes:
                advance = part(f"{setting}, {modes} modes", 1.0)
                sizes = (1, case.channels, case.channels, modes, (case.size,) * 3)
                step, _ = _training_step(sizes, options, seed)
                step()  # fills caches
                measured = peak_bytes(step, torch.device("cpu"))
                found = {"estimated": estimated_bytes(*sizes, **options), "measured": measured}
                sweep.append({"setting": setting, "modes": modes, **found})
                advance(1.0)
        advance = part(f"{case.large_size}^3 voxels", 4.0)
        large = _large(case, seed)
        advance(1.0)
    return {"kind": "memory", "run": run, "case": asdict(case), "sweep": sweep, "large": large}


def _training_step(sizes: tuple, options: dict, seed: int) -> tuple[Callable[[], None], int]:
    """A step, and the bytes that exist before it: input, weights, the output's gradient."""
    batch, in_channels, out_channels, modes, size = sizes
    torch.manual_seed(seed)
    layer = SonicConv3d(in_channels, out_channels, num_modes=modes, execution=options)
    x = torch.randn(batch, in_channels, *size, requires_grad=True)
    grad_y = torch.randn(batch, out_channels, *size)

    def step() -> None:
        torch.autograd.grad(layer(x), [x, *layer.parameters()], grad_y)

    return step, storage_bytes([x, grad_y, *layer.parameters()])


def _large(case: Case, seed: int) -> dict:
    """The large layer in processes of its own: one whose memory the system counts, one under PyTorch's profiler."""
    channels, modes, size = case.large_channels, case.large_modes, (case.large_size,) * 3
    sizes = (1, channels, channels, modes, size)
    estimates = [{"mode_chunk": chunk, "estimated": estimated_bytes(*sizes, mode_chunk=chunk)} for chunk in CHUNKS]
    numbers = (channels, modes, case.large_size, case.large_chunk, seed, torch.get_num_threads())
    found = {kind: _run_apart(kind, *map(str, numbers)) for kind in ("process", "profile")}
    return {"estimates": estimates, "mode_chunk": case.large_chunk, **found["profile"], **found["process"]}


def _run_apart(*arguments: str) -> dict:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.memory_bench", *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        cwd=Path(__file__).parents[1],
    )
    if done.returncode != 0:
        raise RuntimeError(f"the large layer did not finish: {done.stderr.strip().splitlines()[-1:]}")
    return json.loads(done.stdout)


def _main() -> None:
    """Run the large layer once and print what it took."""
    import resource

    kind, *numbers = sys.argv[1:]
    channels, modes, size, chunk, seed, threads = map(int, numbers)
    torch.set_num_threads(threads)
    step, held = _training_step((1, channels, channels, modes, (size,) * 3), {"mode_chunk": chunk}, seed)
    keep_pages()  # a block that is never touched, but counted
    if kind == "profile":  # the profiler itself takes hundreds of megabytes
        print(json.dumps({"peak": peak_bytes(step, torch.device("cpu")), "held": held}))
        return
    start = time.perf_counter()
    step()
    seconds = time.perf_counter() - start
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    print(json.dumps({"process": most, "seconds": seconds}))


if __name__ == "__main__":
    _main()
