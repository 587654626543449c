"""How the data sets lie on disk when they are downloaded, and what is wrong with them.

Every data set may also lie in ``images/`` and ``labels/`` with NIfTI files of the same names (several channels as
``name_0000.nii.gz``, ``name_0001.nii.gz``); then that is how it is read.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from recipes.runner import Problem
from torchsonic.lab.data.images.folder import find_images, leave_out_bad
from torchsonic.lab.data.volumes import Case, find_cases
from torchsonic.lab.data.volumes.cases import SUFFIXES
from torchsonic.lab.training.progress import counting_progress

__all__ = ["DATA_SETS", "DataSet", "check_cases", "check_photographs"]

PICAI_LABELS = "csPCa_lesion_delineations/human_expert/resampled"
SHOWN = 10
"""Problems of one kind that are named one by one."""
DECODED = 50_000
"""Up to so many images are decoded to find bad ones; of more, the beginnings are read."""
IMAGENET = {"train": 1_281_167, "val": 50_000}


@dataclass(frozen=True)
class DataSet:
    """A collection of volumes."""

    title: str
    find: Callable[[Path], list[Case]]
    """Cases of a folder in its published layout."""
    count: int | None
    """Cases that the paper's protocol has; ``None`` if they are not counted."""
    channels: int
    layout: str
    """What the folder should hold, in words."""
    patient: str | None = None
    """Pattern of the patient in names of cases; by default every case is one of its own."""
    lesions: bool = False
    """Whether any label but 0 is a lesion; otherwise labels are classes."""

    def cases(self, folder: Path) -> list[Case]:
        """All cases, in either layout."""
        own = any(path.name.endswith(SUFFIXES) for path in (folder / "images").glob("*"))
        return find_cases(folder) if own else self.find(folder)


def _kits(folder: Path) -> list[Case]:
    places = sorted(path for path in folder.glob("case_*") if path.is_dir())
    return [Case(place.name, (place / "imaging.nii.gz",), place / "segmentation.nii.gz") for place in places]


def _acdc(folder: Path) -> list[Case]:
    images = [p for p in folder.glob("training/patient*/*_frame*.nii.gz") if not p.name.endswith("_gt.nii.gz")]
    names = {path: path.name.removesuffix(".nii.gz") for path in sorted(images)}
    return [Case(name, (path,), path.with_name(f"{name}_gt.nii.gz")) for path, name in names.items()]


def _picai(folder: Path) -> list[Case]:
    found = {path.name.removesuffix("_t2w.mha"): path for path in sorted((folder / "images").rglob("*_t2w.mha"))}
    cases = []
    for label in sorted(folder.glob(f"*/{PICAI_LABELS}/*.nii.gz")):
        name = label.name.removesuffix(".nii.gz")
        first = found.get(name, folder / "images" / f"{name}_t2w.mha")
        cases.append(Case(name, tuple(first.with_name(f"{name}_{kind}.mha") for kind in ("t2w", "adc", "hbv")), label))
    return cases


def _prostate158(folder: Path) -> list[Case]:
    cases = []
    for place in sorted(path.parent for path in folder.rglob("t2.nii.gz")):
        label = place / "adc_tumor_reader1.nii.gz"
        images = tuple(place / f"{kind}.nii.gz" for kind in ("t2", "adc", "dwi"))
        # A prostate without a tumour has no outline of one.
        cases.append(Case(f"{place.parent.name}_{place.name}", images, label if label.is_file() else None))
    return cases


def _plain(folder: Path) -> list[Case]:
    return []


PLAIN = "images/ with NAME_0000 (T2), _0001 (ADC) and _0002 (high b-value) .nii.gz, and labels/ with NAME.nii.gz"
DATA_SETS = {
    "kits": DataSet(
        "KiTS 2023", _kits, 489, 1, "case_00000/imaging.nii.gz and case_00000/segmentation.nii.gz, and so on"
    ),
    "acdc": DataSet(
        "ACDC",
        _acdc,
        200,
        1,
        "training/patient001/patient001_frame01.nii.gz and _frame01_gt.nii.gz, and so on",
        patient=r"patient\d+",
    ),
    "picai": DataSet(
        "PI-CAI",
        _picai,
        1295,
        3,
        f"images/**/*_t2w.mha, *_adc.mha, *_hbv.mha and picai_labels/{PICAI_LABELS}/",
        patient=r"^[^_]+",
        lesions=True,
    ),
    "prostate158": DataSet(
        "Prostate158", _prostate158, 158, 3, "train/020/t2.nii.gz, adc.nii.gz, dwi.nii.gz and so on", lesions=True
    ),
    "promis": DataSet("PROMIS", _plain, None, 3, PLAIN, lesions=True),
}


