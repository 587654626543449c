"""Lets a CUDA build of torchvision be imported beside a CPU build of torch, in the test processes and their children.

Its compiled operators do not load there, and its Python code then fails on two schemas that nobody calls. They are
declared just before the first import of torchvision; where the compiled operators load, nothing is done.
"""

import importlib.machinery
import sys
from pathlib import Path

_libraries = []


class _BeforeTorchvision:
    """Runs before torchvision is looked for; finds nothing itself."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        if name == "torchvision":
            sys.meta_path.remove(_BeforeTorchvision)
            _declare_missing_operators()
        return None


def _declare_missing_operators():
    import torch

    spec = importlib.machinery.PathFinder.find_spec("torchvision")
    if spec is None or spec.origin is None:
        return
    for compiled in Path(spec.origin).parent.glob("_C*.so"):
        try:
            torch.ops.load_library(str(compiled))
        except OSError:
            continue
        return
    library = torch.library.Library("torchvision", "FRAGMENT")
    for operator in ("nms", "qnms"):
        library.define(f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    _libraries.append(library)  # the schemas live as long as this does


# Workers of a test run meet this file twice: at their start and through the test configuration.
if not any(getattr(finder, "__name__", "") == _BeforeTorchvision.__name__ for finder in sys.meta_path):
    sys.meta_path.insert(0, _BeforeTorchvision)
