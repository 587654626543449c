"""Examples in docstrings and in the README run."""

import doctest
import importlib
import pkgutil
import re
from pathlib import Path

import pytest
import torch

import torchsonic

MODULES = [
    name
    for _, name, _ in pkgutil.walk_packages(torchsonic.__path__, "torchsonic.")
    if not name.startswith(("torchsonic.cli", "torchsonic.demo"))
]
ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


@pytest.mark.parametrize("name", MODULES)
def test_docstring_examples_run(name):
    try:
        module = importlib.import_module(name)
    except ImportError as error:
        if "pip install" not in str(error):  # else it is the door to a package that is not there
            raise
        pytest.skip(str(error))
    names = {"torch": torch, "torchsonic": torchsonic}
    assert doctest.testmod(module, extraglobs=names, optionflags=doctest.NORMALIZE_WHITESPACE).failed == 0


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_examples_on_pages_run(page):
    blocks = re.findall(r"```python\n(.*?)```", page.read_text(), flags=re.DOTALL)
    assert blocks or page.name != "README.md", "the README shows no example"
    for block in blocks:
        for package in {"monai", "timm"} & set(re.findall(r"^(?:import|from) (\w+)", block, flags=re.MULTILINE)):
            pytest.importorskip(package, reason=f"{package} is not installed")
        exec(compile(block, page.name, "exec"), {})
