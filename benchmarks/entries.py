"""The sizes at which the operator is measured, in the groups that the goals speak of."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = [
    "BORDER",
    "GROUPS",
    "KEPT",
    "NOT_KEPT",
    "ORBIT",
    "ORBIT_CHANNELS",
    "PAGES",
    "QUICK",
    "Entry",
    "group_of",
    "select_entries",
]


@dataclass(frozen=True)
class Entry:
    """One size: ``x (batch, channels, *size)`` to as many channels, through ``modes`` modes."""

    name: str
    batch: int
    channels: int
    modes: int
    size: tuple[int, ...]

    @property
    def num_axes(self) -> int:
        return len(self.size)

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.batch, self.channels, *self.size)

    @property
    def num_samples(self) -> int:
        return math.prod(self.size)

    @property
    def num_values(self) -> int:
        return math.prod(self.shape)


def _image(channels: int, modes: int, pixels: int) -> Entry:
    return Entry(f"2d-{channels}-{modes}-{pixels}", 8, channels, modes, (pixels,) * 2)


def _volume(channels: int, modes: int, voxels: int) -> Entry:
    return Entry(f"3d-{channels}-{modes}-{voxels}", 4, channels, modes, (voxels,) * 3)


GROUPS: dict[str, tuple[Entry, ...]] = {
    "low-rank": (
        _image(64, 8, 64),
        _image(64, 16, 128),
        _image(64, 16, 224),
        _image(128, 16, 128),
        _image(256, 32, 56),
        _image(512, 32, 14),
        _volume(32, 8, 48),
    ),
    "equal": (_image(64, 64, 64), _image(128, 128, 32)),
    "3d-wide": (_volume(32, 16, 64),),
}

QUICK = ("2d-64-8-64", "2d-512-32-14", "2d-128-128-32")
BORDER = 16  # zeros between an image and what wraps round to it
ORBIT, ORBIT_CHANNELS = "C8", 128  # group of orbit layers, and the channels that they are compared at
KEPT, NOT_KEPT = PAGES = ("kept", "not kept")  # freed memory: at hand for the next call, or given back to the system


def group_of(entry: Entry) -> str:
    return next(group for group, entries in GROUPS.items() if entry in entries)


def select_entries(names: Sequence[str] = ()) -> list[Entry]:
    """Entries by their own names or those of groups, each once, in the order of the list above; all by default."""
    known = {entry.name for entries in GROUPS.values() for entry in entries} | set(GROUPS)
    unknown = [name for name in names if name not in known]
    if unknown:
        raise ValueError(f"unknown size {', '.join(unknown)}; choose from {', '.join(sorted(known))}")
    return [
        entry
        for group, entries in GROUPS.items()
        for entry in entries
        if not names or entry.name in names or group in names
    ]
