"""A progress bar with throughput and an estimate of the end; lines now and then where no terminal shows it."""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress, ProgressColumn

PAUSE = 10.0
"""Seconds between lines."""


@contextmanager
def training_progress(steps: int, done: int, batch: int, *, show: bool) -> Iterator[Callable[[int, float], None]]:
    """Show progress; call what this gives with the step and the loss."""
    if show and done >= steps:
        print(f"training has already finished, at step {done}")
    elif show and done > 0:
        print(f"training continues from step {done}")
    if not show or done >= steps:
        yield lambda step, loss: None
        return
    if not sys.stdout.isatty():
        say = _speaker("training", steps)
        yield lambda step, loss: say(step, f", loss {loss:.4f}")
        return
    from rich.progress import TextColumn, TimeElapsedColumn

    speed_and_loss = TextColumn("{task.fields[speed]:.1f} samples/s loss {task.fields[loss]:.4f}")
    start = time.perf_counter()
    with _bar("training", speed_and_loss, TimeElapsedColumn()) as progress:
        bar = progress.add_task("training", total=steps, completed=done, speed=0.0, loss=float("nan"))

        def advance(step: int, loss: float) -> None:
            speed = (step - done) * batch / max(1e-9, time.perf_counter() - start)
            progress.update(bar, completed=step, loss=loss, speed=speed)

        yield advance


@contextmanager
def counting_progress(title: str, total: int, *, show: bool) -> Iterator[Callable[[], None]]:
    """Show how many of some equal pieces of work are done; call what this gives after each."""
    if not show:
        yield lambda: None
        return
    if not sys.stdout.isatty():
        say, count = _speaker(title, total), itertools.count(1)
        yield lambda: say(next(count))
        return
    with _bar(title) as progress:
        bar = progress.add_task(title, total=total)
        yield lambda: progress.advance(bar)


def _speaker(title: str, total: int) -> Callable[..., None]:
    """Says how many of all are done, on the error stream, every few seconds."""
    last = time.perf_counter()

    def say(done: int, more: str = "") -> None:
        nonlocal last
        if time.perf_counter() - last > PAUSE:
            last = time.perf_counter()
            print(f"{title}: {done} of {total}{more}", file=sys.stderr, flush=True)

    return say


def _bar(title: str, *columns: ProgressColumn) -> Progress:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    begin = (TextColumn(title), BarColumn(), MofNCompleteColumn())
    return Progress(*begin, *columns, TextColumn("left"), TimeRemainingColumn())
