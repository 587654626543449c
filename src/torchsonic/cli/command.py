"""What commands share: errors that one line explains, optional packages, folders."""

from __future__ import annotations

import importlib.util
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

__all__ = [
    "Command",
    "UserError",
    "check_device",
    "make_folder",
    "option_value",
    "require",
    "require_console_and_figures",
    "training_errors_in_words",
    "warnings_in_one_line",
]


class UserError(Exception):
    """A mistake or a missing package that one line explains."""


class Command(Protocol):
    """What the command line runs."""

    def run(self) -> None: ...


def require(package: str, extra: str) -> None:
    """Refuse to go on without an optional package, and name the extra that brings it."""
    if importlib.util.find_spec(package) is None:
        raise UserError(f'{package} is not installed; run: pip install "torchsonic[{extra}]"')


def check_device(name: str) -> None:
    """Refuse a device that this machine or this PyTorch does not have."""
    import torch

    try:
        torch.empty(0, device=name)
    except (RuntimeError, AssertionError, NotImplementedError) as error:  # "not compiled with" is an assertion
        raise UserError(f"--device {name}: {str(error).partition(chr(10))[0]}; cpu is always there") from error


def require_console_and_figures() -> None:
    """Refuse to go on without what tables and figures need."""
    require("rich", "cli")
    require("matplotlib", "viz")


@contextmanager
def training_errors_in_words(thrift: str) -> Iterator[None]:
    """Explain what a run can end with, in place of a traceback; ``thrift`` are the options that save memory."""
    from torchsonic.engine.exhaustion import is_exhaustion
    from torchsonic.lab.training.checkpoint import CheckpointError

    try:
        yield
    except (CheckpointError, FloatingPointError, ImportError, OSError, ValueError) as error:
        raise UserError(str(error)) from error
    except RuntimeError as error:
        if not is_exhaustion(error):
            raise
        raise UserError(f"{error}\nmemory ran out: {thrift}") from error


def make_folder(path: Path) -> Path:
    """Create a folder for results."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"--out: cannot create {path}: {error.strerror}") from error
    return path


def option_value(arguments: Sequence[str], option: str) -> str | None:
    """What follows an option among raw arguments."""
    for place, word in enumerate(arguments):
        if word == option and place + 1 < len(arguments):
            return arguments[place + 1]
        if word.startswith(f"{option}="):
            return word.partition("=")[2]
    return None


@contextmanager
def warnings_in_one_line() -> Iterator[None]:
    """Show warnings as sentences, without the place in the code that raised them."""

    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        print(f"warning: {message}", file=sys.stderr)

    with warnings.catch_warnings():
        warnings.simplefilter("always", UserWarning)
        warnings.showwarning = show
        yield
