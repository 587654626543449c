"""The command line: one dataclass for each command, wired together here and nowhere else.

A command is a frozen dataclass whose fields are its options and whose ``run`` does the work. ``COMMANDS`` is the tree
of names: to add a command, add a leaf. Everything optional is imported when a command runs.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, make_dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Protocol, Union

import torchsonic
from torchsonic.demo import DemoConfig, run_demo

__all__ = ["main"]

REFERENCE_RESULTS = Path("results/bench")
TRIAL_RESULTS = Path("runs/bench")


class UserError(Exception):
    """A mistake or a missing package that one line explains."""


class Command(Protocol):
    def run(self) -> None: ...


def _require(package: str, extra: str) -> None:
    if importlib.util.find_spec(package) is None:
        raise UserError(f'{package} is not installed; run: pip install "torchsonic[{extra}]"')


def _require_console_and_figures() -> None:
    _require("rich", "cli")
    _require("matplotlib", "viz")


def _find_benchmarks() -> None:
    """Make the package ``benchmarks`` importable; it lives beside the sources and is in no wheel."""
    for root in (Path(torchsonic.__file__).resolve().parents[2], Path.cwd()):
        if (root / "benchmarks" / "contenders.py").is_file():
            if str(root) not in sys.path:
                sys.path.insert(0, str(root))
            return
    raise UserError("the benchmarks need a checkout of the torchsonic repository; run this command inside one")


def _make_folder(path: Path) -> Path:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"--out: cannot create {path}: {error.strerror}") from error
    return path


def _result_folder(out: Path | None, *, partial: bool) -> Path:
    """Where results go: a trial must not overwrite the reference results unless told to."""
    return _make_folder(out or (TRIAL_RESULTS if partial else REFERENCE_RESULTS))


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

        _require_console_and_figures()
        _find_benchmarks()
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
        folder = _result_folder(self.out, partial=self.quick or bool(self.sizes))
        budget = operator_bench.QUICK_BUDGET if self.quick else operator_bench.ENTRY_BUDGET
        result = operator_bench.run_operator_bench(
            chosen, repeats=repeats, seed=self.seed, device=self.device, budget=budget
        )
        _report(result, folder)


@dataclass(frozen=True, kw_only=True)
class BenchScaling(_Bench):
    """Time and memory of blocks over image size, channels and modes: the paper's figure."""

    def run(self) -> None:
        repeats, folder = self._prepare(), _result_folder(self.out, partial=self.quick)
        from benchmarks import scaling_bench

        sweeps = scaling_bench.QUICK if self.quick else scaling_bench.FULL
        result = scaling_bench.run_scaling_bench(sweeps, repeats=repeats, seed=self.seed, device=self.device)
        _report(result, folder)


@dataclass(frozen=True, kw_only=True)
class BenchReport:
    """Write Markdown and figures again from the JSON of earlier runs."""

    out: Path = REFERENCE_RESULTS
    """Folder of the results."""

    def run(self) -> None:
        _require_console_and_figures()
        _find_benchmarks()
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


@dataclass(frozen=True)
class Demo(DemoConfig):
    """Train a small Sonic network at one resolution and draw what it finds at others: about a minute."""

    def run(self) -> None:
        _require_console_and_figures()
        if self.steps < 1 or self.batch < 1:
            raise UserError(f"--steps and --batch must be at least 1, got {self.steps} and {self.batch}")
        _make_folder(self.out)
        run_demo(self)


@dataclass(frozen=True, kw_only=True)
class Version:
    """Print the versions of torchsonic, PyTorch and Python."""

    def run(self) -> None:
        import platform

        import torch

        print(f"torchsonic {torchsonic.__version__}, torch {torch.__version__}, Python {platform.python_version()}")


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
        _require_console_and_figures()
        _find_benchmarks()
        from benchmarks import init_bench

        partial = (self.modes, self.seeds) != (BenchInit.modes, BenchInit.seeds)
        folder = _result_folder(self.out, partial=partial)
        _report(init_bench.run_init_bench(self.modes, self.seeds), folder)


# Leaves are commands; a group is its one-line help and its members.
COMMANDS: dict[str, Any] = {
    "demo": Demo,
    "bench": (
        "Measure speed and memory.",
        {"operator": BenchOperator, "scaling": BenchScaling, "init": BenchInit, "report": BenchReport},
    ),
    "version": Version,
}


def _command_type(commands: Mapping[str, Any]) -> Any:
    """The tree of commands as the union of dataclasses that tyro turns into nested subcommands."""
    import tyro

    members = []
    for name, entry in commands.items():
        if isinstance(entry, tuple):
            text, inner = entry
            group = make_dataclass(f"{name.capitalize()}Group", [("command", _command_type(inner))])
            members.append(Annotated[group, tyro.conf.subcommand(name, description=text)])
        else:
            members.append(Annotated[entry, tyro.conf.subcommand(name)])
    # tyro takes a union of one for the type itself, without a subcommand.
    assert len(members) > 1
    return Union[tuple(members)]


def _parse(arguments: Sequence[str]) -> Command:
    import tyro

    flags = (tyro.conf.OmitSubcommandPrefixes, tyro.conf.OmitArgPrefixes, tyro.conf.FlagCreatePairsOff)
    chosen = tyro.cli(
        _command_type(COMMANDS),
        prog="torchsonic",
        description=f"SONIC convolutions for PyTorch, version {torchsonic.__version__}.",
        args=list(arguments),
        config=flags,
    )
    while hasattr(chosen, "command"):
        chosen = chosen.command
    return chosen


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point of the command ``torchsonic``; returns the exit status."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if list(arguments) in (["--version"], ["-V"]):
        print(f"torchsonic {torchsonic.__version__}")
        return 0
    try:
        _require("tyro", "cli")
        _parse(arguments).run()
    except UserError as error:
        print(f"torchsonic: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("torchsonic: interrupted", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
