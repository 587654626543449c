"""Runs on SynthShape and HalliGalli: training, testing and Table 1; pictures of the data; the demo."""

from __future__ import annotations

import os
import webbrowser
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Literal, get_args

import torch

from torchsonic.cli.command import (
    Command,
    UserError,
    has_screen,
    is_first_process,
    make_folder,
    option_value,
    publish,
)
from torchsonic.cli.train import TrainCommand, training_line
from torchsonic.lab.report.demo import DemoConfig, run_demo
from torchsonic.lab.runs.protocols import ProtocolName
from torchsonic.lab.runs.provenance import busy_cores
from torchsonic.lab.runs.synthetic import (
    ModelName,
    SyntheticConfig,
    SyntheticExperiment,
    TaskName,
    apply_preset,
    repeats,
)

Preset = Literal["smoke", "demo", "quick", "paper"]
RUNS = Path("runs")


@dataclass(frozen=True, kw_only=True)
class _TrainSynthetic(TrainCommand, SyntheticConfig):
    preset: Preset = "quick"
    """Steps, batch size and samples. smoke takes a minute, demo a few, quick about eight; paper is the full protocol
    with five seeds and, for SynthShape, five folds."""
    folds: tuple[int, ...] = ()
    """Folds to train one after another, instead of --fold."""

    config_class: ClassVar[type] = SyntheticConfig
    experiment = SyntheticExperiment
    presets: ClassVar[Collection[str]] = get_args(Preset)
    thrift: ClassVar[str] = "a smaller --batch, or --accumulate"
    task_name: ClassVar[TaskName]
    protocols: ClassVar[Collection[str]] = ("own",)
    hidden: ClassVar[Collection[str]] = ("task", *TrainCommand.hidden)  # the command's own name says the task

    @classmethod
    def blank(cls, arguments: Sequence[str]) -> Any:
        # What presets set depends on both; a wrong value is refused by the parser, in its words.
        choices = {"model": get_args(ModelName), "protocol": cls.protocols}
        given: dict[str, Any] = {name: option_value(arguments, f"--{name}") for name in choices}
        return cls(task=cls.task_name, **{name: value for name, value in given.items() if value in choices[name]})

    @classmethod
    def apply_preset(cls, command: Any, preset: str) -> Any:
        seeds, folds = repeats(preset, command.task, command.protocol)
        return replace(apply_preset(command, preset), seed=seeds, folds=folds if len(folds) > 1 else ())

    def folds_to_train(self) -> Sequence[int]:
        return self.folds or (self.fold,)

    def title(self, config: SyntheticConfig) -> str:
        return f"{_task_words(config.task, config.protocol)}, {config.model}, fold {config.fold}"

    def show(self, results: dict[str, Any]) -> None:
        _print_results(results)


def _task_words(task: str, protocol: str) -> str:
    return task if protocol == "own" else f"{task}, {protocol} protocol"


@dataclass(frozen=True, kw_only=True)
class TrainSynthShape(_TrainSynthetic):
    """Train a network on SynthShape and test it under perturbations."""

    task_name: ClassVar[TaskName] = "synthshape"
    protocols: ClassVar[Collection[str]] = get_args(ProtocolName)


@dataclass(frozen=True, kw_only=True)
class TrainHalliGalli(_TrainSynthetic):
    """Train one block on HalliGalli and test it with and without noise."""

    task_name: ClassVar[TaskName] = "halligalli"
    hidden: ClassVar[Collection[str]] = ("protocol", *_TrainSynthetic.hidden)


@dataclass(frozen=True, kw_only=True)
class Table1(Command):
    """Train all networks of the paper's Table 1 and write the report.

    Finished runs are skipped, so the same command continues where it stopped.
    """

    preset: Preset = "quick"
    """Steps, batch size and samples of each run; paper is the full protocol with five seeds and five folds."""
    model: tuple[ModelName, ...] = tuple(name for name in get_args(ModelName) if name != "orbitnet")
    """Networks to train; by default those of the paper, without orbitnet."""
    task: tuple[TaskName, ...] = ()
    """Tasks to train them on; both by default, but only SynthShape with the released protocol."""
    protocol: ProtocolName = "own"
    """Scenes, tests, loss and networks of SynthShape: our own, or those of the authors' released script."""
    seed: tuple[int, ...] = ()
    """Seeds of each network; 0 by default, 0 to 4 with the preset paper."""
    folds: tuple[int, ...] = ()
    """Folds of our own SynthShape; 0 by default, 0 to 4 with the preset paper."""
    steps: int | None = None
    """Training steps of each run, instead of the preset's."""
    batch: int | None = None
    """Samples per training step, instead of the preset's."""
    test_samples: int | None = None
    """Samples to test on, instead of the preset's."""
    out: Path = RUNS
    """Folder of runs; the report is written to its subfolder 'report'."""

    needs = ("lightning_fabric", "rich", "matplotlib")
    renamed: ClassVar = {"--models": "--model", "--tasks": "--task", "--seeds": "--seed"}

    def run(self) -> None:
        from torchsonic.lab.runs.table1 import plan_runs, train_all

        sizes: dict[str, Any] = {"steps": self.steps, "batch": self.batch, "test_samples": self.test_samples}
        draws: dict[str, Any] = {"seeds": self.seed, "folds": self.folds}
        tasks = self.task or (get_args(TaskName) if self.protocol == "own" else ("synthshape",))
        configs = plan_runs(self.preset, models=self.model, tasks=tasks, protocol=self.protocol, **draws, **sizes)
        failed = train_all(configs, make_folder(self.out), say=_say)
        if is_first_process():
            Report(runs=self.out).run()
        if failed:
            more = f"; and {len(failed) - 1} more, named above" if len(failed) > 1 else ""
            raise UserError(f"{len(failed)} of {len(configs)} runs failed: {failed[0]}{more}")


