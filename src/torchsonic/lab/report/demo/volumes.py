"""The pretrained hippocampus networks on the user's scans, stored in several ways."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from torchsonic.functional import Storage
from torchsonic.lab.data.volumes import Volume, find_cases, read_case
from torchsonic.lab.data.volumes.orientation import axis_codes, rearrange
from torchsonic.lab.metrics.results import mean_known
from torchsonic.lab.runs.volumes import load_run
from torchsonic.lab.runs.volumes.scores import score_told_and_untold

__all__ = ["MOST_CASES", "STORAGES", "Stored", "score_storages"]

STORAGES = (
    Storage((0, 1, 2), (False, False, False)),
    Storage((1, 0, 2), (True, False, False)),
    Storage((2, 1, 0), (False, False, True)),
)
MOST_CASES = 5


class Stored(NamedTuple):
    """Mean Dice over scans with one axis order, with and without the affine."""

    axes: str
    """Where (x, y, z) of the files would point."""
    told: float | None
    """``None`` if the network cannot be given the affine."""
    not_told: float | None


def score_storages(run: Path, data: Path, advance: Callable[[], None] = lambda: None) -> list[Stored]:
    """Scores of a network on the first few scans of a folder with ``images/`` and ``labels/``."""
    model, config = load_run(run)
    volumes = [read_case(case, num_classes=config.num_classes, straight=True) for case in find_cases(data)[:MOST_CASES]]
    found = []
    for storage in STORAGES:
        stored = [rearrange(volume, storage) for volume in volumes]
        scores = score_told_and_untold(model, _counted(stored, advance), config)
        told, untold = (mean_known(scores.get(way, ())) for way in ("told", "untold"))
        found.append(Stored(axis_codes(stored[0].affine), told, untold))
    return found


def _counted(volumes: Sequence[Volume], advance: Callable[[], None]) -> Iterator[Volume]:
    """The volumes; each counts when the next is asked for."""
    for volume in volumes:
        yield volume
        advance()
