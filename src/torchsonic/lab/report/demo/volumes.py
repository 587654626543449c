"""The pretrained hippocampus networks on the user's scans, stored in several ways."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from torchsonic.functional import Storage
from torchsonic.lab.data.volumes import Case, CaseError, Volume, find_cases, read_case
from torchsonic.lab.data.volumes.orientation import axis_codes, rearrange
from torchsonic.lab.metrics.results import mean_known
from torchsonic.lab.runs.folder import read_config
from torchsonic.lab.runs.volumes import VolumesConfig
from torchsonic.lab.runs.volumes.scores import score_told_and_untold
from torchsonic.lab.runs.volumes.split import find_learnt
from torchsonic.models import PretrainedModel

__all__ = ["STORAGES", "Stored", "check_cases", "find_new_cases", "score_storages"]

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


def check_cases(data: Path) -> None:
    """Refuse a folder without scans, with a scan that has no label, or whose first scan cannot be read."""
    cases = find_cases(data)
    for case in cases:
        if case.label is None or not case.label.is_file():
            raise CaseError(case.name, data / "labels", "has no label for this scan; add it or remove the scan")
    read_case(cases[0], straight=True)


def find_new_cases(data: Path, runs: Iterable[Path]) -> list[Case]:
    """The first few cases of a folder that no run was trained on, as far as their bytes and names tell."""
    cases = find_cases(data)
    for run in runs:
        learnt, named = find_learnt(run, read_config(run, VolumesConfig).data, cases, find_cases)
        cases = [case for case in cases if case.name not in {*learnt, *named}]
    if not cases:
        raise ValueError(f"the networks were trained on every scan in {data}; name a folder with others")
    return cases[:MOST_CASES]


def score_storages(
    model: PretrainedModel, config: VolumesConfig, cases: Sequence[Case], advance: Callable[[], None] = lambda: None
) -> list[Stored]:
    """Scores of a network on some scans, stored in each way."""
    volumes = [read_case(case, num_classes=config.num_classes, straight=True) for case in cases]
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
