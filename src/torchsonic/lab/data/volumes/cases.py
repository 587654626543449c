"""Which cases a folder of NIfTI files holds.

The folder has ``images/`` and ``labels/``; ``name.nii.gz`` in one belongs to ``name.nii.gz`` in the other. Several
channels of an image are ``name_0000.nii.gz``, ``name_0001.nii.gz`` and so on.
"""

from __future__ import annotations

import re
import warnings
from dataclasses import dataclass
from pathlib import Path

SUFFIXES = (".nii.gz", ".nii")
CHANNEL = re.compile(r"(.+)_(\d{4})")


class CaseError(ValueError):
    """A case that cannot be used; the message names the case, the file and the remedy."""

    def __init__(self, case: str, path: Path, problem: str) -> None:
        super().__init__(f"case {case}: {path}: {problem}")
        self.case, self.path, self.problem = case, path, problem


@dataclass(frozen=True)
class Case:
    """Files of one case: a NIfTI file for each channel, and the label's if there is to be one."""

    name: str
    images: tuple[Path, ...]
    label: Path | None


def find_cases(folder: Path, *, labels: bool = True) -> list[Case]:
    """The cases of a folder with ``images/`` and ``labels/``, in the order of their names.

    Every case gets a label, whose absence :func:`read_case` reports. Without ``labels`` none does, and the folder may
    hold the images themselves.
    """
    folder = Path(folder)
    inner = folder / "images"
    images = list_files(inner if labels or inner.is_dir() else folder)
    truths = list_files(folder / "labels") if labels or (folder / "labels").is_dir() else {}
    cases = []
    for name, channels in _group_channels(images, truths).items():
        label = truths.get(name, folder / "labels" / f"{name}{SUFFIXES[0]}")
        cases.append(Case(name, channels, label if labels else None))
    if not cases:
        raise ValueError(f"{inner if labels else folder} contains no file ending in {' or '.join(SUFFIXES)}")
    lonely = sorted(truths.keys() - {case.name for case in cases})
    if labels and lonely:
        warnings.warn(f"{len(lonely)} labels have no image and are left out: {', '.join(lonely[:5])}", stacklevel=2)
    return sorted(cases, key=lambda case: case.name)


def list_files(folder: Path) -> dict[str, Path]:
    """NIfTI files by their name without suffix."""
    if not folder.is_dir():
        raise ValueError(f"there is no folder {folder}; a data folder contains images/ and labels/ with NIfTI files")
    files: dict[str, Path] = {}
    for path in sorted(folder.iterdir()):
        suffix = next((s for s in SUFFIXES if path.name.endswith(s)), None)
        if suffix is None or path.name.startswith("."):
            continue
        stem = path.name.removesuffix(suffix)
        if stem in files:
            raise ValueError(f"{files[stem]} and {path} have the same name; remove one of them")
        files[stem] = path
    return files


def _group_channels(images: dict[str, Path], truths: dict[str, Path]) -> dict[str, tuple[Path, ...]]:
    """Files of each case. Four digits at the end count channels from 0000 on, unless a label has the whole name."""
    found: dict[str, dict[int, Path]] = {}
    for stem, path in images.items():
        match = CHANNEL.fullmatch(stem)
        first = f"{match[1]}_0000" if match else ""
        is_channel = match is not None and first in images and not {stem, first} & truths.keys()
        name, number = (match[1], int(match[2])) if match and is_channel else (stem, 0)
        channels = found.setdefault(name, {})
        if number in channels:
            raise ValueError(f"{channels[number]} and {path} are the same channel of {name}; remove one of them")
        channels[number] = path
    # A channel left out gets the path it should have, so that reading the case names it.
    return {
        name: tuple(
            channels.get(number, channels[0].with_name(f"{name}_{number:04d}{SUFFIXES[0]}"))
            for number in range(max(channels) + 1)
        )
        for name, channels in found.items()
    }
