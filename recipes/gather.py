"""Bring a downloaded data set into the layout that the next command reads; files that fit already are linked.

``python -m recipes.gather acdc DIR OUT``: KiTS keeps its own layout, which nnU-Net converts itself; the others get
``images/`` and ``labels/``. ADC and high b-value of prostates are resampled to T2, and any lesion is label 1.
With ``--smoke`` only a few cases are taken, cut to a small box round their label.
"""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from recipes.layouts import DATA_SETS, DataSet
from torchsonic.lab.data.images.folder import find_classes, find_files
from torchsonic.lab.data.volumes import Case

__all__ = ["gather", "gather_photographs"]

FEW, BOX = 5, 24
"""Cases of a smoke test, and voxels along each axis that are kept of them."""
CLASSES, IMAGES = 4, 10
"""Classes of photographs in a smoke test, and images of each in training and in the test."""


def gather(name: str, source: Path, target: Path, *, smoke: bool = False) -> int:
    """Write or link all cases of a data set; returns their number.

    Parameters
    ----------
    name
        In :data:`recipes.layouts.DATA_SETS`.
    smoke
        A few cases, with lesions if there are any, and a small part of each.
    """
    data = DATA_SETS[name]
    cases = _few(data, data.cases(source)) if smoke else data.cases(source)
    for case in cases:
        images, label = _targets(name, case, target)
        for path in (*images, label):
            path.parent.mkdir(parents=True, exist_ok=True)
        if smoke or data.lesions:
            _write(case, images, label, BOX if smoke else None, lesions=data.lesions)
        else:
            assert case.label is not None
            for path, link in zip((*case.images, case.label), (*images, label), strict=True):
                _link(path, link)
    return len(cases)


def gather_photographs(source: Path, target: Path) -> int:
    """Link a few images of a few classes; returns their number."""
    count = 0
    for part in ("train", "val"):
        for name in find_classes(source / "train")[:CLASSES]:
            (target / part / name).mkdir(parents=True, exist_ok=True)
            for path in find_files(source / part / name)[:IMAGES]:
                _link(path, target / part / name / path.name)
                count += 1
    return count


def _link(path: Path, link: Path) -> None:
    link.unlink(missing_ok=True)
    os.symlink(path.resolve(), link)


def _few(data: DataSet, cases: Sequence[Case]) -> list[Case]:
    """A few cases of different patients, of which two have no lesion where lesions are looked for."""
    own = {re.search(data.patient or ".+", case.name)[0]: case for case in reversed(cases)}  # type: ignore[index]
    if not data.lesions:
        return sorted(own.values(), key=lambda case: case.name)[:FEW]
    ill, well = [], []
    for case in sorted(own.values(), key=lambda case: case.name):
        (ill if _has_lesion(case) else well).append(case)
        if len(ill) >= FEW - 2 and len(well) >= 2:
            break
    return [*ill[: FEW - 2], *well[:2]]


def _has_lesion(case: Case) -> bool:
    import SimpleITK

    return case.label is not None and bool(SimpleITK.GetArrayFromImage(SimpleITK.ReadImage(str(case.label))).any())


def _targets(name: str, case: Case, target: Path) -> tuple[list[Path], Path]:
    """Where the files of a case belong."""
    if name == "kits":
        return [target / case.name / "imaging.nii.gz"], target / case.name / "segmentation.nii.gz"
    images = [target / "images" / f"{case.name}_{number:04d}.nii.gz" for number in range(len(case.images))]
    return images, target / "labels" / f"{case.name}.nii.gz"


def _write(case: Case, images: Sequence[Path], label: Path, box: int | None, *, lesions: bool) -> None:
    """All files on the grid of the first, as NIfTI."""
    import SimpleITK

    first, *others = (SimpleITK.ReadImage(str(path), SimpleITK.sitkFloat32) for path in case.images)
    if case.label is None:
        truth = SimpleITK.Image(first.GetSize(), SimpleITK.sitkUInt8)
        truth.CopyInformation(first)
    else:
        truth = SimpleITK.ReadImage(str(case.label), SimpleITK.sitkUInt8)
        truth = _on_grid(truth, first, SimpleITK.sitkNearestNeighbor)
    truth = SimpleITK.Cast(truth > 0, SimpleITK.sitkUInt8) if lesions else truth
    files = [first, *(_on_grid(image, first, SimpleITK.sitkLinear) for image in others), truth]
    where = _box(SimpleITK.GetArrayFromImage(truth), box) if box else ()
    for image, path in zip(files, (*images, label), strict=True):
        # SimpleITK counts axes from the other end.
        SimpleITK.WriteImage(image[where[::-1]] if where else image, str(path))


def _on_grid(image: Any, reference: Any, interpolator: Any) -> Any:
    import SimpleITK

    facts = ("GetOrigin", "GetSpacing", "GetDirection")
    near = all(np.allclose(getattr(image, fact)(), getattr(reference, fact)(), atol=1e-3) for fact in facts)
    if near and image.GetSize() == reference.GetSize():
        image.CopyInformation(reference)  # headers differ in rounding
        return image
    return SimpleITK.Resample(image, reference, SimpleITK.Transform(), interpolator, 0.0)


def _box(truth: Any, size: int) -> tuple[slice, ...]:
    """A small box round the middle of what is labelled."""
    places = np.argwhere(truth) if truth.any() else np.array([truth.shape]) // 2
    middle = np.median(places, axis=0).astype(int)
    starts = [max(0, min(m - size // 2, n - size)) for m, n in zip(middle, truth.shape, strict=True)]
    return tuple(slice(start, min(n, start + size)) for start, n in zip(starts, truth.shape, strict=True))


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", choices=[*DATA_SETS, "imagenet"])
    parser.add_argument("source", type=Path)
    parser.add_argument("target", type=Path)
    parser.add_argument("--smoke", action="store_true", help="a few small cases")
    options = parser.parse_args()
    if options.name == "imagenet":
        print(f"{gather_photographs(options.source, options.target)} images are in {options.target}")
        return
    count = gather(options.name, options.source, options.target, smoke=options.smoke)
    print(f"{count} cases of {DATA_SETS[options.name].title} are in {options.target}")


if __name__ == "__main__":
    main()
