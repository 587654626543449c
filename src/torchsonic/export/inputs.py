"""Check the inputs of an exported file: compiled files do not, and would read beyond the end of a small tensor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

__all__ = ["fitting"]


def fitting(inputs: Sequence[Tensor], metadata: Mapping[str, Any]) -> list[Tensor]:
    """Contiguous inputs for a file; inputs that do not match its metadata are refused."""
    names = metadata["inputs"]
    if len(inputs) != len(names):
        raise ValueError(f"the file takes {' and '.join(names)}, got {len(inputs)} tensors")
    dynamic, x = metadata["dynamic"], inputs[0]
    axes = [None if "size" in dynamic else n for n in metadata["size"]]
    batch = None if "batch" in dynamic else metadata["batch"]
    _check(x, "x", metadata.get("dtype", "float32"), [batch, metadata.get("channels"), *axes])
    for spacing in inputs[1:]:
        samples = [x.shape[0]] if metadata["spacing_input"] == "sample" else []
        _check(spacing, "spacing", "float32", [*samples, len(axes)])
    return [tensor.contiguous() for tensor in inputs]


def _check(tensor: Tensor, name: str, dtype: str, shape: Sequence[int | None]) -> None:
    """``None`` stands for any number."""
    found = tuple(tensor.shape)
    fits = len(found) == len(shape) and all(n in (None, m) for n, m in zip(shape, found, strict=True))
    if fits and str(tensor.dtype) == f"torch.{dtype}":
        return
    asked = ", ".join("any" if n is None else str(n) for n in shape)
    raise ValueError(f"{name} must be {dtype} of shape ({asked}) for this file, got {tensor.dtype} of shape {found}")
