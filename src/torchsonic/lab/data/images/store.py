"""The images of an experiment: decoded once and kept in memory as far as they fit."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from torchsonic.lab.data.images.files import ImageError, read_image


class ImageStore:
    """Images by path; what it gives does not depend on how much it keeps.

    Parameters
    ----------
    side
        Pixels that shorter sides have at most, see :func:`torchsonic.lab.data.images.files.read_image`.
    limit
        Bytes of decoded images to keep. Others are decoded again each time.
    strict
        Let :meth:`first_good` raise at an image that cannot be read, instead of giving the next.
    """

    def __init__(self, *, side: int | None = None, limit: float = float("inf"), strict: bool = False) -> None:
        self.side, self.limit, self.strict = side, limit, strict
        self._kept: dict[Path, NDArray[np.uint8]] = {}
        self._bytes = 0
        self._lock = threading.Lock()
        self._named: set[Path] = set()

    def __getstate__(self) -> dict[str, Any]:
        """For processes that are not forked: they decode by themselves, since gigabytes would have to be sent."""
        return {"side": self.side, "limit": self.limit, "strict": self.strict}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state)

    def __len__(self) -> int:
        return len(self._kept)

    @property
    def num_bytes(self) -> int:
        """Memory of what is kept."""
        return self._bytes

    def __getitem__(self, path: Path) -> NDArray[np.uint8]:
        kept = self._kept.get(path)
        return read_image(path, side=self.side) if kept is None else kept

    def keep(self, path: Path) -> None:
        """Read an image ahead of its use, and keep it if there is room."""
        if path in self._kept:
            return
        image = read_image(path, side=self.side)
        with self._lock:
            if self._bytes + image.nbytes <= self.limit and path not in self._kept:
                self._kept[path] = image
                self._bytes += image.nbytes

    def first_good(self, files: Sequence[Path], place: int) -> tuple[int, NDArray[np.uint8]]:
        """An image and its place: the one asked for, or unless strict the next that can be read, as files may break."""
        for turn in range(len(files)):
            now = (place + turn) % len(files)
            try:
                return now, self[files[now]]
            except ImageError as error:
                if self.strict:
                    raise
                if files[now] not in self._named:
                    self._named.add(files[now])
                    warnings.warn(f"skipped: {error}", stacklevel=2)
        raise ValueError(f"none of {len(files)} images can be read any more, {files[place]} first")
