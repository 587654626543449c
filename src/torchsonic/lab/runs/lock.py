"""One process at a time trains a folder.

The lock is a file, ``.lock``, that the system unlocks when the process that holds it ends, however it ends: a crash
leaves nothing to clean up. The file says who holds it.
"""

from __future__ import annotations

import contextlib
import errno
import os
import platform
import shlex
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import IO

from torchsonic.lab.training import CheckpointError

LOCK_NAME = ".lock"
HELD = (errno.EAGAIN, errno.EACCES, errno.EDEADLK)


class RunLockedError(CheckpointError):
    """Another process is at work in the folder of a run; the message says which."""


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keep other processes from training in a folder, which is created, and removed again if it stays empty."""
    created = [path for path in (folder, *folder.parents) if not path.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / LOCK_NAME
    file = _take(path)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            path.unlink()
        file.close()
        with contextlib.suppress(OSError):  # a folder that holds something stays
            for empty in created:
                empty.rmdir()


def _take(path: Path) -> IO[str]:
    """The lock file, locked by this process."""
    while True:
        file = open(path, "a+", encoding="utf-8")  # noqa: SIM115  (open as long as the lock is held)
        try:
            _lock(file)
        except OSError as error:
            if error.errno not in HELD:  # some network folders know no locks
                warnings.warn(
                    f"{path.parent} cannot be locked ({error.strerror}); train it only once at a time", stacklevel=4
                )
                return file
            file.seek(0)
            holder = file.read() or "another process"  # which has just begun to write, or was killed while it did
            file.close()
            raise RunLockedError(
                f"{path.parent} is being trained by {holder}; wait for it to finish, stop it, or use another --out"
            ) from error
        # Whoever held the lock may have removed the file after it was opened here: then another one is the lock.
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(file.fileno()), path.stat()):
                break
        file.close()
    file.truncate(0)
    since, command = datetime.now(UTC).isoformat(timespec="seconds"), shlex.join(["torchsonic", *sys.argv[1:]])
    file.write(f"process {os.getpid()} on {platform.node()} since {since} ({command})")
    file.flush()
    return file


def _lock(file: IO[str]) -> None:
    """Lock an open file, or raise ``OSError`` if another process has locked it."""
    try:
        import fcntl
    except ImportError:  # Windows
        import msvcrt

        file.seek(1 << 30)  # beyond the text, which others are to read
        msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined]
    else:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
