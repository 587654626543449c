"""Where a result came from: command, commit, seed, machine, versions."""

from __future__ import annotations

import platform
import shlex
import subprocess
import sys
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch

import torchsonic

__all__ = ["describe_run", "summary_line"]

ROOT = Path(__file__).resolve().parents[1]


def _git(*arguments: str) -> str | None:
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


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def describe_run(*, seed: int, device: torch.device) -> dict:
    # Results themselves may lie uncommitted without the code having changed.
    changes = _git("status", "--porcelain", "--", ".", ":(exclude)results")
    return {
        "command": shlex.join(["torchsonic", *sys.argv[1:]]),
        "commit": _git("rev-parse", "HEAD"),
        "dirty": None if changes is None else bool(changes),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "seed": seed,
        "threads": torch.get_num_threads(),
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu",
        "cpu": _cpu_name(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "torchsonic": torchsonic.__version__,
        "neuraloperator": _version("neuraloperator"),
    }


def summary_line(run: dict) -> str:
    commit = "unknown commit" if run["commit"] is None else f"commit {run['commit'][:10]}"
    if run["dirty"]:
        commit += " with uncommitted changes"
    machine = run["cpu"] if run["device"] == "cpu" else f"{run['device']} ({run['cpu']})"
    return (
        f"`{run['command']}` at {commit}, seed {run['seed']}, {run['date']}. "
        f"{machine}, {run['threads']} threads, torch {run['torch']}, torchsonic {run['torchsonic']}."
    )