def _say(text: str) -> None:
    if is_first_process():
        print(text, flush=True)


@dataclass(frozen=True, kw_only=True)
class Report(Command):
    """Write Table 1 from a folder of runs, or a report on masks."""

    runs: Path = RUNS
    """Folder that contains the runs, at any depth; or one run of 'torchsonic train masks'."""
    out: Path | None = None
    """Folder for the report; by default the folder 'report' next to the runs."""

    needs = ("matplotlib", "rich")
    positional = ("runs",)

    def run(self) -> None:
        from torchsonic.lab.report.masks import make_page as make_masks_page
        from torchsonic.lab.report.runs import count
        from torchsonic.lab.report.table1 import make_page, make_report
        from torchsonic.lab.runs.folder import is_run, kind_of

        out = self.out or self.runs / "report"
        kind = kind_of(self.runs) if is_run(self.runs) else "synthetic"
        if kind not in ("masks", "synthetic"):
            remedy = "its scores are in results.json" if kind == "arrays" else f"use: torchsonic evaluate {self.runs}"
            raise UserError(f"{self.runs} is a run on {kind}; {remedy}")
        if kind == "masks":
            make_folder(out)
            print("predicting and drawing some images ...", flush=True)
            publish(make_masks_page(self.runs), out, sections=())
            return
        report = make_report(self.runs)
        make_folder(out)
        print(f"drawing the answers of {count(len(report.runs), 'run')} ...", flush=True)
        publish(make_page(report), out, sections=())
        print(f"{count(len(report.runs), 'run')}, {report.num_left_out} left out")


@dataclass(frozen=True, kw_only=True)
class EvaluateSynthetic(Command):
    """Test the network of a run on SynthShape or HalliGalli again."""

    folder: Path
    """Folder of the run."""

    needs = ("rich",)
    positional = ("folder",)

    def run(self) -> None:
        from torchsonic.io import read_json, write_json
        from torchsonic.lab.runs.lock import locked
        from torchsonic.lab.runs.provenance import describe_run
        from torchsonic.lab.runs.synthetic import evaluate_run, load_run
        from torchsonic.models.model_folder import is_packaged

        path = self.folder / "results.json"
        model, config = load_run(self.folder)
        results = read_json(path)
        if is_packaged(self.folder):  # the package stays as it is
            _print_results({**results, **evaluate_run(model, config)})
            return
        tested = describe_run(seed=config.training.seed, device=next(model.parameters()).device)
        with locked(self.folder):
            results.update(evaluate_run(model, config), tested=tested)
            write_json(path, results)
        _print_results(results)


def _print_results(results: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    words = _task_words(results["task"], results["config"].get("protocol", "own"))
    table = Table("test", "level", "Dice", "given the spacing", title=f"{results['model']} on {words}")
    if results["task"] == "synthshape":
        table.add_row("clean", "", f"{results['clean']:.3f}", "")
    for row in results["rows"]:
        told = row.get("told")
        table.add_row(row["test"], f"{row['level']:g}", f"{row['dice']:.3f}", "" if told is None else f"{told:.3f}")
    console = Console()
    console.print(table)
    console.print(training_line(results))


@dataclass(frozen=True, kw_only=True)
class DataPreview(Command):
    """Draw sheets of samples, perturbations and resolutions."""

    task: Literal["synthshape", "halligalli", "all"] = "all"
    """Data set whose samples to draw."""
    out: Path = Path("preview")
    """Folder for the sheets."""
    seed: int = 0
    """Seed of the samples; training uses 0."""

    needs = ("matplotlib",)

    def run(self) -> None:
        from torchsonic.lab.report.preview import SHEETS

        if self.seed < 0:
            raise UserError(f"--seed must not be negative, got {self.seed}")
        folder = make_folder(self.out)
        for task in SHEETS if self.task == "all" else (self.task,):
            path = folder / f"{task}.png"
            SHEETS[task](self.seed).savefig(path, dpi=110)
            print("written:", path)


@dataclass(frozen=True)
class Demo(DemoConfig, Command):
    """Show in three minutes what SONIC does.

    Trains, tests and measures, and opens a page.
    """

    browser: bool = True
    """Do not open a browser."""

    needs = ("rich", "matplotlib")

    def run(self) -> None:
        if self.steps < 1 or self.batch < 1:
            raise UserError(f"--steps and --batch must be at least 1, got {self.steps} and {self.batch}")
        if self.volumes is not None and not (self.volumes / "images").is_dir():
            raise UserError(f"--volumes {self.volumes} must hold images/ and labels/ with NIfTI files")
        folder = make_folder(self.out)
        _use_idle_cores()
        page = run_demo(self, folder)
        print("written:", page)
        if self.browser and has_screen():
            webbrowser.open(page.resolve().as_uri())


def _use_idle_cores() -> None:
    """Use no more threads than there are idle cores: threads that wait for each other are slower than one."""
    busy, threads = round(busy_cores() or 0.0), torch.get_num_threads()
    idle = max(1, (os.cpu_count() or 1) - busy)
    if busy and idle < threads:
        print(f"other programs keep {busy} cores busy, so this takes longer; using {idle} of {threads} threads")
        torch.set_num_threads(idle)
