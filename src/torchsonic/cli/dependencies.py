"""``torchsonic dependencies``: pins and licences of the packages a checkout asks for."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from torchsonic.cli.surroundings import UserError

__all__ = ["DependenciesCheck", "DependenciesLicences"]


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
        from torchsonic.evaluation.dependencies import check_pins, direct_dependencies

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
        from torchsonic.evaluation.dependencies import licence_page

        root = _checkout(self.root)
        try:
            before = self.out.read_text(encoding="utf-8") if self.out.is_file() else ""
            self.out.write_text(licence_page(root, before), encoding="utf-8")
        except OSError as error:
            raise UserError(f"--out {self.out}: {error.strerror}") from error
        except ValueError as error:
            raise UserError(str(error)) from error
        print("written:", self.out)
