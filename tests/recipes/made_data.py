"""The data sets of the paper's tables in their published layouts, with a few tiny cases."""

from pathlib import Path

import numpy as np

from recipes.layouts import PICAI_LABELS
from tests.lab.data.nifti import make_affine, make_arrays, write

SPACING = (5.0, 1.5, 1.5)
AFFINE = make_affine(SPACING)


def make_kits(folder: Path, count=6) -> Path:
    for number in range(count):
        image, label = make_arrays((12, 26, 26), SPACING, classes=4, seed=number)
        place = folder / f"case_{number:05d}"
        write(place / "imaging.nii.gz", image, AFFINE)
        write(place / "segmentation.nii.gz", label.astype(np.uint8), AFFINE)
    return folder


def make_acdc(folder: Path, patients=6) -> Path:
    for number in range(1, patients + 1):
        name = f"patient{number:03d}"
        for frame in (1, 12):
            image, label = make_arrays((10, 26, 26), SPACING, classes=4, seed=100 * number + frame)
            place = folder / "training" / name / f"{name}_frame{frame:02d}"
            write(place.with_name(f"{place.name}.nii.gz"), image, AFFINE)
            write(place.with_name(f"{place.name}_gt.nii.gz"), label.astype(np.uint8), AFFINE)
        (folder / "training" / name / f"{name}_4d.nii.gz").write_bytes(b"not asked for")
    return folder


def make_lesion(seed: int, *, ill: bool, shape=(10, 26, 26)):
    """Three channels and a label of ISUP grade 3."""
    image, label = make_arrays(shape, SPACING, classes=2, seed=seed)
    label = label * ill
    return [image + 40 * k * (label > 0) for k in range(3)], (3 * label).astype(np.uint8)


def make_picai(folder: Path, count=7) -> Path:
    import SimpleITK

    for number in range(count):
        name = f"{10000 + number}_{1000000 + number}"
        images, label = make_lesion(number, ill=number % 3 != 0)
        place = folder / "images" / str(10000 + number)
        place.mkdir(parents=True)
        for kind, array in zip(("t2w", "adc", "hbv"), images, strict=True):
            volume = SimpleITK.GetImageFromArray(array)
            volume.SetSpacing(SPACING[::-1])
            if kind != "t2w":  # diffusion is measured on a grid of its own
                size = [n // 2 for n in volume.GetSize()]
                coarse = SimpleITK.Image(size, SimpleITK.sitkFloat32)
                coarse.SetSpacing([2 * step for step in volume.GetSpacing()])
                volume = SimpleITK.Resample(volume, coarse)
            SimpleITK.WriteImage(volume, str(place / f"{name}_{kind}.mha"))
        truth = SimpleITK.GetImageFromArray(label)
        truth.SetSpacing(SPACING[::-1])
        where = folder / "picai_labels" / PICAI_LABELS / f"{name}.nii.gz"
        where.parent.mkdir(parents=True, exist_ok=True)
        SimpleITK.WriteImage(truth, str(where))
    return folder


def make_prostate158(folder: Path, count=4) -> Path:
    for number in range(count):
        place, ill = folder / "train" / f"{20 + number:03d}", number % 2 == 0
        images, label = make_lesion(50 + number, ill=ill)
        for kind, array in zip(("t2", "adc", "dwi"), images, strict=True):
            write(place / f"{kind}.nii.gz", array, AFFINE)
        if ill:
            write(place / "adc_tumor_reader1.nii.gz", label, AFFINE)
    return folder


def make_promis(folder: Path, count=4) -> Path:
    for number in range(count):
        images, label = make_lesion(80 + number, ill=number % 2 == 0)
        for channel, array in enumerate(images):
            write(folder / "images" / f"p{number}_{channel:04d}.nii.gz", array, AFFINE)
        write(folder / "labels" / f"p{number}.nii.gz", label, AFFINE)
    return folder
