"""A progress bar with an estimate, for work whose parts are of known relative size."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn

__all__ = ["Part", "progress_bar"]

# Runs a named part of the work: given its name and weight, returns what to call with each fraction done.
Part = Callable[[str, float], Callable[[float], None]]


@contextmanager
def progress_bar(title: str, total: float) -> Iterator[Part]:
    """Show a bar for work of the given total weight."""
    columns = (
        TextColumn("[bold]{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        # Parts differ in length: only a long memory gives a useful estimate.
        TimeRemainingColumn(elapsed_when_finished=False),
    )
    with Progress(*columns, speed_estimate_period=600) as bar:
        task = bar.add_task(title, total=total)

        def part(name: str, weight: float) -> Callable[[float], None]:
            bar.update(task, description=f"{title} {name}")
            return lambda fraction: bar.advance(task, weight * fraction)

        yield part
        bar.update(task, description=title, completed=total)
