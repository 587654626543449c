"""The commands that ``torchsonic`` has in a checkout, beside those of the wheel."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tools.bench.others import BenchData, BenchExplorer, BenchInit, BenchMemory, BenchPrecision, BenchRoofline
from tools.bench.results import BenchReport
from tools.bench.timing import BenchCompile, BenchModels, BenchOperator, BenchScaling, BenchVolumes
from torchsonic.cli.command import Command, UserError, make_folder
from torchsonic.cli.table import Group

if TYPE_CHECKING:
    from tools.weights import Recipe

__all__ = ["COMMANDS"]


@dataclass(frozen=True, kw_only=True)
class Figures(Command):
    """Make all figures of the documentation; trains the networks shown, which takes a few minutes."""

    out: Path = Path("docs/images")
    """Folder for the figures."""
    steps: int = 150
    """Training steps of the networks on SynthShape that are shown."""
    volumes: Path | None = None
    """Folder of images/ and labels/ (NIfTI) for the stages of a medical network; without it, that figure is kept."""
    only: tuple[str, ...] = ()
    """Names of the figures to make, without suffixes; all by default."""

    needs = ("lightning_fabric", "rich", "matplotlib")

    def run(self) -> None:
        if self.steps < 2:
            raise UserError(f"--steps must be at least 2, got {self.steps}")
        from tools.figures import FIGURES, make_figures

        unknown = [name for name in self.only if name not in FIGURES]
        if unknown:
            raise UserError(f"--only must be from {', '.join(FIGURES)}, got {unknown[0]}")
        options = {"only": self.only or tuple(FIGURES), "steps": self.steps, "volumes": self.volumes}
        for name, path in make_figures(make_folder(self.out), **options):
            print(f"{name}: needs --volumes; not changed" if path is None else f"written: {path}", flush=True)


@dataclass(frozen=True, kw_only=True)
class Kernels(Command):
    """Compile the Triton kernels for GPUs and list their registers; takes seconds and needs no GPU."""

    needs = ("triton", "rich")

    def run(self) -> None:
        from tools.kernels import TARGETS, compile_kernels
        from torchsonic.lab.report import Cell, Document, Section, Table, print_document

        found = compile_kernels()
        rows = []
        for name in dict.fromkeys(kernel.kernel for kernel in found):
            own = [kernel for kernel in found if kernel.kernel == name]
            cells = [Cell(str(k.registers), f"{k.spills} spilled", "alarm" if k.spills else "") for k in own]
            rows.append([name, *cells])
        table = Table("Registers of a thread, float32", ["kernel", *TARGETS], rows)
        print_document(Document(title="Triton kernels", about="", sections=[Section(table.title, [table])]))
        if any(kernel.spills for kernel in found):
            raise UserError("some kernels spill registers to memory, which makes them slow")


@dataclass(frozen=True, kw_only=True)
class WeightsTrain(Command):
    """Train the networks included in the package and put them there; interrupted trainings continue."""

    runs: Path = Path("runs/weights")
    """Folder of the trainings."""
    data: Path | None = None
    """Folder with hippocampus/, nuclei/ and imagenette/; without it, networks that need them are left as they are."""
    only: tuple[str, ...] = ()
    """Names of the networks to make; all by default."""

    needs = ("lightning_fabric", "rich")

    def run(self) -> None:
        from tools.weights import RECIPES, collect
        from torchsonic.cli import main

        recipes = {name: _recipe(name, "--only") for name in self.only or RECIPES}
        for name, recipe in recipes.items():
            words = ["train", *recipe.command.split(), "--out", str(self.runs)]
            if recipe.folder:
                if self.data is None:
                    print(f"{name}: needs --data; not changed", flush=True)
                    continue
                words += ["--data", str(self.data / recipe.folder)]
            if main(words):
                raise UserError(f"{name} was not trained")
            print("written:", collect(name, self.runs / recipe.run), flush=True)


@dataclass(frozen=True, kw_only=True)
class WeightsCollect(Command):
    """Put the network of a finished run into the package."""

    name: str
    """Name of the network in the package."""
    source: Path
    """Folder of the run, which may be part of a study."""

    positional = ("name", "source")

    def run(self) -> None:
        from tools.weights import collect

        _recipe(self.name, "NAME")
        print("written:", collect(self.name, self.source))


def _recipe(name: str, option: str) -> Recipe:
    from tools.weights import RECIPES

    if name not in RECIPES:
        raise UserError(f"{option} must be from {', '.join(RECIPES)}, got {name}")
    return RECIPES[name]


def _checkout(root: Path) -> Path:
    for name in ("pyproject.toml", "constraints.txt"):
        if not (root / name).is_file():
            raise UserError(f"there is no {name} in {root.resolve()}; run this in a checkout of torchsonic")
    return root


@dataclass(frozen=True, kw_only=True)
class DependenciesCheck(Command):
    """Check that every direct dependency is pinned and that the pinned versions are installed."""

    root: Path = Path()
    """The checkout."""

    def run(self) -> None:
        from tools.dependencies import check_pins, direct_dependencies

        root = _checkout(self.root)
        problems, absent = check_pins(root)
        if problems:
            raise UserError("; ".join(problems))
        count = len(direct_dependencies(root))
        print(f"{count} direct dependencies are pinned; {count - len(absent)} are installed as pinned")
        if absent:
            print("not installed, so not compared:", ", ".join(absent))
        print("no vulnerability database was queried; for that, run pip-audit with a network connection")


@dataclass(frozen=True, kw_only=True)
class DependenciesLicences(Command):
    """Write the licences of direct dependencies, as stated by their installed metadata."""

    root: Path = Path()
    """The checkout."""
    out: Path = Path("docs/licences.md")
    """The page to write; rows of packages that are not installed are kept."""

    def run(self) -> None:
        from tools.dependencies import licence_page

        root = _checkout(self.root)
        before = self.out.read_text(encoding="utf-8") if self.out.is_file() else ""
        self.out.write_text(licence_page(root, before), encoding="utf-8")
        print("written:", self.out)


COMMANDS: dict[str, type[Command] | Group] = {
    "bench": Group(
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
            "roofline": BenchRoofline,
            "report": BenchReport,
        },
    ),
    "figures": Figures,
    "kernels": Kernels,
    "weights": Group(
        "Make the networks included in the package (in a checkout).",
        {"train": WeightsTrain, "collect": WeightsCollect},
    ),
    "dependencies": Group(
        "Check the dependencies of a checkout.",
        {"check": DependenciesCheck, "licences": DependenciesLicences},
    ),
}
