"""Exported files as functions, which are called with what they were exported for and nothing else.

Compiled files look at nothing, and would read what lies behind too small a tensor.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

import torch
from torch import Tensor

from torchsonic.arguments import choice
from torchsonic.export.config import ExportError, Format


def fitting(inputs: Sequence[Tensor], metadata: Mapping[str, Any]) -> list[Tensor]:
    """Inputs as a file takes them, one number behind the other; others than its metadata asks for are refused."""
    names = metadata["inputs"]
    if len(inputs) != len(names):
        raise ValueError(f"the file takes {' and '.join(names)}, got {len(inputs)} tensors")
    dynamic, x = metadata["dynamic"], inputs[0]
    axes = [None if "size" in dynamic else n for n in metadata["size"]]
    batch = None if "batch" in dynamic else metadata["batch"]
    _check(x, "x", metadata.get("dtype", "float32"), [batch, metadata.get("channels"), *axes])
    for name, told in zip(names[1:], inputs[1:], strict=True):
        samples = [x.shape[0]] if metadata[f"{name}_input"] == "sample" else []
        _check(told, name, "float32", [*samples, *[len(axes)] * (2 if name == "orientation" else 1)])
    return [tensor.contiguous() for tensor in inputs]


def _check(tensor: Tensor, name: str, dtype: str, shape: Sequence[int | None]) -> None:
    """``None`` stands for any number."""
    found = tuple(tensor.shape)
    fits = len(found) == len(shape) and all(n in (None, m) for n, m in zip(shape, found, strict=True))
    if fits and str(tensor.dtype) == f"torch.{dtype}":
        return
    asked = ", ".join("any" if n is None else str(n) for n in shape)
    raise ValueError(f"{name} must be {dtype} of shape ({asked}) for this file, got {tensor.dtype} of shape {found}")


METADATA = "torchsonic"
"""Files store a JSON description under this key."""
_PACKAGES = {"onnx": ("onnx", "onnxscript", "onnxruntime"), "pt2": (), "aoti": ()}


class Exported:
    """A loaded file. Call it with the tensors that ``metadata`` describes; others are refused."""

    def __init__(self, run: Callable[..., Tensor], metadata: dict[str, Any]) -> None:
        self._run, self.metadata = run, metadata

    def __call__(self, *inputs: Tensor) -> Tensor:
        with torch.no_grad():
            return self._run(*fitting(inputs, self.metadata))


def first_line(error: Exception) -> str:
    """Class and first line of another library's error, whose message may fill pages."""
    return f"{type(error).__name__}: {next(iter(str(error).strip().splitlines()), '')}"


def require_packages(to: Format) -> None:
    """Check that the packages a format needs are installed."""
    import importlib.util

    for package in _PACKAGES[to]:
        if importlib.util.find_spec(package) is None:
            raise ImportError(f'{package} is not installed; run: pip install "torchsonic[export]"')


def load_exported(path: Path, to: Format) -> Exported:
    """Load a file written by :func:`export_model`; ONNX runs on the CPU with as many threads as PyTorch.

    Load ``pt2`` and ``aoti`` files only from sources you trust; the latter contain compiled code.

    Raises
    ------
    ExportError
        If the file is damaged, of another format, or was not written by :func:`export_model`.
    """
    require_packages(choice(to, get_args(Format), "to"))
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}")
    try:
        return {"onnx": _load_onnx, "pt2": _load_pt2, "aoti": _load_aoti}[to](path)
    except Exception as error:  # each runtime has errors of its own
        raise ExportError(f"{path} cannot be loaded as to={to!r}; {first_line(error)}") from error


def _load_onnx(path: Path) -> Exported:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    names = [node.name for node in session.get_inputs()]

    def run(*inputs: Tensor) -> Tensor:
        feed = {name: value.cpu().numpy() for name, value in zip(names, inputs, strict=True)}
        return torch.from_numpy(session.run(None, feed)[0])

    return Exported(run, json.loads(session.get_modelmeta().custom_metadata_map[METADATA]))


def _load_pt2(path: Path) -> Exported:
    extra = {f"{METADATA}.json": ""}
    program = torch.export.load(str(path), extra_files=extra)
    return Exported(program.module(), json.loads(extra[f"{METADATA}.json"]))


def _load_aoti(path: Path) -> Exported:
    from torch._inductor import aoti_load_package

    compiled = aoti_load_package(str(path))
    return Exported(compiled, json.loads(compiled.get_metadata()[METADATA]))
