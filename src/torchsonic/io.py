"""Files: one atomic writer and one safe reader.

Files are written completely or not at all, with the permissions of the user's umask. Nothing that is read is executed.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import pickle
import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import torch

LONGEST_JSON = 1 << 28
"""Larger JSON files are refused."""


class RefusedFileError(ValueError):
    """A file that cannot be read, or not without executing it; the message completes a sentence about the file."""


@contextmanager
def replacing(path: Path, *, durable: bool = False) -> Iterator[Path]:
    """A temporary file in the same folder that replaces ``path`` when the block ends without an error.

    Its name has the same ending as ``path``, since libraries infer the format from it, and differs between processes.

    Parameters
    ----------
    durable
        Wait until the file is on disk, so that it survives a power cut.
    """
    if _is_stream(path):
        raise OSError(errno.EINVAL, "it is a device or a pipe; name a file", os.fspath(path))
    scratch = path.with_name(f".{os.getpid()}.{path.name}")
    try:
        scratch.touch()
        mode = scratch.stat().st_mode  # as the umask says; some libraries write files that only their owner can read
        yield scratch
        os.chmod(scratch, mode)
        if durable:
            _sync(scratch)
        os.replace(scratch, path)
        if durable:
            with contextlib.suppress(OSError):  # not every system can open a folder
                _sync(path.parent)
    except OSError as error:
        if error.filename not in (None, os.fspath(scratch)):  # a full disk names no file, and nobody knows the scratch
            raise
        raise OSError(error.errno, error.strerror or str(error), os.fspath(path)) from error
    finally:
        with contextlib.suppress(OSError):
            scratch.unlink(missing_ok=True)


def follow_umask(path: Path) -> None:
    """Give a file the permissions of any other new file; some libraries write files that only their owner can read."""
    probe = path.with_name(f".{os.getpid()}.umask")  # asking for the umask would change it for other threads
    try:
        probe.touch()
        os.chmod(path, probe.stat().st_mode)
    finally:
        probe.unlink(missing_ok=True)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_whole(path: Path, content: str | bytes, *, durable: bool = False) -> None:
    """Write text, as UTF-8, or bytes; devices and pipes, such as ``/dev/null``, are written to as they are."""
    content = content.encode() if isinstance(content, str) else content
    if _is_stream(path):
        path.write_bytes(content)
        return
    with replacing(path, durable=durable) as scratch:
        scratch.write_bytes(content)


def _is_stream(path: Path) -> bool:
    if not path.exists() or path.is_dir():
        return False
    # What stands in /dev may be redirected to a file, as /dev/stdout; it must not be replaced all the same.
    return not path.is_file() or path.parent == Path("/dev")


def write_json(path: Path, value: Any) -> None:
    """Write a value as indented JSON."""
    write_whole(path, json.dumps(value, indent=2) + "\n")


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON file that contains an object.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    RefusedFileError
        If it cannot be read or contains something else; the message is a whole sentence.
    """
    try:
        if path.stat().st_size > LONGEST_JSON:
            raise RefusedFileError(f"{path} is {path.stat().st_size} bytes long, too long for a settings file")
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise
    except OSError as error:
        raise RefusedFileError(f"{path} cannot be read: {error.strerror}") from error
    except RefusedFileError:
        raise
    except (ValueError, RecursionError) as error:
        raise RefusedFileError(f"{path} is not valid JSON, perhaps cut short: {error}") from error
    if not isinstance(value, dict):
        raise RefusedFileError(f"{path} contains a {type(value).__name__} where an object {{...}} is expected")
    return value


def load_plain(source: str | Path | IO[bytes], *, also: Sequence[Any] = ()) -> Any:
    """Read a ``torch.save`` file without executing anything in it; tensors are put on the CPU.

    Such a file is a pickle, a list of calls to make. Only tensors, numbers, text and plain containers are built;
    everything else is refused before it can run. No other code calls ``torch.load``.

    Parameters
    ----------
    also
        Other classes that a file may contain, as in ``torch.serialization.safe_globals``; they must only hold data.

    Raises
    ------
    RefusedFileError
        If the file contains more than that, is damaged, or was not written by ``torch.save``.
    """
    try:
        with torch.serialization.safe_globals(list(also)), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # on pickle protocols that it may not know; it refuses those it does not
            return torch.load(source, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise RefusedFileError(
            f"is damaged, or contains more than numbers, text and plain containers, and is not loaded{_asked(error)}"
        ) from error
    except Exception as error:  # whatever a broken file makes of the reader
        reason = next(iter(str(error).splitlines()), "").partition(". ")[0]
        reason = f" ({reason})" if reason and not isinstance(error, KeyError) else ""  # a key alone says nothing
        raise RefusedFileError(f"is not a complete torch.save file{reason}") from error


def _asked(error: pickle.UnpicklingError) -> str:
    """What was asked for, if PyTorch says so; not its advice, which is to load the file without this protection."""
    found = re.search(r"[Uu]nsupported (?:global: )?GLOBAL (\S+)", str(error))
    return f": it asks for {found[1]}" if found else ""
