"""What the recipes of the paper's tables share: steps as data, a dry run, and a run that goes on where it stopped.

A step is a command and the variables that it needs. A dry run prints all of them as a shell script and looks at the
data; a run carries them out one after another. A step that was done with the same command is not done again.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from torchsonic.io import write_whole
from torchsonic.lab.report.runs import count

__all__ = [
    "PAPER",
    "SMOKE",
    "Problem",
    "Step",
    "absolute_path",
    "add_folder",
    "make_parser",
    "missing_packages",
    "run_recipe",
    "script",
]

ROOT = Path(__file__).resolve().parents[1]
PAPER, SMOKE = "paper", "smoke"
TAIL = 15
"""Lines of a log that are shown when its step fails."""


@dataclass(frozen=True)
class Step:
    """A command that is run once."""

    name: str
    command: Sequence[str | Path | int]
    variables: Mapping[str, str | Path | int | float] = field(default_factory=dict)

    @property
    def words(self) -> list[str]:
        return [str(word) for word in self.command]

    @property
    def environment(self) -> dict[str, str]:
        return {name: str(value) for name, value in self.variables.items()}

    @property
    def slug(self) -> str:
        return re.sub(r"[^a-z0-9]+", "-", self.name.lower()).strip("-")


@dataclass(frozen=True)
class Problem:
    """What is wrong with the data; a wrong count matters only to those who compare with the paper."""

    text: str
    kind: Literal["data", "count"] = "data"


def make_parser(name: str, description: str | None) -> argparse.ArgumentParser:
    """The options that all recipes have."""
    parser = argparse.ArgumentParser(f"python -m recipes.{name}", description=description)
    parser.add_argument("--out", type=absolute_path, required=True, help="folder for everything that is made")
    parser.add_argument("--dry-run", action="store_true", help="print every command and check the data; run nothing")
    parser.add_argument(
        "--budget",
        choices=(PAPER, SMOKE),
        default=PAPER,
        help="the paper's (default), or a few small cases and steps that try the whole chain in minutes",
    )
    parser.add_argument("--partial", action="store_true", help="go on although cases or images are missing")
    parser.add_argument(
        "--device", choices=("cuda", "cpu"), default="cuda", help="where to train and predict; cuda by default"
    )
    parser.add_argument("--page", action="store_true", help=argparse.SUPPRESS)  # the last step
    return parser


def add_folder(parser: argparse.ArgumentParser, name: str, title: str, *, required: bool = False) -> None:
    """An option for the folder of a data set."""
    words = f"folder of {title}, as docs/recipes.md describes it"
    parser.add_argument(f"--{name}", type=absolute_path, required=required, metavar="DIR", help=words)


def absolute_path(text: str) -> Path:
    """A path as given from where the recipe was started."""
    return Path(text).expanduser().absolute()


def missing_packages(*names: str) -> list[Problem]:
    """Packages that steps will need."""
    absent = [name for name in names if find_spec(name) is None]
    remedy = 'run: pip install -c constraints.txt ".[cli,train,viz,images,medical]"'
    return [Problem(f"the package {name} is not installed; {remedy}") for name in absent]


def run_recipe(steps: Sequence[Step], problems: Sequence[Problem], options: argparse.Namespace) -> int:
    """Print or run all steps; the exit code."""
    # Only the paper's numbers ask for the paper's cases.
    harmless = options.partial or options.budget == SMOKE
    fatal = [problem for problem in problems if problem.kind == "data" or not harmless]
    if options.dry_run:
        print("\n".join(script(steps)))
    for problem in problems:
        print(f"{'problem' if problem in fatal else 'note'}: {problem.text}", file=sys.stderr)
    if fatal:
        what = "--partial goes on without what is missing; " if all(p.kind == "count" for p in fatal) else ""
        print(f"{count(len(fatal), 'problem')} with the data; {what}nothing was run", file=sys.stderr)
        return 1
    if options.dry_run:
        print(f"{len(steps)} commands; the data can be used", file=sys.stderr)
        return 0
    mark = options.out / "budget"
    if mark.is_file() and mark.read_text(encoding="utf-8") != options.budget:
        print(f"{options.out} was made with another --budget; name another folder", file=sys.stderr)
        return 1
    options.out.mkdir(parents=True, exist_ok=True)
    write_whole(mark, options.budget)
    return _run_all(steps, options.out)


def script(steps: Sequence[Step]) -> Iterator[str]:
    """The lines of a shell script that does the same, to be run in the checkout."""
    yield from ("#!/usr/bin/env bash", "set -euo pipefail", f"cd {shlex.quote(str(ROOT))}")
    known: dict[str, str] = {}
    for step in steps:
        wanted = step.environment or known  # a step without variables does not mind those of others
        yield f"\n# {step.name}"
        changed = [f"{name}={shlex.quote(value)}" for name, value in wanted.items() if known.get(name) != value]
        gone = [name for name in known if name not in wanted]
        yield from [f"unset {' '.join(gone)}"] if gone else []
        yield from [f"export {' '.join(changed)}"] if changed else []
        yield shlex.join(step.words)
        known = wanted


def _run_all(steps: Sequence[Step], out: Path) -> int:
    log = out
    for number, step in enumerate(steps, start=1):
        mark, log = (out / "steps" / f"{step.slug}.{ending}" for ending in ("done", "log"))
        done = "\n".join(script([step])) + "\n"
        title = f"[{number}/{len(steps)}] {step.name}"
        if mark.is_file() and mark.read_text(encoding="utf-8") == done:
            print(f"{title}: done before")
            continue
        print(f"{title}\n    {shlex.join(step.words)}", flush=True)
        log.parent.mkdir(parents=True, exist_ok=True)
        if run_step(step, log):
            lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
            print("\n".join(lines[-TAIL:]), file=sys.stderr)
            print(f"{step.name} failed; all it said is in {log}", file=sys.stderr)
            print("mend the cause and give the same command again: it goes on here", file=sys.stderr)
            return 1
        write_whole(mark, done)
    print(log.read_text(encoding="utf-8"))  # the page
    return 0


def run_step(step: Step, log: Path) -> int:
    """The exit code; what the command says is kept."""
    with log.open("w", encoding="utf-8") as file:
        return subprocess.run(
            _resolve(step.words), env=_environment(step), cwd=ROOT, stdout=file, stderr=subprocess.STDOUT
        ).returncode


def _environment(step: Step) -> dict[str, str]:
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    return {**os.environ, "PYTHONPATH": path, **step.environment}


def _resolve(words: Sequence[str]) -> list[str]:
    """Commands of this interpreter's environment, whichever is active."""
    program, rest = words[0], list(words[1:])
    if program == "python":
        return [sys.executable, *rest]
    if program == "torchsonic":
        return [sys.executable, "-m", "torchsonic.cli", *rest]
    own = Path(sys.executable).parent / program
    return [str(own) if own.is_file() else shutil.which(program) or program, *rest]
