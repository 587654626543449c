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
README = Path(__file__).parents[1] / "README.md"


@pytest.mark.parametrize("name", MODULES)
def test_docstring_examples_run(name):
    module = importlib.import_module(name)
    names = {"torch": torch, "torchsonic": torchsonic}
    assert doctest.testmod(module, extraglobs=names, optionflags=doctest.NORMALIZE_WHITESPACE).failed == 0


def test_readme_example_runs():
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(), flags=re.DOTALL)
    assert blocks, "the README shows no example"
    for block in blocks:
        exec(compile(block, "README.md", "exec"), {})
