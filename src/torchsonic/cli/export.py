"""``torchsonic export``: a model as a file for other runtimes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from torchsonic.cli.command import Command, UserError, make_folder
from torchsonic.io import read_json

if TYPE_CHECKING:
    from torch import nn

    from torchsonic.export import CheckRow

ENDINGS = {"onnx": ".onnx", "pt2": ".pt2", "aoti": ".aoti.pt2"}
GOAL = 1.5


@dataclass(frozen=True, kw_only=True)
class Export(Command):
    """Export a network to an ONNX, torch.export or AOTInductor file.

    The file is then compared with PyTorch.
    """

    model: str
    """Folder of a run or of a saved model, a name from 'torchsonic models --pretrained', or one from
    'torchsonic models' for untrained weights."""
    to: Literal["onnx", "pt2", "aoti"] = "onnx"
    """onnx; pt2, a torch.export program; or aoti, compiled by AOTInductor for machines like this one."""
    out: Path | None = None
    """New file; by default in the current folder, named after the model, or after a run's network and seed."""
    size: tuple[int, ...] = ()
    """Pixels along each axis, or one number for all; by default as in the run or the registry."""
    batch: int = 1
    """Number of images per call."""
    dynamic: tuple[Literal["batch", "size"], ...] = ()
    """What may change from call to call."""
    spacing: tuple[float, ...] = ()
    """Fixed spacing, one number or one per axis in array order; by default as in training."""
    spacing_input: Literal["no", "batch", "sample"] = "no"
    """Make the spacing an input: one number per axis for the batch, or for each sample."""
    orientation_input: Literal["no", "batch", "sample"] = "no"
    """Make the orientation of the axes an input: one matrix for the batch, or for each sample."""
    transforms: Literal["auto", "matmul", "fft"] = "auto"
    """Compute Fourier transforms as matrix products, or as PyTorch does (pt2 and aoti only)."""
    opset: int | None = None
    """Opset of the ONNX file; PyTorch's choice by default."""
    check: bool = True
    """Do not compare the file with PyTorch."""

    positional = ("model",)

    def run(self) -> None:
        from torchsonic.export import ExportConfig, export_model

        if self.size and min(self.size) < 2:
            raise UserError(f"--size must be at least 2, got {' '.join(map(str, self.size))}")
        source = _find(self.model)
        size = self.size or source.size
        if not size:
            raise UserError(f"--size is needed: nothing in {self.model} says what size its images have")
        out = self.out or Path(source.name + ENDINGS[self.to])
        make_folder(out.parent)
        changed = {
            "size": size * source.num_axes if len(size) == 1 else size,
            "spacing": self.spacing or (source.spacing if self.spacing_input == "no" else ()),
            "transforms": None if self.transforms == "auto" else self.transforms,
        }
        if not self.size and "size" not in self.dynamic and source.settings.get("patch"):
            print(f"size {' x '.join(map(str, size))}, the patch of training; give --size for another")
        config = ExportConfig(**{**self.values_for(ExportConfig), **changed})
        facts = {"classes": source.classes, "preparation": source.preparation}
        say = partial(print, flush=True)  # minutes may pass, above all with dynamic sizes
        try:
            written = export_model(source.model, out, config, check=self.check, say=say, **facts)
        except TypeError as error:
            raise UserError(str(error)) from error
        if config.spacing and not self.spacing:
            print(f"spacing {', '.join(f'{step:g}' for step in config.spacing)}, as in training")
        for row in written.rows:
            print(_line(row))
        print(f"written: {written.path} ({written.num_bytes / 1e6:.1f} MB)")


def _line(row: CheckRow) -> str:
    text = f"checked: {' x '.join(map(str, row.shape))}"
    if row.spacing:
        text += f" at spacing {', '.join(f'{step:g}' for step in row.spacing)}"
    text += f": error {row.error:.1e}"
    if row.ratio is not None and row.torch_seconds is not None and row.file_seconds is not None:
        text += f", {1e3 * row.file_seconds:.1f} ms against {1e3 * row.torch_seconds:.1f} ms in PyTorch"
        text += f", ratio {row.ratio:.2f}" + (f" (slower than the goal of {GOAL})" if row.ratio > GOAL else "")
    return text


@dataclass(frozen=True)
class _Source:
    """A model, what it is called, and what its run, its folder or the registry says of its inputs and answers."""

    name: str
    model: nn.Module
    settings: Mapping[str, Any]
    classes: tuple[str, ...] = ()

    @property
    def size(self) -> tuple[int, ...]:
        """Pixels of the images it was trained with; empty if nobody knows."""
        if size := self.settings.get("patch") or self.settings.get("input_size"):
            return tuple(size)
        synthetic = self.settings.get("task") in ("synthshape", "halligalli")
        one = self.settings.get("image_size") or (64 if synthetic else None)
        return () if one is None else (int(one),)

    @property
    def spacing(self) -> tuple[float, ...]:
        """What it was told in training of pixels that are not those it was made for; empty if it was told nothing."""
        from torchsonic.lab.runs.images.network import told_spacing
        from torchsonic.models import Classifier

        if not isinstance(self.model, Classifier):
            return ()
        told = told_spacing(self.model, float(self.settings.get("pixel_width") or 1.0))
        return () if told is None else told if isinstance(told, tuple) else (told,)

    @property
    def preparation(self) -> dict[str, Any]:
        """How a run on images made its input from the bytes of a photograph."""
        from torchsonic.lab.metrics.classification import MEAN, STD

        middle = self.settings.get("test_crop")
        return (
            {} if middle is None else {"mean": MEAN, "std": STD, "scale": 1 / 255, "middle": middle, "channels": "RGB"}
        )

    @property
    def num_axes(self) -> int:
        from torchsonic.nn.network_spacing import spaced_layers

        return next((layer.num_axes for _, layer in spaced_layers(self.model)), getattr(self.model, "num_axes", 2))


def _find(given: str) -> _Source:
    """A folder if there is one, else a name of the registry."""
    from torchsonic.lab.runs.folder import is_run
    from torchsonic.models import create_model, from_pretrained, list_models, model_entry

    folder = Path(given)
    if not folder.is_dir():
        if given not in list_models():
            raise UserError(f"{given} is neither a folder nor a model; 'torchsonic models' lists the names")
        print(f"{given} has untrained weights; for trained ones, give the folder of a run or of a saved model")
        return _Source(given, create_model(given), {"input_size": model_entry(given)[0].input_size[1:]})
    own = is_run(folder)
    # Beside the model of a run on images stands what it knows of them.
    settings = _read(folder / ("config.json" if own else "images.json"))
    named = _read(folder / "classes.json") if own else settings
    return _Source(_name(folder.resolve()), from_pretrained(folder), settings, tuple(named.get("classes", ())))


def _name(folder: Path) -> str:
    """Of a folder; those of runs are called by their seed, and the ones of their models ``model``."""
    if folder.name == "model" and (folder.parent / "config.json").is_file():
        folder = folder.parent
    return f"{folder.parent.name}-{folder.name}" if re.fullmatch(r"(.*-)?seed\d+", folder.name) else folder.name


def _read(path: Path) -> dict[str, Any]:
    try:
        return read_json(path)
    except (OSError, ValueError):
        return {}
