"""Reading what ``torch.save`` wrote without executing anything in it: the one place that calls ``torch.load``.

Such a file is a pickle, a list of calls to make. Here tensors, numbers, text and plain containers are built, and
everything else is refused before it could run.
"""

from __future__ import annotations

import pickle
import re
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

import torch

__all__ = ["RefusedFileError", "load_plain"]


class RefusedFileError(ValueError):
    """A file that cannot be read without executing it, or at all; the message is to follow the file's name."""


def load_plain(source: str | Path | IO[bytes], *, also: Sequence[Any] = ()) -> Any:
    """The content of a file, tensors on the CPU.

    Parameters
    ----------
    also
        What a file may ask for beside, as ``torch.serialization.safe_globals`` takes it: things that only hold data.

    Raises
    ------
    RefusedFileError
        If the file asks for more, is damaged, or is none of ``torch.save``.
    """
    try:
        with torch.serialization.safe_globals(list(also)), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # on pickle protocols that it may not know; it refuses those it does not
            return torch.load(source, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise RefusedFileError(
            f"is damaged, or holds more than numbers, text and plain containers, and is not loaded{_asked(error)}"
        ) from error
    except Exception as error:  # whatever a broken file makes of the reader
        reason = next(iter(str(error).splitlines()), "")
        raise RefusedFileError(f"is no whole file of torch.save ({type(error).__name__}: {reason})") from error


def _asked(error: pickle.UnpicklingError) -> str:
    """What was asked for, if PyTorch says so; not its advice, which is to load the file without this protection."""
    found = re.search(r"[Uu]nsupported (?:global: )?GLOBAL (\S+)", str(error))
    return f": it asks for {found[1]}" if found else ""
