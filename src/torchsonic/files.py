"""Files that appear whole or not at all: a reader never finds half of one, whenever the writer is killed."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

__all__ = ["replacing", "write_json", "write_whole"]


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A scratch file in the same folder that takes the place of ``path`` when the block ends without an error.

    Its name ends like that of ``path``, by which libraries know the format, and differs between processes.
    """
    scratch = path.with_name(f".{os.getpid()}.{path.name}")
    try:
        yield scratch
        os.replace(scratch, path)
    except OSError as error:  # a full disk names no file
        raise OSError(error.errno, error.strerror or str(error), os.fspath(path)) from error
    finally:
        with contextlib.suppress(OSError):
            scratch.unlink(missing_ok=True)


def write_whole(path: Path, content: str | bytes) -> None:
    """Write text, as UTF-8, or bytes."""
    with replacing(path) as scratch:
        scratch.write_bytes(content.encode() if isinstance(content, str) else content)


def write_json(path: Path, value: Any) -> None:
    """Write a value as indented JSON."""
    write_whole(path, json.dumps(value, indent=2) + "\n")
