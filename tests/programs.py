"""Python programs that tests start: forked from a process that has imported PyTorch, which else takes most of the time.

A forked program has the environment, arguments and output of one that was started in a shell, and none of the tests'
own state.
"""

import atexit
import multiprocessing
import os
import runpy
import socket
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch

ROOT = Path(__file__).parents[1]
_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["tests.preloaded"])


def start(
    words: Sequence[object],
    *,
    log: Path | str = os.devnull,
    errors: Path | None = None,
    environment: Mapping[str, object] | None = None,
    fork_pools: bool = False,
):
    """Start ``python words ...`` in the root of the checkout; returns a process of :mod:`multiprocessing`.

    Parameters
    ----------
    log, errors
        Files for what it says; without ``errors`` both go to ``log``.
    environment
        Variables beside those of the tests.
    fork_pools
        Fork processes that the program wants to spawn in turn: nnU-Net spawns many, and each imports everything.
    """
    variables = {**os.environ, **{name: str(value) for name, value in (environment or {}).items()}}
    arguments = ([str(word) for word in words], variables, (log, errors or log), fork_pools)
    process = _CONTEXT.Process(target=_run, args=arguments)
    process.start()
    # What a failed test leaves behind: Python would wait for it at the end of the tests.
    atexit.register(process.kill)
    return process


def run(words: Sequence[object], *, timeout: float = 900, **options) -> int:
    """Start a program and wait for its exit code."""
    process = start(words, **options)
    process.join(timeout)
    if process.exitcode is None:
        process.kill()
        raise TimeoutError(f"{words} did not end within {timeout} s")
    return process.exitcode


def start_ranks(words: Sequence[object], **options) -> list:
    """Start a program twice as torchrun does, without one that watches over them."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    shared = {"WORLD_SIZE": 2, "LOCAL_WORLD_SIZE": 2, "GROUP_RANK": 0, "TORCHELASTIC_RUN_ID": "test"}
    shared |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    return [start(words, environment={**shared, "RANK": n, "LOCAL_RANK": n}, **options) for n in range(2)]


def run_ranks(words: Sequence[object], *, timeout: float = 900) -> None:
    """Start a program twice and wait until both have succeeded."""
    processes = start_ranks(words)
    for process in processes:
        process.join(timeout)
    for process in processes:
        process.kill()
    assert [process.exitcode for process in processes] == [0, 0]


def _run(words: Sequence[str], environment: Mapping[str, str], files: Sequence[Path | str], fork_pools: bool) -> None:
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(ROOT)
    multiprocessing.set_start_method("fork", force=True)  # not that of this process
    for stream, path in enumerate(files, start=1):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND), stream)
    if fork_pools:
        fork = multiprocessing.get_context("fork")
        multiprocessing.get_context = lambda method=None: fork
        torch.set_num_threads = lambda count: None  # OpenMP's threads do not survive a fork
    if words[0] == "-m":
        sys.argv = list(words[1:])
        runpy.run_module(words[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = list(words)
        sys.path.insert(0, str(Path(words[0]).parent))
        runpy.run_path(words[0], run_name="__main__")
