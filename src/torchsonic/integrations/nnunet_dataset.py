"""Files that nnU-Net reads: one that makes our trainers known to it, and datasets in its layout."""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import tempfile
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from torchsonic.io import write_whole
from torchsonic.lab.data.volumes import Case, CaseError, find_cases, read_case
from torchsonic.lab.data.volumes.orientation import oblique_degrees

__all__ = ["TRAINERS", "convert_dataset", "install_trainers"]

TRAINERS = ("nnUNetTrainerSonic", "nnUNetTrainerSonicHybrid", "nnUNetTrainerSonicOrbit", "nnUNetTrainerBudget")
READER = "NibabelIOWithReorient"
"""nnU-Net's reader that brings volumes to one axis order, and predictions back to that of the file."""
REMEDY = f'"overwrite_image_reader_writer": "{READER}" in dataset.json, and plan again'
OBLIQUE = 5.0
"""Degrees to the nearest axes of space above which users are told that a case is oblique."""
TRAINER_FILE = "torchsonic_trainers.py"


def install_trainers(folder: Path) -> Path:
    """Write the file that makes the trainers known to nnU-Net, which finds it if ``nnUNet_extTrainer`` is the folder.

    Returns
    -------
    Path
        The file.
    """
    names = ", ".join(TRAINERS)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / TRAINER_FILE
    write_whole(
        path,
        '"""Shows torchsonic\'s trainers to nnU-Net; written by `torchsonic nnunet install`."""\n\n'
        f"from torchsonic.integrations.nnunet import {names}\n\n"
        f"__all__ = {json.dumps(list(TRAINERS))}\n",
    )
    return path


def convert_dataset(
    data: Path,
    raw: Path,
    *,
    name: str,
    number: int,
    channels: Sequence[str] = (),
    labels: Sequence[str] = (),
    tell_orientation: bool = True,
    advance: Callable[[], None] = lambda: None,
) -> Path:
    """Copy a folder with ``images/`` and ``labels/`` into nnU-Net's layout, completely or not at all.

    Every case is first read and checked by :func:`torchsonic.lab.data.volumes.read_case`. If some are oblique, which
    nnU-Net ignores, a warning says how many and by how much.

    Parameters
    ----------
    raw
        The folder that ``nnUNet_raw`` names.
    name, number
        Name and number of the dataset: its folder is ``Dataset042_name`` for 42.
    channels
        Names of the image channels, by which nnU-Net chooses the normalisation: ``CT`` uses the intensities of the
        whole dataset, any other name those of each image. ``MRI`` by default.
    labels
        Names of the classes after the background; ``class_1`` and so on by default.
    tell_orientation
        Let nnU-Net bring volumes to one axis order, whatever that of the files. Sheared volumes are then refused.
    advance
        Called after each case.

    Returns
    -------
    Path
        The dataset's folder.
    """
    target = _free_folder(raw, name, number)
    cases = find_cases(data)
    ending = _ending(cases[0].images[0])
    channels = _channel_names(cases, channels)
    raw.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=raw, prefix=".converting-") as scratch:
        made = Path(scratch) / target.name
        (made / "imagesTr").mkdir(parents=True)
        (made / "labelsTr").mkdir()
        present: set[int] = set()
        degrees: list[float] = []
        for case in cases:
            found, angle = _copy_case(case, made, ending, straight=tell_orientation)
            present |= found
            degrees.append(angle)
            advance()
        description = {
            "channel_names": {str(index): channel for index, channel in enumerate(channels)},
            "labels": _label_names(present, labels),
            "numTraining": len(cases),
            "file_ending": ending,
            **({"overwrite_image_reader_writer": READER} if tell_orientation else {}),
        }
        write_whole(made / "dataset.json", json.dumps(description, indent=2) + "\n")
        os.replace(made, target)
    if problem := describe_oblique(degrees):
        warnings.warn(problem, stacklevel=2)
    return target


