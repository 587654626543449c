"""What is exported: format, sizes, and which sizes are dynamic."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

from torchsonic.arguments import choice, positive
from torchsonic.export.lowering.exporting import Transforms

Format = Literal["onnx", "pt2", "aoti"]
Dynamic = Literal["batch", "size"]
ToldInput = Literal["no", "batch", "sample"]
FIRST_OPSET = 18


class ExportError(RuntimeError):
    """A model cannot be exported, or its file does not give the same results; the message says what to do."""


@dataclass(frozen=True, kw_only=True)
class ExportConfig:
    """How a model is exported.

    Parameters
    ----------
    to
        ``onnx``, ``pt2`` (a ``torch.export`` program) or ``aoti`` (compiled by AOTInductor for this kind of machine).
    size
        Size of the input along each axis. Dynamic sizes are traced and first checked at this size.
    batch
        Batch size. A dynamic batch is first checked at this size.
    dynamic
        What may change from call to call: ``"batch"``, ``"size"`` or both.
    spacing
        Fixed physical step of each axis; if empty, every layer uses its own, as in a call without spacing.
    spacing_input
        ``"no"``; ``"batch"`` adds an input ``spacing`` of D numbers, ``"sample"`` one of shape ``(batch, D)``.
    orientation_input
        The same for an input ``orientation`` of shape ``(D, D)`` or ``(batch, D, D)``. Sonic layers follow it; order
        and flips of axes stay those that :func:`torchsonic.set_orientation` told the model.
    transforms
        Fourier transforms as matrix products (``"matmul"``) or PyTorch's own (``"fft"``, not for ONNX); by default
        whichever is faster in the format.
    opset
        ONNX opset; by default PyTorch's choice.
    constant_megabytes
        Largest size of precomputed responses in the file; the rest is computed in each call.
    """

    to: Format
    size: tuple[int, ...]
    batch: int = 1
    dynamic: tuple[Dynamic, ...] = ()
    spacing: tuple[float, ...] = ()
    spacing_input: ToldInput = "no"
    orientation_input: ToldInput = "no"
    transforms: Transforms | None = None
    opset: int | None = None
    constant_megabytes: int = 512

    def __post_init__(self) -> None:
        choice(self.to, get_args(Format), "to")
        positive(self.batch, "batch")
        if not 1 <= len(self.size) <= 3 or any(n < 2 for n in self.size):
            raise ValueError(f"size must be 1 to 3 numbers of at least 2, got {self.size}")
        for part in self.dynamic:
            choice(part, get_args(Dynamic), "dynamic")
        choice(self.spacing_input, get_args(ToldInput), "spacing_input")
        choice(self.orientation_input, get_args(ToldInput), "orientation_input")
        if self.spacing and self.spacing_input != "no":
            raise ValueError(
                f"spacing={self.spacing} and spacing_input={self.spacing_input!r} cannot be combined; drop one of them"
            )
        if self.spacing and len(self.spacing) not in (1, len(self.size)):
            raise ValueError(f"spacing must be 1 or {len(self.size)} numbers, got {self.spacing}")
        if not all(math.isfinite(step) and step > 0 for step in self.spacing):
            raise ValueError(f"spacing must be positive and finite, got {self.spacing}")
        if self.to == "onnx" and self.transforms == "fft":
            raise ValueError(
                "transforms='fft' does not support to='onnx', whose runtimes are slow and inexact there; use matmul"
            )
        if self.opset is not None and self.to != "onnx":
            raise ValueError(f"opset={self.opset} is only for to='onnx', got to={self.to!r}")
        if self.opset is not None and self.opset < FIRST_OPSET:
            raise ValueError(f"opset must be at least {FIRST_OPSET}, the first PyTorch can write, got {self.opset}")
        if self.constant_megabytes < 0:
            raise ValueError(f"constant_megabytes must be at least 0, got {self.constant_megabytes}")

    @property
    def chosen_transforms(self) -> Transforms:
        return self.transforms or ("matmul" if self.to == "onnx" else "fft")

    @property
    def input_names(self) -> list[str]:
        return ["x", *[name for name in ("spacing", "orientation") if getattr(self, f"{name}_input") != "no"]]
