"""Small cases on disk: bright ellipsoids on a noisy ground, of a given size in millimetres, on any grid."""

from pathlib import Path

import numpy as np


def make_affine(spacing=(4.0, 1.5, 1.0), origin=(-20.0, 7.5, 3.25)):
    """Affine of (x, y, z) for a spacing along (D, H, W); x runs backwards, as scanners' often does."""
    affine = np.diag([-spacing[2], spacing[1], spacing[0], 1.0])
    affine[:3, 3] = origin
    return affine


def make_arrays(shape=(6, 16, 20), spacing=(4.0, 1.5, 1.0), *, classes=3, seed=0):
    """Image ``(D, H, W)`` and label of an ellipsoid within an ellipsoid, somewhere near the middle."""
    chance = np.random.default_rng(seed)
    extent = np.array(shape) * spacing
    centre = extent * chance.uniform(0.4, 0.6, 3)
    grid = np.stack(
        np.meshgrid(*[(np.arange(n) + 0.5) * d for n, d in zip(shape, spacing, strict=True)], indexing="ij"), -1
    )
    distance = np.linalg.norm((grid - centre) / (extent * chance.uniform(0.3, 0.4, 3)), axis=-1)
    label = sum((distance < 1 / (k + 1)).astype(np.int16) for k in range(classes - 1))
    image = 100 + 50.0 * label + 5 * chance.standard_normal(shape)
    return image.astype(np.float32), label


def write(path: Path, array, affine, *, codes=True):
    """Write an array ``(D, H, W)`` as NIfTI; without codes the file has no affine."""
    import nibabel

    path.parent.mkdir(parents=True, exist_ok=True)
    file = nibabel.Nifti1Image(np.asarray(array).T, affine if codes else None)
    nibabel.save(file, path)


def write_case(folder: Path, name: str, *, shape=(6, 16, 20), spacing=(4.0, 1.5, 1.0), classes=3, seed=0):
    """Write an image and its label and return both arrays."""
    image, label = make_arrays(shape, spacing, classes=classes, seed=seed)
    affine = make_affine(spacing)
    write(folder / "images" / f"{name}.nii.gz", image, affine)
    write(folder / "labels" / f"{name}.nii.gz", label, affine)
    return image, label


def write_folder(folder: Path, count=4, **options) -> Path:
    """Cases ``case_a`` and so on, of two spacings and several sizes."""
    for index in range(count):
        spacing = ((4.0, 1.5, 1.0), (3.0, 1.0, 1.25))[index % 2]
        shape = (6 + index % 2, 16 + index, 20)
        write_case(folder, f"case_{'abcdefgh'[index]}", shape=shape, spacing=spacing, seed=index, **options)
    return folder


def spoil(folder: Path, name: str, how: str) -> None:
    """Make a case a bad one."""
    image, label = make_arrays()
    affine = make_affine()
    image_path, label_path = (folder / kind / f"{name}.nii.gz" for kind in ("images", "labels"))
    if how == "shapes differ":
        write(label_path, label[:-1], affine)
    elif how == "label outside the classes":
        label[0, 0, 0] = 7
        write(label_path, label, affine)
    elif how == "label is no whole number":
        write(label_path, label + np.float32(0.5), affine)
    elif how == "nan":
        image[1, 2, 3] = np.nan
        write(image_path, image, affine)
    elif how == "infinite":
        image[1, 2, 3] = -np.inf
        write(image_path, image, affine)
    elif how == "2-D":
        write(image_path, image[0], affine)
    elif how == "4-D":
        write(image_path, image[None], affine)
    elif how == "no affine":
        write(image_path, image, affine, codes=False)
    elif how == "singular affine":
        affine[:3, 1] = affine[:3, 0]
        write(image_path, image, affine)
    elif how == "unreadable":
        image_path.write_bytes(image_path.read_bytes()[:200])
    elif how == "no NIfTI":
        image_path.write_text("this is a letter")
    elif how == "label missing":
        label_path.unlink()
    elif how == "label elsewhere":
        affine[0, 3] += 5.0
        write(label_path, label, affine)
    else:
        raise AssertionError(how)


BAD = {
    "shapes differ": ("labels", "shape .* differs from that of"),
    "label outside the classes": ("labels", "label value 7, but no case holds 3"),
    "label is no whole number": ("labels", r"0\.5, .* none of the classes"),
    "nan": ("images", "1 voxels are NaN or infinite"),
    "infinite": ("images", "1 voxels are NaN or infinite"),
    "2-D": ("images", "has 2 axes"),
    "4-D": ("images", "has 4 axes"),
    "no affine": ("images", "no affine"),
    "singular affine": ("images", "singular"),
    "unreadable": ("images", "cannot be read as NIfTI"),
    "no NIfTI": ("images", "cannot be read as NIfTI"),
    "label missing": ("labels", "there is no such file"),
    "label elsewhere": ("labels", "5 mm away"),
}
"""What may be wrong with a case, the folder of the file that is to be named, and words of the message."""
