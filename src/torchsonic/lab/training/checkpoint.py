"""Checkpoints that survive a kill at any moment.

A file is the line ``torchsonic checkpoint 1 <sha256>`` and then what ``torch.save`` wrote. It appears whole or not at
all: written under another name, forced to the disk, renamed. ``last`` and ``previous`` are the two newest, ``best`` the
one with the highest score; ``kept`` holds copies of the weights alone, if a run is asked for them. Reading uses
``weights_only``: nothing from the file is executed.
"""

from __future__ import annotations

import hashlib
import io
import os
import random
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from torchsonic.io import RefusedFileError, load_plain, replacing

MAGIC = b"torchsonic checkpoint 1 "
KEPT = "kept"


class CheckpointError(RuntimeError):
    """A checkpoint that cannot be written or read; the message says which, why, and what to do."""


def write_checkpoint(path: Path, state: dict[str, Any]) -> None:
    """Write a file whole or not at all."""
    buffer = io.BytesIO()
    torch.save(state, buffer)
    payload = buffer.getbuffer()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path, durable=True) as scratch, open(scratch, "wb") as file:
            file.write(MAGIC + hashlib.sha256(payload).hexdigest().encode() + b"\n")
            file.write(payload)
    except OSError as error:
        raise CheckpointError(
            f"cannot write {path}: {error.strerror}; free some space or use another folder, then resume"
        ) from error


def read_checkpoint(path: Path) -> dict[str, Any]:
    """Read a file that :func:`write_checkpoint` wrote, checked bit by bit."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise CheckpointError(f"cannot read {path}: {error.strerror}") from error
    head, _, payload = content.partition(b"\n")
    if not head.startswith(MAGIC):
        raise CheckpointError(f"{path} is empty, or not a torchsonic checkpoint")
    if hashlib.sha256(payload).hexdigest().encode() != head[len(MAGIC) :]:
        raise CheckpointError(f"{path} is damaged or cut short")
    try:
        return load_plain(io.BytesIO(payload))
    except RefusedFileError as reason:
        raise CheckpointError(f"{path} {reason}") from reason


class Checkpoints:
    """The files of one run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.last, self.previous, self.best = (folder / f"{name}.ckpt" for name in ("last", "previous", "best"))

    def save(self, state: dict[str, Any], *, best: bool = False) -> None:
        """Write the newest state; what was newest becomes the previous one."""
        if best:
            # First: a run that is killed here finds the same best again, one killed behind `last` never would.
            write_checkpoint(self.best, state)
        scratch = self.folder / "next.ckpt"
        write_checkpoint(scratch, state)
        if self.last.exists():
            os.replace(self.last, self.previous)
        os.replace(scratch, self.last)

    def keep(self, step: int, weights: Mapping[str, Tensor]) -> None:
        """Write a copy of the weights that no later one replaces."""
        write_checkpoint(self.folder / KEPT / f"{step:08d}.ckpt", {"step": step, "model": dict(weights)})

    def load(self) -> dict[str, Any] | None:
        """The newest good state, or ``None`` if the run has none; a bad file is named and passed over."""
        # A kill between two renames leaves the newest state under `next` and nothing under `last`.
        found = [path for path in (self.last, self.folder / "next.ckpt", self.previous) if path.exists()]
        reasons = []
        for path in found:
            try:
                state = read_checkpoint(path)
            except CheckpointError as error:
                reasons.append(str(error))
                continue
            if reasons:
                warnings.warn(f"{'; '.join(reasons)}; resuming from {path.name}", stacklevel=2)
            return state
        if reasons:
            raise CheckpointError(f"{'; '.join(reasons)}; delete them to start over")
        return None


def kept_weights(run: Path) -> Iterator[tuple[int, dict[str, Tensor]]]:
    """Steps and weights of the copies that a run kept, in order; none if it was not asked to keep any."""
    for path in sorted((run / "checkpoints" / KEPT).glob("*.ckpt")):
        state = read_checkpoint(path)
        yield state["step"], state["model"]


def random_state() -> dict[str, Any]:
    """The state of all random numbers of this process."""
    python, numbers, counters = random.getstate(), np.random.get_state(legacy=True), {}
    if torch.cuda.is_available():
        counters["cuda"] = torch.cuda.get_rng_state()
    if torch.backends.mps.is_available():
        counters["mps"] = torch.mps.get_rng_state()
    name, keys, position, has_gauss, gauss = numbers
    return {
        "torch": torch.get_rng_state(),
        "python": [python[0], list(python[1]), python[2]],
        "numpy": [str(name), torch.from_numpy(np.asarray(keys).astype(np.int64)), position, has_gauss, gauss],
        **counters,
    }


def restore_random_state(state: dict[str, Any]) -> None:
    """Put the random numbers of this process back."""
    torch.set_rng_state(state["torch"])
    version, internal, gauss = state["python"]
    random.setstate((version, tuple(internal), gauss))
    name, keys, *rest = state["numpy"]
    assert isinstance(keys, Tensor)
    np.random.set_state((name, keys.numpy().astype(np.uint32), *rest))
    if "cuda" in state and torch.cuda.is_available():
        torch.cuda.set_rng_state(state["cuda"])
    if "mps" in state and torch.backends.mps.is_available():
        torch.mps.set_rng_state(state["mps"])
