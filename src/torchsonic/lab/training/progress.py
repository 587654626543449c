"""A progress bar with throughput and an estimate of the end."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress, ProgressColumn


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
    with _bar(title) as progress:
        bar = progress.add_task(title, total=total)
        yield lambda: progress.advance(bar)


def _bar(title: str, *columns: ProgressColumn) -> Progress:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    begin = (TextColumn(title), BarColumn(), MofNCompleteColumn())
    return Progress(*begin, *columns, TextColumn("left"), TimeRemainingColumn())
