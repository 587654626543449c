"""The volumes of an experiment: prepared once and kept in memory as far as they fit."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from torchsonic.lab.data.volumes.cases import Case
from torchsonic.lab.data.volumes.nifti import Volume, read_case
from torchsonic.lab.data.volumes.orientation import oblique_part

MOST_PLACES = 4096
"""Voxels of a class that are remembered for a case; enough to choose patches from."""


@dataclass(frozen=True, eq=False)
class Prepared:
    """A volume as patches are cut from it.

    Parameters
    ----------
    image
        ``(C, D, H, W)``, float32 or float16.
    label
        ``(D, H, W)``, int16.
    places
        For each foreground class that occurs, some of its voxels as flat indices ``(N,)``.
    orientation
        What networks are to be told, ``(3, 3)``; ``None`` for the identity.
    """

    name: str
    image: NDArray[Any]
    label: NDArray[np.int16]
    spacing: tuple[float, float, float]
    places: dict[int, NDArray[np.int64]] = field(default_factory=dict)
    orientation: NDArray[np.float64] | None = None

    @property
    def num_bytes(self) -> int:
        """Memory it takes."""
        return self.image.nbytes + self.label.nbytes + sum(place.nbytes for place in self.places.values())


def index_classes(label: NDArray[np.int16]) -> dict[int, NDArray[np.int64]]:
    """Flat indices of some voxels of each foreground class, spread evenly over it."""
    places = {}
    for value in np.unique(label):
        if value > 0:
            found = np.flatnonzero(label == value)
            chosen = np.linspace(0, len(found) - 1, min(len(found), MOST_PLACES)).round().astype(np.int64)
            places[int(value)] = found[chosen]
    return places


class Collection:
    """Cases by name, read when first asked for.

    Parameters
    ----------
    cases
        With labels.
    read
        Like :func:`torchsonic.lab.data.volumes.read_case`.
    prepare
        What is done to every volume; a function of the volume alone.
    num_classes
        Labels outside are refused.
    limit
        Bytes of prepared volumes to keep. Those that no longer fit are read again each time, which is slow but changes
        nothing.
    dtype
        Of the images kept: float16 halves the memory, for images of moderate values.
    oriented
        Whether networks are told how volumes lie in space.
    """

    def __init__(
        self,
        cases: Sequence[Case],
        *,
        read: Callable[..., Volume] = read_case,
        prepare: Callable[[Volume], Volume] = lambda volume: volume,
        num_classes: int | None = None,
        limit: float = float("inf"),
        dtype: Any = np.float32,
        oriented: bool = False,
    ) -> None:
        self.cases = {case.name: case for case in cases}
        self.read, self.prepare, self.num_classes = read, prepare, num_classes
        self.limit, self.dtype, self.oriented = limit, dtype, oriented
        self._kept: dict[str, Prepared] = {}
        self._bytes = 0
        self._warned = False

    def __getitem__(self, name: str) -> Prepared:
        if name in self._kept:
            return self._kept[name]
        volume = self.prepare(self.read(self.cases[name], num_classes=self.num_classes))
        if volume.label is None:
            raise ValueError(f"case {name} has no label, so nothing can be learned from it")
        places = index_classes(volume.label)
        turn = oblique_part(volume) if self.oriented else None
        prepared = Prepared(name, volume.image.astype(self.dtype), volume.label, volume.spacing, places, turn)
        if self._bytes + prepared.num_bytes <= self.limit:
            self._kept[name] = prepared
            self._bytes += prepared.num_bytes
        elif not self._warned:
            self._warned = True
            warnings.warn(
                f"only {len(self._kept)} of {len(self.cases)} volumes fit into {self.limit / 1e9:.3g} GB; "
                "the others are read again for each patch: allow more memory or keep images as float16",
                stacklevel=2,
            )
        return prepared

    def fill(self, name: str) -> bool:
        """Read a volume ahead of its use, and say whether there was room to keep it."""
        return self[name] is self._kept.get(name)
