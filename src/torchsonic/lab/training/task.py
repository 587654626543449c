"""What the loop asks of a task, how its batches are shared out, and in which order training meets its samples."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, get_worker_info

from torchsonic.lab.training.config import TrainingConfig


class Task(Protocol):
    """Data, loss and evaluation of one experiment."""

    def batch(self, step: int, samples: range) -> Any:
        """The samples with these numbers within the batch of a step; a function of its arguments and nothing else."""
        ...

    def loss(self, model: nn.Module, batch: Any) -> Tensor:
        """Scalar loss, a mean over the batch's samples."""
        ...

    def evaluate(self, model: nn.Module) -> dict[str, float]:
        """Numbers of the current model; ``score`` is the one whose highest value is best."""
        ...


def share(size: int, part: int, parts: int) -> range:
    """The samples of one of several equal parts of a batch."""
    if size % parts != 0:
        raise ValueError(f"batch must be divisible by processes times accumulated parts, got {size} and {parts}")
    return range(part * size // parts, (part + 1) * size // parts)


class _Parts(Dataset):
    """Batches by (step, samples): any worker makes the same one, and a run resumes at any step."""

    def __init__(self, task: Task) -> None:
        self.task = task

    def __getitem__(self, key: tuple[int, range]) -> Any:
        try:
            return self.task.batch(*key)
        except (OSError, ValueError) as error:
            if get_worker_info() is None:
                raise
            return error  # to be raised where it is asked for; DataLoader would put the worker's traceback in its words


class _Order:
    """Which parts this process sees, from a step on."""

    def __init__(self, config: TrainingConfig, start: int, rank: int, world: int) -> None:
        self.config, self.start, self.rank, self.world = config, start, rank, world

    def __iter__(self) -> Iterator[tuple[int, range]]:
        parts = self.world * self.config.accumulate
        for step in range(self.start, self.config.steps):
            for turn in range(self.config.accumulate):
                yield step, share(self.config.batch, turn * self.world + self.rank, parts)

    def __len__(self) -> int:
        return (self.config.steps - self.start) * self.config.accumulate


def _one_thread(worker: int) -> None:
    torch.set_num_threads(1)


def make_batches(task: Task, config: TrainingConfig, *, start: int, rank: int, world: int) -> DataLoader:
    """A loader of this process's parts, in order."""
    share(config.batch, 0, world * config.accumulate)
    return DataLoader(
        _Parts(task),
        batch_size=None,
        sampler=_Order(config, start, rank, world),
        num_workers=config.workers,
        worker_init_fn=_one_thread,
        # Forked processes share what a task has read already; Python's other ways would send or read it again.
        # Elsewhere than on Linux, forking is not safe.
        multiprocessing_context="fork" if config.workers and sys.platform == "linux" else None,
        # Workers draw nothing from it, but making it would otherwise draw from the run's own random numbers.
        generator=torch.Generator(),
    )


def epoch_order(pool: Sequence[int] | NDArray[np.int64], seed: int, start: int, count: int) -> NDArray[np.int64]:
    """Samples number ``start`` to ``start + count`` of an endless run through a pool, shuffled anew each time."""
    places = [place_in_epoch(len(pool), seed, number) for number in range(start, start + count)]
    return np.asarray(pool, dtype=np.int64)[places]


def place_in_epoch(count: int, seed: int, number: int) -> int:
    """Sample ``number`` of an endless run through ``count`` samples."""
    epoch, place = divmod(number, count)
    return int(_shuffled(count, seed, epoch)[place])


@lru_cache(maxsize=2)
def _shuffled(count: int, seed: int, epoch: int) -> NDArray[np.int64]:
    return np.random.Generator(np.random.Philox(key=[seed, epoch])).permutation(count)
