"""The commands that ``torchsonic`` has in a checkout, beside those of the wheel."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tools.bench.others import BenchData, BenchExplorer, BenchInit, BenchMemory, BenchPrecision
from tools.bench.results import BenchReport
from tools.bench.timing import BenchCompile, BenchModels, BenchOperator, BenchScaling, BenchVolumes
from torchsonic.cli.command import UserError, make_folder, require

__all__ = ["COMMANDS"]


@dataclass(frozen=True, kw_only=True)
class Figures:
    """Make all figures of the documentation; trains what it shows, a few minutes."""

    out: Path = Path("docs/images")
    """Folder for the figures."""
    steps: int = 150
    """Training steps of the networks on SynthShape that are shown."""
    only: tuple[str, ...] = ()
    """Names of the figures to make, without their endings; all by default."""

    def run(self) -> None:
        for package, extra in (("lightning_fabric", "train"), ("rich", "train"), ("matplotlib", "viz")):
            require(package, extra)
        if self.steps < 2:
            raise UserError(f"--steps must be at least 2, got {self.steps}")
        from tools.figures import FIGURES, make_figures

        unknown = [name for name in self.only if name not in FIGURES]
        if unknown:
            raise UserError(f"--only must be of {', '.join(FIGURES)}, got {unknown[0]}")
        for path in make_figures(make_folder(self.out), only=self.only or tuple(FIGURES), steps=self.steps):
            print("written:", path, flush=True)


def _checkout(root: Path) -> Path:
    for name in ("pyproject.toml", "constraints.txt"):
        if not (root / name).is_file():
            raise UserError(f"there is no {name} in {root.resolve()}; run this in a checkout of torchsonic")
    return root


@dataclass(frozen=True, kw_only=True)
class DependenciesCheck:
    """Check that every direct dependency is pinned and that what is installed is what is pinned."""

    root: Path = Path()
    """The checkout."""

    def run(self) -> None:
        from tools.dependencies import check_pins, direct_dependencies

        root = _checkout(self.root)
        try:
            problems, absent = check_pins(root)
        except ValueError as error:
            raise UserError(str(error)) from error
        if problems:
            raise UserError("; ".join(problems))
        count = len(direct_dependencies(root))
        print(f"{count} direct dependencies are pinned; {count - len(absent)} are installed as pinned")
        if absent:
            print("not installed, so not compared:", ", ".join(absent))
        print("no database of vulnerabilities was asked; for that run pip-audit where there is a network")


@dataclass(frozen=True, kw_only=True)
class DependenciesLicences:
    """Write the licences of direct dependencies as their installed metadata state them."""

    root: Path = Path()
    """The checkout."""
    out: Path = Path("docs/licences.md")
    """The page; rows of packages that are not installed are kept."""

    def run(self) -> None:
        from tools.dependencies import licence_page

        root = _checkout(self.root)
        try:
            before = self.out.read_text(encoding="utf-8") if self.out.is_file() else ""
            self.out.write_text(licence_page(root, before), encoding="utf-8")
        except OSError as error:
            raise UserError(f"--out {self.out}: {error.strerror}") from error
        except ValueError as error:
            raise UserError(str(error)) from error
        print("written:", self.out)


COMMANDS: dict[str, Any] = {
    "bench": (
        "Measure speed and memory (in a checkout).",
        {
            "operator": BenchOperator,
            "scaling": BenchScaling,
            "precision": BenchPrecision,
            "memory": BenchMemory,
            "volumes": BenchVolumes,
            "models": BenchModels,
            "compile": BenchCompile,
            "init": BenchInit,
            "data": BenchData,
            "explorer": BenchExplorer,
            "report": BenchReport,
        },
    ),
    "figures": Figures,
    "dependencies": (
        "Look at the packages that a checkout asks for.",
        {"check": DependenciesCheck, "licences": DependenciesLicences},
    ),
}
