"""Import paths of version 0.1, for one version more: each leads to where its module is now, and warns once."""

from __future__ import annotations

import importlib
import sys
import warnings
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec

MOVED = {
    "torchsonic.data": "torchsonic.lab.data",
    "torchsonic.data.image_folder": "torchsonic.lab.data.images.folder",
    "torchsonic.evaluation": "torchsonic.lab.metrics",
    "torchsonic.evaluation.memory": "torchsonic.lab.metrics.cost",
    "torchsonic.training": "torchsonic.lab.training",
    "torchsonic.training.losses": "torchsonic.lab.training.segmentation",
    "torchsonic.experiments": "torchsonic.lab.runs",
    "torchsonic.files": "torchsonic.io",
    "torchsonic.loading": "torchsonic.io",
}


def new_path(name: str) -> str | None:
    """Where a module is now; ``None`` if it has not moved."""
    start = name
    while start and start not in MOVED:
        start = start.rpartition(".")[0]
    return MOVED[start] + name[len(start) :] if start else None


class MovedModules(MetaPathFinder, Loader):
    """Finds modules under their old names."""

    def find_spec(self, fullname, path=None, target=None):
        return ModuleSpec(fullname, self, is_package=True) if new_path(fullname) else None

    def exec_module(self, module) -> None:
        name, new = module.__name__, new_path(module.__name__) or ""
        if name.count(".") == 1:  # what lies within says nothing that the package has not said
            text = f"{name} is now {new}; the old path will be removed in version 0.3"
            warnings.warn(text, DeprecationWarning, stacklevel=2)
        sys.modules[name] = importlib.import_module(new)
