"""Train the runs of a study, one at a time or several in parallel; finished runs are not repeated."""

from __future__ import annotations

import os
import time
import traceback
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Future, ProcessPoolExecutor, wait
from multiprocessing import get_context
from pathlib import Path
from threading import Thread

import torch

from torchsonic.io import write_json
from torchsonic.lab.runs.provenance import current_commit
from torchsonic.lab.runs.settings import public_settings
from torchsonic.lab.runs.table1 import duration
from torchsonic.lab.studies.definition import Study
from torchsonic.lab.studies.plan import DIVERGED, Planned, plan_runs, time_left
from torchsonic.lab.training.checkpoint import CheckpointError

__all__ = ["run_study"]


def run_study(
    study: Study,
    out: Path,
    data: Path,
    *,
    models: Collection[str] = (),
    jobs: int = 1,
    threads: int = 1,
    say: Callable[[str], None] = print,
) -> list[str]:
    """Train all unfinished runs; continues where an earlier call stopped, even within a run.

    Parameters
    ----------
    data
        Folder that contains the data sets.
    models
        Names of the models to train; all by default.
    jobs, threads
        Parallel runs, and threads of each. Results may differ in the last bits with the threads, but not with the jobs.
    say
        Called with a line of text before each run, including an estimate of the remaining time.

    Returns
    -------
    list of str
        Failed runs with the reason; the other runs continued.
    """
    planned_runs = plan_runs(study, out, data)
    _check_data([run for run in planned_runs if not models or run.model in models])
    _tell_other_commits(planned_runs, say)
    failed: dict[Path, str] = {}
    active: dict[Future[str], Planned] = {}
    # A process of its own for each run: what one leaves behind in memory or random numbers, no other sees.
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn"), max_tasks_per_child=1) as pool:
        while True:
            runs = [run for run in plan_runs(study, out, data) if not models or run.model in models]
            done = {run.folder for run in runs if run.results() is not None}
            known = {*done, *failed, *(run.folder for run in active.values())}
            waiting = [run for run in runs if run.folder not in known and not run.missing]
            ready = [run for run in waiting if run.is_ready]
            for planned in ready[: jobs - len(active)]:
                left = time_left(runs)
                rest = "" if left is None else f"; {duration(left / jobs)} left in total"
                say(f"{len(done)} of {len(runs)} runs done{rest}; next: {planned.name}")
                active[pool.submit(_train, planned, threads)] = planned
                waiting.remove(planned)
            if not active:
                return [*failed.values(), *(f"{run.name}: its learning-rate search did not finish" for run in waiting)]
            for future in wait(active, return_when=FIRST_COMPLETED).done:
                planned = active.pop(future)
                try:
                    problem = future.result()
                except BrokenExecutor:
                    words = "its process was killed, perhaps because memory ran out; fewer --jobs need less"
                    raise ChildProcessError(f"{planned.name}: {words}; the same command continues") from None
                if problem:
                    failed[planned.folder] = f"{planned.name}: {problem}"
                    say(f"failed: {failed[planned.folder]}")


def _check_data(runs: Sequence[Planned]) -> None:
    """Refuse missing data once, before any work, rather than in every run."""
    for run in runs:
        folder = getattr(run.config(), "data", None)
        if folder is not None and not folder.is_dir() and not run.missing and run.results() is None:
            raise ValueError(f"study {run.study.name} needs the folder {folder}; use --data to say where its data are")


def _tell_other_commits(runs: Sequence[Planned], say: Callable[[str], None]) -> None:
    """Warn before any work that runs from several commits will be mixed."""
    now = str(current_commit())[:10]
    others = sorted({str(results["run"]["commit"])[:10] for run in runs if (results := run.results())} - {now})
    if others and any(run.results() is None and not run.missing for run in runs):
        say(f"finished runs are from commit {', '.join(others)}, new ones will be from {now}; the report will say so")


def _end_with_parent(parent: int) -> None:
    """End this process when its parent has gone, for whatever reason; it would otherwise continue unnoticed."""
    while os.getppid() == parent:
        time.sleep(1.0)
    os._exit(1)  # the run goes on from its last checkpoint when the study does


def _train(planned: Planned, threads: int) -> str:
    """Train one run in its own process; returns the error message, if any."""
    torch.set_num_threads(threads)
    Thread(target=_end_with_parent, args=(os.getppid(),), daemon=True).start()
    try:
        planned.train()
    except FloatingPointError as error:  # a finding about the rate, not a reason to try again
        settings = public_settings(planned.config())
        write_json(planned.folder / DIVERGED, {"reason": str(error), "config": settings})
    except (CheckpointError, ImportError, OSError, RuntimeError, ValueError) as error:
        return str(error)
    except Exception as error:  # a fault in one network's code must not end a night's work on the others
        traceback.print_exc()
        return f"{type(error).__name__}: {error}"
    return ""
