"""An installed package that cannot be imported, as where it is not installed."""

import importlib
import sys

import pytest


def import_without(package: str, module: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """What importing the module says without the package."""
    monkeypatch.setitem(sys.modules, package, None)
    for name in [name for name in sys.modules if name.startswith(f"{package}.")]:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.delitem(sys.modules, module, raising=False)
    with pytest.raises(ImportError) as refused:
        importlib.import_module(module)
    return str(refused.value)
