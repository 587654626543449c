"""``torchsonic report``, ``torchsonic table1`` and ``torchsonic data preview``."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal, get_args

from torchsonic.cli.command import UserError, make_folder, require
from torchsonic.lab.runs.synthetic import ModelName, TaskName

__all__ = ["DataPreview", "Report", "Table1"]

RUNS = Path("runs")


@dataclass(frozen=True, kw_only=True)
class Report:
    """Write Table 1 beside the paper's, with curves and examples, from all runs under a folder."""

    positional: ClassVar[tuple[str, ...]] = ("runs",)

    runs: Path = RUNS
    """Folder under which the runs lie."""
    out: Path | None = None
    """Folder for the report; the folder of runs and 'report' by default."""

    def run(self) -> None:
        require("matplotlib", "viz")
        require("rich", "cli")
        from torchsonic.lab.report import print_document, write_document
        from torchsonic.lab.report.table1 import make_page, make_report

        try:
            report = make_report(self.runs)
        except ValueError as error:
            raise UserError(str(error)) from error
        document = make_page(report)
        out = make_folder(self.out or self.runs / "report")
        try:
            written = write_document(document, out)
        except OSError as error:
            raise UserError(f"--out: cannot write {error.filename}: {error.strerror}") from error
        print_document(document, sections=())
        print(f"{len(report.runs)} runs, {report.num_left_out} left out; written: {written[0]}")


@dataclass(frozen=True, kw_only=True)
class Table1:
    """Train the models of Table 1 one after another, leaving out what is done, and write the report."""

    preset: Literal["smoke", "demo", "quick", "paper"] = "quick"
    """Steps, batch and samples of each run; paper is the full protocol of five seeds and five folds."""
    models: tuple[ModelName, ...] = get_args(ModelName)
    """Which models."""
    tasks: tuple[TaskName, ...] = get_args(TaskName)
    """Which tasks."""
    seeds: tuple[int, ...] = ()
    """Seeds of each model; 0 by default, 0 to 4 with the preset paper."""
    folds: tuple[int, ...] = ()
    """Folds of SynthShape; likewise."""
    steps: int | None = None
    """Steps of each run, instead of the preset's."""
    batch: int | None = None
    """Samples per step, likewise."""
    test_samples: int | None = None
    """Samples of the test, likewise."""
    out: Path = RUNS
    """Folder of runs; the report goes into 'report' there."""

    def run(self) -> None:
        for package, extra in (("lightning_fabric", "train"), ("rich", "train"), ("matplotlib", "viz")):
            require(package, extra)
        from torchsonic.lab.runs.table1 import plan_runs, train_all

        try:
            configs = plan_runs(
                self.preset,
                models=self.models,
                tasks=self.tasks,
                seeds=self.seeds,
                folds=self.folds,
                steps=self.steps,
                batch=self.batch,
                test_samples=self.test_samples,
            )
        except ValueError as error:
            raise UserError(str(error)) from error
        failed = train_all(configs, make_folder(self.out), say=_say)
        if int(os.environ.get("RANK", "0")) == 0:
            Report(runs=self.out).run()
        if failed:
            more = f"; and {len(failed) - 1} more, named above" if len(failed) > 1 else ""
            raise UserError(f"{len(failed)} of {len(configs)} runs failed: {failed[0]}{more}")


def _say(text: str) -> None:
    if int(os.environ.get("RANK", "0")) == 0:
        print(text, flush=True)


@dataclass(frozen=True, kw_only=True)
class DataPreview:
    """Draw picture sheets of the data: samples, perturbations, resolutions."""

    task: Literal["synthshape", "halligalli", "all"] = "all"
    """Which task's samples."""
    out: Path = Path("preview")
    """Folder for the sheets."""
    seed: int = 0
    """Of the data; training uses 0."""

    def run(self) -> None:
        require("matplotlib", "viz")
        from torchsonic.lab.report.preview import SHEETS, draw_sheet

        if self.seed < 0:
            raise UserError(f"--seed must not be negative, got {self.seed}")
        folder = make_folder(self.out)
        for task in SHEETS if self.task == "all" else (self.task,):
            path = folder / f"{task}.png"
            try:
                draw_sheet(task, seed=self.seed).savefig(path, dpi=110)
            except OSError as error:
                raise UserError(f"--out: cannot write {path}: {error.strerror}") from error
            print("written:", path)
