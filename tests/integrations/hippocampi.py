"""Small volumes that look to nnU-Net like the hippocampus data: about 27 x 42 x 28 voxels of 1 mm, two labels."""

from pathlib import Path

from tests.lab.data.nifti import make_affine, write_case

SPACING = (1.2, 1.0, 1.0)
AFFINE = make_affine(SPACING)


def write_cases(folder: Path, count: int) -> Path:
    """Images and labels ``case_0.nii.gz`` and so on, each of its own size."""
    for number in range(count):
        shape = (24 + number, 40 + number, 26 + number)
        write_case(folder, f"case_{number}", shape=shape, spacing=SPACING, seed=number)
    return folder
