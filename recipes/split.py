"""Write nnU-Net's ``splits_final.json``: five folds in which a patient is in one fold only.

``python -m recipes.split PREPROCESSED_DATASET --patient '^[^_]+'``, or ``--file splits.json`` for folds of one's own.
Patients are shuffled and dealt out as nnU-Net does it for ACDC, so that folds of ACDC are those of its authors.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from torchsonic.io import write_whole

__all__ = ["make_splits", "write_splits"]

FOLDS, SEED = 5, 1234


def make_splits(names: Sequence[str], patient: str | None = None) -> list[dict[str, list[str]]]:
    """Five folds of cases; ``patient`` finds the patient in a name, by default every case is one of its own."""
    found = {name: re.search(patient or ".+", name) for name in sorted(names)}
    strange = [name for name, match in found.items() if match is None]
    if strange:
        raise SystemExit(f"--patient {patient} is not found in the name of case {strange[0]}")
    owners = {name: match[0] for name, match in found.items() if match}
    patients = np.unique(list(owners.values()))
    if len(patients) < FOLDS:
        raise SystemExit(f"{len(patients)} patients are too few for {FOLDS} folds")
    np.random.RandomState(SEED).shuffle(patients)
    tests = [[name for name, owner in owners.items() if owner in patients[fold::FOLDS]] for fold in range(FOLDS)]
    return [{"train": [name for name in owners if name not in test], "val": test} for test in tests]


def write_splits(folder: Path, *, patient: str | None, file: Path | None = None) -> None:
    """Folds of all cases that nnU-Net preprocessed; the names come from its copies of the labels."""
    names = sorted(path.name.removesuffix(".nii.gz") for path in (folder / "gt_segmentations").glob("*.nii.gz"))
    if file is not None:
        splits = json.loads(file.read_text(encoding="utf-8"))
        unknown = sorted({name for split in splits for part in split.values() for name in part} - set(names))
        if len(splits) != FOLDS or unknown:
            what = f"names {unknown[0]}, which is no case" if unknown else f"has {len(splits)} folds instead of 5"
            raise SystemExit(f"{file} {what}")
    else:
        splits = make_splits(names, patient)
    write_whole(folder / "splits_final.json", json.dumps(splits, indent=1) + "\n")


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="dataset in the folder that nnUNet_preprocessed names")
    parser.add_argument("--patient", help="regular expression that finds the patient in the name of a case")
    parser.add_argument("--file", type=Path, help="splits to use instead, in nnU-Net's format")
    options = parser.parse_args()
    write_splits(options.folder, patient=options.patient, file=options.file)
    print(f"written: {options.folder / 'splits_final.json'}")


if __name__ == "__main__":
    main()