def stored_degrees(properties: Mapping[str, Any]) -> float:
    """Angle between the axes of a case and those of space, from what nnU-Net's reader keeps; 0 for a plain picture."""
    if "nibabel_stuff" in properties:
        return oblique_degrees(properties["nibabel_stuff"]["original_affine"])
    if "sitk_stuff" in properties:
        direction = np.array(properties["sitk_stuff"]["direction"])
        return oblique_degrees(direction.reshape(math.isqrt(direction.size), -1))
    return 0.0


def describe_oblique(degrees: Sequence[float]) -> str | None:
    """How many cases are oblique and by how much, with the remedy; ``None`` if all are nearly straight."""
    oblique = [angle for angle in degrees if angle > OBLIQUE]
    if not oblique:
        return None
    return (
        f"{len(oblique)} of {len(degrees)} cases are oblique by more than {OBLIQUE:.0f} degrees, one by "
        f"{max(oblique):.0f}; nnU-Net treats them as if they lay along the nearest axes: resample them to straight "
        "axes, or use torchsonic train volumes, which passes the orientation to the network"
    )


def _copy_case(case: Case, made: Path, ending: str, *, straight: bool) -> tuple[set[int], float]:
    """Check and copy one case; the labels that occur in it, and by how many degrees it is oblique."""
    volume = read_case(case, straight=straight)
    assert volume.label is not None
    assert case.label is not None
    for path in (*case.images, case.label):
        if _ending(path) != ending:
            problem = f"ends in {_ending(path)} but others end in {ending}; nnU-Net needs the same ending for all files"
            raise CaseError(case.name, path, problem)
    for index, path in enumerate(case.images):
        shutil.copyfile(path, made / "imagesTr" / f"{case.name}_{index:04d}{ending}")
    shutil.copyfile(case.label, made / "labelsTr" / f"{case.name}{ending}")
    return {int(value) for value in np.unique(volume.label)}, oblique_degrees(volume.affine)


def _free_folder(raw: Path, name: str, number: int) -> Path:
    if not 1 <= number <= 999:
        raise ValueError(f"id must be from 1 to 999, got {number}")
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]*", name):
        raise ValueError(f"name must be letters, digits, '-' and '_', got {name!r}")
    taken = sorted(raw.glob(f"Dataset{number:03d}_*"))
    if taken:
        raise ValueError(f"id {number} is taken by {taken[0]}; choose another or remove that folder")
    return raw / f"Dataset{number:03d}_{name}"


def _ending(path: Path) -> str:
    return ".nii.gz" if path.name.endswith(".nii.gz") else path.suffix


def _channel_names(cases: Sequence[Case], channels: Sequence[str]) -> Sequence[str]:
    count = len(cases[0].images)
    for case in cases:
        if len(case.images) != count:
            problem = f"{len(case.images)} channels, but {cases[0].name} has {count}; add or remove files"
            raise CaseError(case.name, case.images[0], problem)
    if not channels:
        return ["MRI"] * count
    if len(channels) != count:
        raise ValueError(
            f"channels must be {count} names, one for each channel of the images, got {', '.join(channels)}"
        )
    return channels


def _label_names(present: set[int], names: Sequence[str]) -> dict[str, int]:
    """nnU-Net's labels: background and every class up to the highest, all of which must occur."""
    highest = max(present)
    missing = sorted(set(range(1, highest + 1)) - present)
    if missing or highest < 1:
        shown = ", ".join(map(str, sorted(present)))
        raise ValueError(f"labels must be 0, 1, 2 and so on without a gap for nnU-Net, got {shown}; relabel the data")
    if names and (len(names) != highest or len({*names, "background"}) != highest + 1):
        raise ValueError(f"labels must be {highest} different names, for 1 to {highest}, got {', '.join(names)}")
    return {"background": 0} | {name: index for index, name in enumerate(names or _numbered(highest), start=1)}


def _numbered(highest: int) -> list[str]:
    return [f"class_{index}" for index in range(1, highest + 1)]
