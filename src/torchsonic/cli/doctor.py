"""``torchsonic doctor``: whether the operator works on this machine, and how fast."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from torchsonic.cli.command import OnDevice, UserError, make_folder

if TYPE_CHECKING:
    from torchsonic.doctor import Finding
    from torchsonic.lab.report import Document


@dataclass(frozen=True, kw_only=True)
class Doctor(OnDevice):
    """Check that SONIC works on every device of this machine.

    Checks laws, gradients, mixed precision, compilation and speed: two minutes at most.
    """

    quick: bool = False
    """Skip compilation and measure a small step; takes seconds."""
    device: str = "all"
    """Device to check, for example cpu, cuda:1, xpu or mps; all by default."""
    out: Path = Path("doctor.json")
    """File for the findings."""

    needs = ("rich",)

    def run(self) -> None:
        import torch
        from rich.console import Console

        from torchsonic.doctor import check_packages, examine, find_devices
        from torchsonic.io import write_json
        from torchsonic.lab.report import print_document

        if self.device != "all":
            self.check_device()
        if self.out.is_dir():
            raise UserError(f"--out: {self.out} is a folder; name a file, such as {self.out / 'doctor.json'}")
        make_folder(self.out.absolute().parent)
        devices = find_devices() if self.device == "all" else [torch.device(self.device)]
        found = {"packages": check_packages()}
        with Console(stderr=True).status("checking") as status:
            for device in devices:
                found[str(device)] = []
                for finding in examine(device, quick=self.quick):
                    found[str(device)].append(finding)
                    status.update(f"checking {device}: {finding.check}")
        print_document(make_page(found))
        line = report_line(found)
        print("to paste into a bug report:", line, sep="\n")
        write_json(self.out, {"line": line, **{name: [f._asdict() for f in own] for name, own in found.items()}})
        print("written:", self.out)
        if wrong := [f"{name}: {f.check}" for name, own in found.items() for f in own if f.verdict == "wrong"]:
            raise UserError(f"failed: {'; '.join(wrong)}; see {self.out} for details")


def make_page(found: Mapping[str, Sequence[Finding]]) -> Document:
    """A table for packages and one for each device."""
    from torchsonic.lab.report import Cell, Document, Section, Table

    sections = []
    for name, findings in found.items():
        rows = [[f.check, Cell(f.verdict, mark="alarm" if f.verdict == "wrong" else ""), f.text] for f in findings]
        sections.append(Section(name, [Table(name, ["check", "verdict", "found"], rows, left=3)]))
    return Document(title="torchsonic doctor", about="", sections=sections)


def report_line(found: Mapping[str, Sequence[Finding]]) -> str:
    """Versions, devices and what is wrong, in one line."""
    import torchsonic

    packages = [f"{f.check} {f.text}" for f in found["packages"] if f.verdict == "ok"]
    system = f"{platform.system()} {platform.machine()}, Python {platform.python_version()}"
    parts = [f"torchsonic {torchsonic.__version__}", system, *packages]
    for name, findings in found.items():
        if name != "packages":
            told = {f.check: f.text for f in findings}
            parts.append(f"{name}: {told['device']}; {told['training step']}")
    wrong = [f"{name}: {f.check}: {f.text[:80]}" for name, own in found.items() for f in own if f.verdict == "wrong"]
    return " | ".join([*parts, "WRONG: " + "; ".join(wrong) if wrong else "all well"])
