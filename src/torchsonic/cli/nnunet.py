"""``torchsonic nnunet``: what nnU-Net's own commands need to train Sonic networks."""

from __future__ import annotations

import os
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torchsonic.cli.command import Command, UserError

VARIABLE = "nnUNet_extTrainer"


@dataclass(frozen=True, kw_only=True)
class NnunetInstall(Command):
    """Let nnU-Net find torchsonic's trainers: write a file and print the variable to set."""

    folder: Path
    """Folder for the file. Use a separate folder, because nnU-Net imports every Python file in it."""

    needs = ("nnunetv2",)
    positional = ("folder",)

    def run(self) -> None:
        from torchsonic.integrations.nnunet_dataset import TRAINERS, install_trainers

        try:
            path = install_trainers(self.folder)
        except OSError as error:
            raise UserError(f"cannot write into {self.folder}: {error.strerror}") from error
        own = str(self.folder.resolve())
        # nnU-Net takes several folders; those that are set already stay.
        folders = [folder for folder in os.environ.get(VARIABLE, "").split(os.pathsep) if folder and folder != own]
        print(f"written: {path}")
        print("trainers:", ", ".join(TRAINERS))
        print("now set this in every shell that runs nnU-Net:")
        print(f"export {VARIABLE}={shlex.quote(os.pathsep.join([own, *folders]))}")


@dataclass(frozen=True, kw_only=True)
class NnunetConvert(Command):
    """Copy NIfTI files in images/ and labels/ to a raw nnU-Net dataset."""

    data: Path
    """Folder with images/ and labels/; several channels as name_0000.nii.gz, name_0001.nii.gz."""
    out: Path
    """Folder of raw datasets, as in nnUNet_raw."""
    name: str
    """Name of the dataset."""
    id: int
    """Number of the dataset, 1 to 999, for nnU-Net's commands."""
    channels: tuple[str, ...] = ()
    """Names of the channels; MRI by default. nnU-Net normalises CT differently."""
    labels: tuple[str, ...] = ()
    """Names of the classes 1, 2 and so on; class_1, class_2 by default."""
    tell_orientation: bool = True
    """Let nnU-Net keep the axis order of each file, sheared or not, instead of bringing all volumes to one."""

    needs = ("nibabel", "rich")

    def run(self) -> None:
        from torchsonic.integrations.nnunet_dataset import convert_dataset
        from torchsonic.lab.data.volumes import find_cases
        from torchsonic.lab.training.progress import counting_progress

        names: dict[str, Any] = {"name": self.name, "number": self.id, "channels": self.channels, "labels": self.labels}
        names["tell_orientation"] = self.tell_orientation
        with counting_progress("copying cases", len(find_cases(self.data)), show=True) as advance:
            folder = convert_dataset(self.data, self.out, advance=advance, **names)
        print(f"written: {folder}")
        print(f"next: nnUNetv2_plan_and_preprocess -d {self.id} --verify_dataset_integrity")
