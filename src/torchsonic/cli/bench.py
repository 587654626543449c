"""``torchsonic bench``: the benchmarks, which live in a checkout and are in no wheel."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from torchsonic.cli.surroundings import UserError, find_benchmarks, make_folder, require, require_console_and_figures

__all__ = [
    "BenchCompile",
    "BenchData",
    "BenchExplorer",
    "BenchInit",
    "BenchModels",
    "BenchOperator",
    "BenchReport",
    "BenchScaling",
    "BenchVolumes",
]

REFERENCE_RESULTS = Path("results/bench")
TRIAL_RESULTS = Path("runs/bench")


def result_folder(out: Path | None, *, partial: bool) -> Path:
    """Where results go: a trial must not overwrite the reference results unless told to."""
    return make_folder(out or (TRIAL_RESULTS if partial else REFERENCE_RESULTS))


@dataclass(frozen=True, kw_only=True)
class _Bench:
    quick: bool = False
    """Few small sizes, three rounds: a trial of a minute."""
    repeats: int | None = None
    """Rounds of timing; 7 by default, 3 with --quick."""
    out: Path | None = None
    """Folder for the results; results/bench by default, runs/bench for a part of the sizes."""
    threads: int | None = None
    """Threads that PyTorch may use; its own choice by default."""
    seed: int = 0
    """Seed of parameters and inputs."""
    device: Literal["cpu", "cuda"] = "cpu"
    """Where to measure."""

    def _prepare(self) -> int:
        """Refuse what would fail after minutes of work; set the threads; return the number of rounds."""
        import torch

        require_console_and_figures()
        find_benchmarks()
        repeats = self.repeats if self.repeats is not None else 3 if self.quick else 7
        if repeats < 1:
            raise UserError(f"--repeats must be at least 1, got {repeats}")
        if self.threads is not None:
            if self.threads < 1:
                raise UserError(f"--threads must be at least 1, got {self.threads}")
            torch.set_num_threads(self.threads)
        if self.device == "cuda" and not torch.cuda.is_available():
            raise UserError("--device cuda: PyTorch finds no CUDA device")
        return repeats


@dataclass(frozen=True, kw_only=True)
class BenchOperator(_Bench):
    """Time, accuracy and memory of the operator against its rivals, as ratios, beside the goals."""

    sizes: tuple[str, ...] = ()
    """Names of sizes or groups (low-rank, equal, 3d-wide); all by default."""

    def run(self) -> None:
        repeats = self._prepare()
        from benchmarks import entries, operator_bench

        try:
            chosen = entries.select_entries(self.sizes or (entries.QUICK if self.quick else ()))
        except ValueError as error:
            raise UserError(f"--sizes: {error}") from error
        folder = result_folder(self.out, partial=self.quick or bool(self.sizes))
        budget = operator_bench.QUICK_BUDGET if self.quick else operator_bench.ENTRY_BUDGET
        result = operator_bench.run_operator_bench(
            chosen, repeats=repeats, seed=self.seed, device=self.device, budget=budget
        )
        _report(result, folder)


@dataclass(frozen=True, kw_only=True)
class BenchScaling(_Bench):
    """Time and memory of blocks over image size, channels and modes: the paper's figure."""

    def run(self) -> None:
        repeats, folder = self._prepare(), result_folder(self.out, partial=self.quick)
        from benchmarks import scaling_bench

        sweeps = scaling_bench.QUICK if self.quick else scaling_bench.FULL
        result = scaling_bench.run_scaling_bench(sweeps, repeats=repeats, seed=self.seed, device=self.device)
        _report(result, folder)


