"""``torchsonic bench`` of layers and networks: rounds of timing, which share their options."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tools.bench.results import REFERENCE_RESULTS, BenchCommand, result_folder, write_report
from torchsonic.cli.command import UserError

__all__ = ["BenchCompile", "BenchModels", "BenchOperator", "BenchScaling", "BenchVolumes"]


@dataclass(frozen=True, kw_only=True)
class _Bench(BenchCommand):
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
    """Time, operations, accuracy and memory of the operator against its rivals, as ratios, beside the goals.

    Each size is measured twice, in a process that keeps freed memory and in one that does not; times are compared with
    the stored results.
    """

    sizes: tuple[str, ...] = ()
    """Names of sizes or groups (low-rank, equal, 3d-wide); all by default."""
    stored: Path = REFERENCE_RESULTS / "operator.json"
    """Earlier results to compare with, if the file exists."""

    def run(self) -> None:
        repeats = self._prepare()
        from benchmarks import baseline, entries, operator_bench

        try:
            chosen = entries.select_entries(self.sizes or (entries.QUICK if self.quick else ()))
        except ValueError as error:
            raise UserError(f"--sizes: {error}") from error
        try:
            stored = baseline.read_stored(self.stored)
        except ValueError as error:
            raise UserError(f"--stored: {error}") from error
        folder = result_folder(self.out, partial=self.quick or bool(self.sizes))
        budget = operator_bench.QUICK_BUDGET if self.quick else operator_bench.ENTRY_BUDGET
        result = operator_bench.run_operator_bench(
            chosen, repeats=repeats, seed=self.seed, device=self.device, budget=budget, stored=stored
        )
        write_report(result, folder)


@dataclass(frozen=True, kw_only=True)
class BenchScaling(_Bench):
    """Time and memory of blocks over image size, channels and modes: the paper's figure."""

    def run(self) -> None:
        repeats, folder = self._prepare(), result_folder(self.out, partial=self.quick)
        from benchmarks import scaling_bench

        sweeps = scaling_bench.QUICK if self.quick else scaling_bench.FULL
        result = scaling_bench.run_scaling_bench(sweeps, repeats=repeats, seed=self.seed, device=self.device)
        write_report(result, folder)


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
        write_report(result, folder)


@dataclass(frozen=True, kw_only=True)
class BenchCompile(_Bench):
    """Time of compiled layers and models over eager ones, and how many graphs five sizes need."""

    def run(self) -> None:
        repeats, folder = self._prepare(), result_folder(self.out, partial=self.quick)
        from benchmarks import compile_bench

        subjects = compile_bench.QUICK if self.quick else compile_bench.FULL
        write_report(
            compile_bench.run_compile_bench(subjects, repeats=repeats, seed=self.seed, device=self.device), folder
        )


@dataclass(frozen=True, kw_only=True)
class BenchVolumes(_Bench):
    """Time and peak memory of a training step of networks for volumes, as ratios to nnU-Net's ResEnc L.

    On the patches of hearts (10x124x128) they are ratios to MONAI's U-Net.
    """

    patches: tuple[str, ...] = ()
    """Sizes such as 10x124x128; all by default."""
    without: tuple[str, ...] = ()
    """Networks to be left out, by their names in the table; the paper's takes minutes for a step."""

    needs = (*BenchCommand.needs, "monai", "nnunetv2")

    def run(self) -> None:
        repeats = self._prepare()
        folder = result_folder(self.out, partial=self.quick or bool(self.patches) or bool(self.without))
        from benchmarks import volumes_bench

        known = volumes_bench.QUICK if self.quick else volumes_bench.FULL
        patches = volumes_bench.select_patches(known, self.patches, self.without)
        write_report(
            volumes_bench.run_volumes_bench(patches, repeats=repeats, seed=self.seed, device=self.device), folder
        )
