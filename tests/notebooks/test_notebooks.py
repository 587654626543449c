"""Notebooks run from an installed wheel, and show what is stored in them."""

import ast
import sys

import pytest

pytest.importorskip("matplotlib", reason="figures need matplotlib")

from tests.notebooks.run import NOTEBOOKS, code_cells, read, run

OPTIONAL = {"matplotlib", "nibabel"}
"""Packages of the extras that the notebooks name."""


def kinds(notebook):
    """What sort of thing each cell shows."""
    return [
        [(output["output_type"], *sorted(output.get("data", ()))) for output in cell["outputs"]]
        for cell in code_cells(notebook)
    ]


def imported(notebook):
    lines = [line for cell in code_cells(notebook) for line in cell["source"] if not line.startswith("%")]
    for cell in ast.walk(ast.parse("\n".join(line.rstrip("\n") for line in lines))):
        if isinstance(cell, ast.Import):
            yield from (alias.name for alias in cell.names)
        elif isinstance(cell, ast.ImportFrom):
            yield cell.module or ""


def test_there_are_four():
    assert len(NOTEBOOKS) == 4


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_and_its_outputs_are_stored(path, monkeypatch):
    for package in ("scipy", "nibabel", "lightning_fabric"):
        pytest.importorskip(package, reason=f"{package} is not installed")
    for name in ("TORCHSONIC_NUCLEI", "TORCHSONIC_VOLUMES"):
        monkeypatch.delenv(name, raising=False)
    stored = kinds(read(path))
    assert any(stored), "run python -m tests.notebooks.run, which stores what cells show"
    assert kinds(run(path)) == stored


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_needs_nothing_of_a_checkout(path):
    packages = {name.partition(".")[0] for name in imported(read(path))}
    known = {"torchsonic", "torch", "numpy"} | OPTIONAL | set(sys.stdlib_module_names)
    assert packages <= known, packages - known