@dataclass(frozen=True, kw_only=True)
class BenchModels(_Bench):
    """Images per second of whole models, forward and in training, as ratios to the plain convolution's."""

    group: Literal["synthshape", "resnet50", "all"] = "all"
    """Segmentation of synthetic shapes, classification of photographs, or both."""
    train: bool = True
    """Measure the forward pass alone."""
    image_size: int | None = None
    """Pixels on a side; 64 for shapes and 224 for photographs by default."""
    batch: int | None = None
    """Images at a time; 32 shapes and 8 photographs by default."""

    def run(self) -> None:
        for name, value in (("image-size", self.image_size), ("batch", self.batch)):
            if value is not None and value < 1:
                raise UserError(f"--{name} must be at least 1, got {value}")
        repeats = self._prepare()
        from benchmarks import models_bench

        known = models_bench.QUICK if self.quick else models_bench.FULL
        chosen = {name: group for name, group in known.items() if self.group in (name, "all")}
        changed = {"image_size": self.image_size, "batch": self.batch}
        groups = [group.with_size(**changed) for group in chosen.values()]
        partial = self.quick or self.group != "all" or not self.train or any(v is not None for v in changed.values())
        folder = result_folder(self.out, partial=partial)
        result = models_bench.run_models_bench(
            groups, train=self.train, repeats=repeats, seed=self.seed, device=self.device
        )
        _report(result, folder)


@dataclass(frozen=True, kw_only=True)
class BenchCompile(_Bench):
    """Time of compiled layers and models over eager ones, and how many graphs five sizes need."""

    def run(self) -> None:
        repeats, folder = self._prepare(), result_folder(self.out, partial=self.quick)
        from benchmarks import compile_bench

        subjects = compile_bench.QUICK if self.quick else compile_bench.FULL
        _report(compile_bench.run_compile_bench(subjects, repeats=repeats, seed=self.seed, device=self.device), folder)


@dataclass(frozen=True, kw_only=True)
class BenchVolumes(_Bench):
    """Time and peak memory of a training step of networks for volumes, as ratios to nnU-Net's ResEnc L."""

    def run(self) -> None:
        repeats, folder = self._prepare(), result_folder(self.out, partial=self.quick)
        require("monai", "medical")
        require("nnunetv2", "medical")
        from benchmarks import volumes_bench

        patches = volumes_bench.QUICK if self.quick else volumes_bench.FULL
        _report(volumes_bench.run_volumes_bench(patches, repeats=repeats, seed=self.seed, device=self.device), folder)


@dataclass(frozen=True, kw_only=True)
class BenchReport:
    """Write Markdown and figures again from the JSON of earlier runs."""

    out: Path = REFERENCE_RESULTS
    """Folder of the results."""

    def run(self) -> None:
        require_console_and_figures()
        find_benchmarks()
        from benchmarks import report

        found = [path for kind in report.KINDS if (path := self.out / f"{kind}.json").is_file()]
        if not found:
            raise UserError(f"--out: no benchmark results in {self.out}")
        for path in found:
            try:
                result = report.read_result(path)
            except ValueError as error:
                raise UserError(str(error)) from error
            _report(result, self.out)


def _report(result: dict, folder: Path) -> None:
    from benchmarks import report

    paths = report.write_result(result, folder)
    report.print_result(result)
    print("written:", ", ".join(str(path) for path in paths))


@dataclass(frozen=True, kw_only=True)
class BenchData:
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
        require_console_and_figures()
        find_benchmarks()
        from benchmarks import data_bench

        usual = (BenchData.processes, BenchData.images, BenchData.repeats)
        folder = result_folder(self.out, partial=(self.processes, self.images, self.repeats) != usual)
        images = max(self.images, data_bench.BATCH)
        _report(data_bench.run_data_bench(self.processes, images=images, repeats=self.repeats), folder)


@dataclass(frozen=True, kw_only=True)
class BenchExplorer:
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
        require_console_and_figures()
        find_benchmarks()
        from benchmarks import explorer_bench

        partial = (self.sizes, self.moves) != (BenchExplorer.sizes, BenchExplorer.moves)
        folder = result_folder(self.out, partial=partial)
        _report(explorer_bench.run_explorer_bench(self.sizes, moves=self.moves), folder)


@dataclass(frozen=True, kw_only=True)
class BenchInit:
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
        require_console_and_figures()
        find_benchmarks()
        from benchmarks import init_bench

        partial = (self.modes, self.seeds) != (BenchInit.modes, BenchInit.seeds)
        folder = result_folder(self.out, partial=partial)
        _report(init_bench.run_init_bench(self.modes, self.seeds), folder)
