"""``torchsonic bench`` of other things than the speed of layers: errors, memory, data, the explorer, initial modes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tools.bench.results import BenchCommand, result_folder, write_report
from torchsonic.cli.command import UserError

__all__ = ["BenchData", "BenchExplorer", "BenchInit", "BenchMemory", "BenchPrecision", "BenchRoofline"]


@dataclass(frozen=True, kw_only=True)
class BenchPrecision(BenchCommand):
    """Errors of output and gradients by number type, against float64, beside those of a convolution: seconds."""

    out: Path | None = None
    """Folder for the results; results/bench by default, runs/bench for other seeds and devices."""
    seed: int = 0
    """Seed of parameters and inputs."""
    device: Literal["cpu", "cuda", "mps"] = "cpu"
    """Where to compute; float64 is always computed on the CPU."""

    def run(self) -> None:
        import torch

        if self.device != "cpu" and not getattr(torch, self.device).is_available():
            raise UserError(f"--device {self.device}: PyTorch finds no such device")
        from benchmarks import precision_bench

        folder = result_folder(self.out, partial=(self.seed, self.device) != (0, "cpu"))
        write_report(precision_bench.run_precision_bench(seed=self.seed, device=self.device), folder)


@dataclass(frozen=True, kw_only=True)
class BenchMemory(BenchCommand):
    """Peak memory of a training step over the modes, and of one layer on 128 x 128 x 128 voxels: minutes."""

    quick: bool = False
    """Small volumes alone: seconds."""
    out: Path | None = None
    """Folder for the results; results/bench by default, runs/bench with --quick or another seed."""
    seed: int = 0
    """Seed of parameters and inputs."""

    def run(self) -> None:
        from benchmarks import memory_bench

        folder = result_folder(self.out, partial=self.quick or self.seed != 0)
        case = memory_bench.QUICK if self.quick else memory_bench.FULL
        write_report(memory_bench.run_memory_bench(case, seed=self.seed), folder)


@dataclass(frozen=True, kw_only=True)
class BenchRoofline(BenchCommand):
    """Predict a training step on GPUs from counted bytes and flops, and on this CPU beside its measurement: minutes."""

    quick: bool = False
    """Few small sizes: half a minute."""
    out: Path | None = None
    """Folder for the results; results/bench by default, runs/bench with --quick."""

    needs = (*BenchCommand.needs, "triton")

    def run(self) -> None:
        from benchmarks import entries, fake_cuda, roofline

        if (reason := fake_cuda.absent()) is not None:
            raise UserError(reason)
        chosen = entries.select_entries(entries.QUICK if self.quick else ())
        folder = result_folder(self.out, partial=self.quick)
        write_report(roofline.run_roofline(chosen, repeats=2 if self.quick else 5), folder)


@dataclass(frozen=True, kw_only=True)
class BenchData(BenchCommand):
    """Images of SynthShape and HalliGalli made per second, by one process and by several."""

    processes: tuple[int, ...] = (1, 2)
    """Numbers of processes."""
    images: int = 4000
    """Images of a round."""
    repeats: int = 3
    """Rounds, of which the best counts."""
    out: Path | None = None
    """Folder for the results; results/bench by default, runs/bench for other settings."""

    def run(self) -> None:
        for name in ("images", "repeats"):
            if getattr(self, name) < 1:
                raise UserError(f"--{name} must be at least 1, got {getattr(self, name)}")
        if not self.processes or min(self.processes) < 1:
            raise UserError(f"--processes must be at least 1, got {self.processes}")
        from benchmarks import data_bench

        usual = (BenchData.processes, BenchData.images, BenchData.repeats)
        folder = result_folder(self.out, partial=(self.processes, self.images, self.repeats) != usual)
        images = max(self.images, data_bench.BATCH)
        write_report(data_bench.run_data_bench(self.processes, images=images, repeats=self.repeats), folder)


@dataclass(frozen=True, kw_only=True)
class BenchExplorer(BenchCommand):
    """Milliseconds in which the explorer answers a move: of a mode, a bank, a layer's channels, or the grid."""

    sizes: tuple[int, ...] = (128, 256, 512)
    """Pixels per side of the sampled image."""
    moves: int = 40
    """Moves of each kind at each size."""
    out: Path | None = None
    """Folder for the results; results/bench by default, runs/bench for other settings."""

    def run(self) -> None:
        if self.moves < 1:
            raise UserError(f"--moves must be at least 1, got {self.moves}")
        if not self.sizes or min(self.sizes) < 48 or max(self.sizes) > 512:
            raise UserError(f"--sizes must be from 48 to 512, got {self.sizes}")
        from benchmarks import explorer_bench

        partial = (self.sizes, self.moves) != (BenchExplorer.sizes, BenchExplorer.moves)
        folder = result_folder(self.out, partial=partial)
        write_report(explorer_bench.run_explorer_bench(self.sizes, moves=self.moves), folder)


@dataclass(frozen=True, kw_only=True)
class BenchInit(BenchCommand):
    """Rank initial banks of modes without training: what a frozen layer lets a small network read, far and near."""

    modes: tuple[int, ...] = (16, 64)
    """Numbers of modes."""
    seeds: int = 2
    """Draws of each bank."""
    out: Path | None = None
    """Folder for the results; results/bench by default, runs/bench for other modes or seeds."""

    def run(self) -> None:
        if self.seeds < 1 or not self.modes or min(self.modes) < 1:
            raise UserError(f"--modes and --seeds must be at least 1, got {self.modes} and {self.seeds}")
        from benchmarks import init_bench

        partial = (self.modes, self.seeds) != (BenchInit.modes, BenchInit.seeds)
        folder = result_folder(self.out, partial=partial)
        write_report(init_bench.run_init_bench(self.modes, self.seeds), folder)