def check_cases(name: str, folder: Path | None) -> list[Problem]:
    """Everything that is wrong with a folder of volumes, as far as it shows without reading every voxel."""
    data = DATA_SETS[name]
    if folder is None or not folder.is_dir():
        return [Problem(f"{data.title}: there is no folder {folder}; give it with --{name}")]
    try:
        cases = data.cases(folder)
    except ValueError as error:
        return [Problem(f"{data.title}: {error}")]
    if not cases:
        return [Problem(f"{data.title}: {folder} has no case; it should hold {data.layout}")]
    with counting_progress(f"checking {data.title}", len(cases), show=sys.stdout.isatty()) as advance:
        bad = [Problem(f"{data.title}: {text}") for case in cases for text in _check_case(case, data, advance)]
    found = _shorten(bad, data.title)
    if data.count is not None and len(cases) != data.count:
        found.append(Problem(f"{data.title}: {len(cases)} cases in {folder}; the protocol has {data.count}", "count"))
    return found


def _shorten(problems: Sequence[Problem], title: str) -> list[Problem]:
    more = len(problems) - SHOWN
    return [*problems[:SHOWN], *([Problem(f"{title}: {more} problems more of this kind")] if more > 0 else [])]


def _check_case(case: Case, data: DataSet, advance: Callable[[], None]) -> Iterable[str]:
    advance()
    if len(case.images) != data.channels:
        yield f"case {case.name} has {len(case.images)} channels instead of {data.channels}"
        return
    shapes = {}
    for path in (*case.images, *([case.label] if case.label else [])):
        try:
            shapes[path] = _volume_shape(path)
        except Exception as error:  # whatever the libraries raise about a damaged file
            yield f"case {case.name}: {path} cannot be read: {' '.join(str(error).split())[:200]}"
    first, label = case.images[0], case.label
    if first in shapes and label in shapes and shapes[first] != shapes[label]:
        yield f"case {case.name}: {label} has shape {shapes[label]}, its image {shapes[first]}"


def _volume_shape(path: Path) -> tuple[int, ...]:
    """The shape in a file's header; a file that was cut short raises."""
    if not path.is_file():
        raise ValueError("there is no such file")
    if not path.name.endswith((".nii", ".nii.gz")):
        import SimpleITK

        reader = SimpleITK.ImageFileReader()
        reader.SetFileName(str(path))
        reader.ReadImageInformation()
        return reader.GetSize()
    import nibabel

    file: Any = nibabel.load(path)
    wanted = int(file.dataobj.offset) + int(np.prod(file.shape)) * file.get_data_dtype().itemsize
    if _stored_bytes(path) != wanted % 2**32:
        raise ValueError("the file is cut short or damaged; get it again")
    return file.shape


def _stored_bytes(path: Path) -> int:
    """Bytes of a file when unpacked, modulo 2^32; the last four of a gzip file say them."""
    if path.suffix != ".gz":
        return path.stat().st_size % 2**32
    with path.open("rb") as file:
        file.seek(-4, 2)
        return int.from_bytes(file.read(4), "little")


def check_photographs(folder: Path | None) -> list[Problem]:
    """Everything that is wrong with ImageNet's folder."""
    if folder is None or not folder.is_dir():
        return [Problem(f"ImageNet: there is no folder {folder}; give it with --imagenet")]
    found: list[Problem] = []
    show = sys.stdout.isatty()
    classes: tuple[str, ...] | None = None
    for part, wanted in IMAGENET.items():
        try:
            images = find_images(folder / part, classes)
            classes = images.classes
            with counting_progress(f"checking {part}", len(images), show=show) as advance, warnings.catch_warnings():
                warnings.simplefilter("ignore")  # bad images are problems here
                how: Any = "decode" if len(images) <= DECODED else "header"
                _, bad = leave_out_bad(images, check=how, advance=advance)
        except ValueError as error:
            found.append(Problem(f"ImageNet: {error}"))
            continue
        found += _shorten([Problem(f"ImageNet: {text}") for text in bad.values()], "ImageNet")
        if len(images) != wanted:
            count = f"{len(images):,} images of {len(classes):,} classes in {folder / part}"
            found.append(Problem(f"ImageNet: {count}; the protocol has {wanted:,} of 1,000", "count"))
    return found
