"""What commands share: their base, errors that one line explains, optional packages, folders and pages."""

from __future__ import annotations

import importlib.util
import os
import sys
import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from torchsonic.lab.report import Document

EXTRAS = {
    "tyro": "cli",
    "rich": "cli",
    "matplotlib": "viz",
    "PIL": "images",
    "lightning_fabric": "train",
    "triton": "triton",
    **dict.fromkeys(("monai", "nibabel", "nnunetv2", "picai_eval", "scipy"), "medical"),
}
"""The extra of torchsonic that brings an optional package."""


class UserError(Exception):
    """A mistake or a missing package that one line explains."""


class Command:
    """What the command line runs: a frozen dataclass whose fields are options and whose first line is its help."""

    needs: ClassVar[Sequence[str]] = ()
    """Optional packages."""
    positional: ClassVar[Sequence[str]] = ()
    """Fields that are given without a name."""
    hidden: ClassVar[Collection[str]] = ()
    """Fields that are no options, those of groups as ``training.seed``."""
    renamed: ClassVar[Mapping[str, str]] = {}
    """Former names of options, with the present ones; a field may keep the former name."""
    thrift: ClassVar[str] = "a smaller --batch or --size"
    """Options that save memory."""

    @classmethod
    def with_preset(cls, arguments: Sequence[str]) -> Any:
        """The defaults that the arguments choose; ``None`` for those of the fields."""
        return None

    def values_for(self, cls: Any) -> dict[str, Any]:
        """Values of the options that a dataclass has, too."""
        return {field.name: getattr(self, field.name) for field in fields(cls) if hasattr(self, field.name)}

    def run(self) -> None:
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class OnDevice(Command):
    """A command that runs a trained network."""

    device: str = "cpu"
    """Device that runs the network: cpu, cuda or mps."""

    def check_device(self) -> None:
        """Refuse a device that this machine or this PyTorch does not have."""
        import torch

        try:
            torch.empty(0, device=self.device)
        except (RuntimeError, AssertionError, NotImplementedError) as error:  # "not compiled with" is an assertion
            reason = str(error).partition("\n")[0].partition(". ")[0]
            raise UserError(f"--device {self.device}: {reason}; --device cpu always works") from error


def require(*packages: str) -> None:
    """Refuse to go on without optional packages, and name the extra that brings them."""
    for package in packages:
        if importlib.util.find_spec(package) is None:
            raise UserError(f'{package} is not installed; run: pip install "torchsonic[{EXTRAS[package]}]"')


def error_text(error: Exception, command: Command | None) -> str | None:
    """What users are told of an error in place of a traceback; ``None`` for errors that are ours."""
    from torchsonic.engine.memory import is_exhaustion
    from torchsonic.export import ExportError
    from torchsonic.lab.training.checkpoint import CheckpointError

    if is_exhaustion(error) and command is not None:
        return f"{error}\nout of memory; try {command.thrift}"
    if isinstance(error, OSError) and error.filename is not None:
        out = getattr(command, "out", None)
        own = out is not None and Path(error.filename).is_relative_to(out)
        return f"{'--out: cannot write' if own else 'cannot read or write'} {error.filename}: {error.strerror}"
    expected = (UserError, ValueError, OSError, ImportError, FloatingPointError, CheckpointError, ExportError)
    return " ".join(map(str.strip, str(error).splitlines())) if isinstance(error, expected) else None


def make_folder(path: Path) -> Path:
    """Create a folder for results."""
    if path.is_file():
        raise UserError(f"--out: {path} is a file; name a folder")
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"--out: cannot create {path}: {error.strerror}") from error
    if not os.access(path, os.W_OK):  # said before any work
        raise UserError(f"--out: {path} is read-only; choose another folder")
    return path


def has_screen() -> bool:
    """Whether a browser that is opened can be seen."""
    return sys.platform in ("darwin", "win32") or any(os.environ.get(n) for n in ("DISPLAY", "WAYLAND_DISPLAY"))


def publish(document: Document, out: Path, *, sections: Collection[str] | None = None) -> None:
    """Write a report to a folder, and print its tables, or those of some sections."""
    from torchsonic.lab.report import print_document, write_document

    written = write_document(document, make_folder(out))
    print_document(document, sections=sections)
    print("written:", written[0])


def is_first_process() -> bool:
    """Of those that torchrun started, the one that speaks."""
    return int(os.environ.get("RANK", "0")) == 0


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
    """Show warnings as sentences, each once, without the place in the code that raised them."""
    shown = set()

    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        if str(message) not in shown:
            shown.add(str(message))
            print(f"warning: {message}", file=sys.stderr)

    with warnings.catch_warnings():
        warnings.simplefilter("always", UserWarning)
        warnings.showwarning = show
        yield
