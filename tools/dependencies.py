"""The packages a checkout asks for by name: are they pinned, are the pins what is installed, what are their licences?

It reads ``pyproject.toml``, ``constraints.txt`` and the metadata of installed packages. It asks no network and no
database of vulnerabilities: a package can pass here and be known to be unsafe.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, metadata
from pathlib import Path

__all__ = ["Dependency", "check_pins", "direct_dependencies", "licence_of", "licence_page", "read_pins"]

OWN_NAME = "torchsonic"
LONGEST_LICENCE = 60
HEADER = ("package", "version", "needed by", "licence")
PAGE = """# Licences of what torchsonic uses

torchsonic itself is under the Apache License 2.0. The package needs `torch`, `numpy` and `safetensors`; everything else
belongs to an extra and is installed only when asked for. None of these packages is part of ours. Licences are as the
packages' own metadata state them; packages that these need in turn are not listed.

Written by `torchsonic dependencies licences`; a test compares it with what is installed.

| package | version | needed by | licence |
|---|---|---|---|
{rows}
"""


@dataclass(frozen=True)
class Dependency:
    """A package that ``pyproject.toml`` names, and the extras that name it (``core`` for none)."""

    name: str
    extras: tuple[str, ...]


def _normal(name: str) -> str:
    """A name as package indices compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def direct_dependencies(root: Path) -> list[Dependency]:
    """What ``pyproject.toml`` names, in its order; extras that name our own extras do not count twice."""
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    groups = {"core": project["dependencies"], **project.get("optional-dependencies", {})}
    found: dict[str, tuple[str, list[str]]] = {}
    for extra, requirements in groups.items():
        for requirement in requirements:
            match = re.match(r"[A-Za-z0-9][A-Za-z0-9._-]*", requirement)
            if match is None:
                raise ValueError(f"pyproject.toml: {requirement!r} in {extra} names no package")
            name = match[0]
            if _normal(name) != OWN_NAME:
                found.setdefault(_normal(name), (name, []))[1].append(extra)
    return [Dependency(name, tuple(extras)) for name, extras in found.values()]


def read_pins(root: Path) -> dict[str, str]:
    """Versions that ``constraints.txt`` pins, by normal name."""
    pins: dict[str, str] = {}
    for line in (root / "constraints.txt").read_text(encoding="utf-8").splitlines():
        text = line.partition("#")[0].strip()
        if not text:
            continue
        match = re.fullmatch(r"([A-Za-z0-9][A-Za-z0-9._-]*)==([A-Za-z0-9.+!_-]+)", text)
        if match is None:
            raise ValueError(f"constraints.txt: {text!r} does not pin one version; write name==version")
        pins[_normal(match[1])] = match[2]
    return pins


def _installed(name: str) -> str | None:
    try:
        return metadata(name)["Version"]
    except PackageNotFoundError:
        return None


def check_pins(root: Path) -> tuple[list[str], list[str]]:
    """Problems, and packages that are not installed here and therefore were not compared."""
    pins, problems, absent = read_pins(root), [], []
    for dependency in direct_dependencies(root):
        pin, version = pins.get(_normal(dependency.name)), _installed(dependency.name)
        if pin is None:
            problems.append(f"{dependency.name} ({', '.join(dependency.extras)}) is not pinned in constraints.txt")
        elif version is None:
            absent.append(dependency.name)
        elif version.partition("+")[0] != pin:  # "+cpu" tells the build, not the version
            problems.append(f"{dependency.name} {version} is installed, constraints.txt pins {pin}")
    return problems, absent


def licence_of(name: str) -> str | None:
    """The licence as the installed package states it: its SPDX expression, its classifiers, or its short field."""
    try:
        fields = metadata(name)
    except PackageNotFoundError:
        return None
    expressions = fields.get_all("License-Expression") or []
    if expressions:
        return expressions[0]
    classifiers = [
        text.rpartition(" :: ")[2] for text in fields.get_all("Classifier") or [] if text.startswith("License ::")
    ]
    if classifiers:
        return ", ".join(sorted(classifiers))
    short = "".join(fields.get_all("License") or []).strip()
    # Some put the whole text of a licence here.
    return short if short and len(short) <= LONGEST_LICENCE and "\n" not in short else "see the package"


def licence_page(root: Path, before: str = "") -> str:
    """The page of licences; rows of packages that are not installed here are kept from ``before``."""
    kept, pins = _rows(before), read_pins(root)
    lines = []
    for dependency in sorted(direct_dependencies(root), key=lambda d: _normal(d.name)):
        licence = licence_of(dependency.name)
        if licence is None:
            licence = kept.get(dependency.name, "not installed when this page was written")
        cells = (dependency.name, pins.get(_normal(dependency.name), "-"), ", ".join(dependency.extras), licence)
        lines.append(_row(cells))
    return PAGE.format(rows="\n".join(lines))


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _rows(page: str) -> Mapping[str, str]:
    """Licences by package on a page."""
    lines = [line for line in page.splitlines() if line.startswith("| ")]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return {row[0]: row[3] for row in rows if len(row) == len(HEADER) and row[0] != HEADER[0]}
