"""The hippocampus network that comes along, on scans of the user that are stored in several ways."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from torchsonic.functional import Storage
from torchsonic.lab.data.volumes import find_cases, read_case
from torchsonic.lab.data.volumes.orientation import axis_codes, rearrange
from torchsonic.lab.metrics.volumes import score_case
from torchsonic.lab.runs.volumes import load_run, predict_case

__all__ = ["MOST_CASES", "STORAGES", "Stored", "score_storages"]

STORAGES = (
    Storage((0, 1, 2), (False, False, False)),
    Storage((1, 0, 2), (True, False, False)),
    Storage((2, 1, 0), (False, False, True)),
)
MOST_CASES = 5


class Stored(NamedTuple):
    """Mean Dice over scans in one order of axes, by whether the network was told it."""

    axes: str
    """Where (x, y, z) of the files would point."""
    told: float
    not_told: float


def score_storages(run: Path, data: Path, advance: Callable[[], None] = lambda: None) -> list[Stored]:
    """Scores of a network on the first few scans of a folder with ``images/`` and ``labels/``."""
    model, config = load_run(run)
    assert config.num_classes is not None
    volumes = [read_case(case, num_classes=config.num_classes, straight=True) for case in find_cases(data)[:MOST_CASES]]
    found = []
    for storage in STORAGES:
        dice: dict[bool, list[float]] = {True: [], False: []}
        others = [rearrange(volume, storage) for volume in volumes]
        for other in others:
            assert other.label is not None
            for told, scores in dice.items():
                answer = predict_case(model, other, config, tell_orientation=told)
                rows = score_case(answer, other.label, num_classes=config.num_classes, spacing=other.spacing)
                scores.append(fmean(row["dice"] for row in rows))
            advance()
        found.append(Stored(axis_codes(others[0].affine), fmean(dice[True]), fmean(dice[False])))
    return found
