"""Where a result came from: command, commit, seed, machine, versions."""

from __future__ import annotations

import os
import platform
import shlex
import subprocess
import sys
import time
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch

from torchsonic import __version__

BUSY_LIMIT = 0.2
BUSY_SECONDS = 1.0
ROOT = Path(__file__).resolve().parents[4]


def _git(*arguments: str) -> str | None:
    """Answer of git about the checkout this package lies in, if it lies in one of its own."""
    if not (ROOT / ".git").exists():
        return None
    try:
        done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True, timeout=10)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def _cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def busy_cores() -> float | None:
    """How many cores do something while this process sleeps; ``None`` where the system does not tell."""
    counts = []
    for pause in (BUSY_SECONDS, 0.0):
        try:
            fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
        except OSError:
            return None
        numbers = [int(field) for field in fields]
        counts.append((sum(numbers[3:5]), sum(numbers[:8])))
        time.sleep(pause)
    idle, total = (after - before for before, after in zip(*counts, strict=True))
    return (os.cpu_count() or 1) * (1 - idle / max(total, 1))


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _from_here(word: str) -> str:
    """A word of a command; a path below the current folder is told from there, as others would type it."""
    path = Path(word)
    return str(path.relative_to(Path.cwd())) if path.is_absolute() and path.is_relative_to(Path.cwd()) else word


def current_commit() -> str | None:
    """The commit of the checkout that this package lies in."""
    return _git("rev-parse", "HEAD")


def describe_run(*, seed: int, device: torch.device) -> dict:
    """To be called before the work: the cores found busy are then busy with something else."""
    # Results themselves may lie uncommitted without the code having changed.
    changes = _git("status", "--porcelain", "--", ".", ":(exclude)results")
    return {
        "command": shlex.join(["torchsonic", *map(_from_here, sys.argv[1:])]),
        "commit": current_commit(),
        "dirty": None if changes is None else bool(changes),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "seed": seed,
        "threads": torch.get_num_threads(),
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else device.type,
        "cpu": _cpu_name(),
        "busy_cores": busy_cores(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "torchsonic": __version__,
        "neuraloperator": _version("neuraloperator"),
    }


def summary_line(run: dict) -> str:
    """One line that lets a result be made again."""
    commit = "unknown commit" if run["commit"] is None else f"commit {run['commit'][:10]}"
    if run["dirty"]:
        commit += " with uncommitted changes"
    machine = run["cpu"] if run["device"] == "cpu" else f"{run['device']} ({run['cpu']})"
    threads = f"{run['threads']} thread{'' if run['threads'] == 1 else 's'}"
    return (
        f"`{run['command']}` at {commit}, seed {run['seed']}, {run['date']}. "
        f"{machine}, {threads}, torch {run['torch']}, torchsonic {run['torchsonic']}."
        f"{activity_warning(run)}"
    )


def activity_warning(run: dict) -> str:
    """A sentence where other work may have spoilt the times."""
    busy = run["busy_cores"]
    if busy is None or busy < BUSY_LIMIT:
        return ""
    return f" Other work kept {busy:.1f} cores busy at the start: do not trust these times."
