"""``torchsonic export``: a model as a file for other runtimes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from torchsonic.cli.command import UserError, make_folder
from torchsonic.io import read_json

if TYPE_CHECKING:
    from torch import nn

    from torchsonic.export import CheckRow

__all__ = ["Export"]

ENDINGS = {"onnx": ".onnx", "pt2": ".pt2", "aoti": ".aoti.pt2"}
GOAL = 1.5


@dataclass(frozen=True)
class _Source:
    """A model and what its folder or the registry says of its inputs and answers."""

    name: str
    model: nn.Module
    size: tuple[int, ...] | None
    classes: tuple[str, ...] = ()
    spacing: tuple[float, ...] = ()
    preparation: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Export:
    """Write a model as ONNX, torch.export or AOTInductor file, and compare that with PyTorch."""

    positional: ClassVar[tuple[str, ...]] = ("model",)

    model: str
    """Folder of a saved model, or of a run, or a name of 'torchsonic models' for untrained weights."""
    to: Literal["onnx", "pt2", "aoti"] = "onnx"
    """onnx; pt2, a program of torch.export; aoti, compiled by AOTInductor for this kind of machine."""
    out: Path | None = None
    """New file; by default the name of the model, or of a run's network and seed, in the current folder."""
    size: tuple[int, ...] = ()
    """Pixels of each axis, or one number for all; by default those of the run or the registry."""
    batch: int = 1
    """Images at once."""
    dynamic: tuple[Literal["batch", "size"], ...] = ()
    """What may differ from call to call."""
    spacing: tuple[float, ...] = ()
    """Fixed spacing, one number or one per axis in array order; by default the model's own, or what its run told it."""
    spacing_input: Literal["no", "batch", "sample"] = "no"
    """Make the spacing an input: D numbers for the batch, or (batch, D)."""
    transforms: Literal["auto", "matmul", "fft"] = "auto"
    """Fourier transforms as products with matrices, or PyTorch's own (pt2 and aoti)."""
    opset: int | None = None
    """Of ONNX; by default PyTorch's choice."""
    check: bool = True
    """Leave out the comparison with PyTorch."""

    def run(self) -> None:
        from torchsonic.engine.exhaustion import is_exhaustion
        from torchsonic.export import ExportConfig, ExportError, export_model
        from torchsonic.export.run import first_line

        source = _find(self.model)
        axes = _num_axes(source)
        size = self.size or source.size
        if size is None:
            raise UserError(f"--size is needed: nothing in {self.model} says how large its images are")
        out = self.out or Path(source.name + ENDINGS[self.to])
        make_folder(out.parent)
        try:
            config = ExportConfig(
                to=self.to,
                size=tuple(size) * axes if len(size) == 1 else tuple(size),
                batch=self.batch,
                dynamic=self.dynamic,
                spacing=self.spacing or (source.spacing if self.spacing_input == "no" else ()),
                spacing_input=self.spacing_input,
                transforms=None if self.transforms == "auto" else self.transforms,
                opset=self.opset,
            )
            written = export_model(
                source.model, out, config, classes=source.classes, preparation=source.preparation, check=self.check
            )
        except (ExportError, ImportError, ValueError, TypeError) as error:
            raise UserError(str(error)) from error
        except RuntimeError as error:
            if not is_exhaustion(error):
                raise
            raise UserError(f"memory ran out; lower --batch or --size ({first_line(error)})") from error
        except OSError as error:
            raise UserError(f"--out: cannot write {error.filename}: {error.strerror}") from error
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


def _find(given: str) -> _Source:
    """A folder if there is one, else a name of the registry."""
    from torchsonic.lab.runs.folder import is_run
    from torchsonic.models import PretrainedError, create_model, from_pretrained, list_models, model_entry

    folder = Path(given)
    if not folder.is_dir():
        if given not in list_models():
            raise UserError(f"{given} is no folder and no model; 'torchsonic models' lists the names")
        print(f"{given} comes with untrained weights; give the folder of a saved model or a run for trained ones")
        return _Source(given, create_model(given), model_entry(given)[0].input_size[1:])
    own = is_run(folder)
    try:
        model = from_pretrained(folder / "model" if own else folder)
    except PretrainedError as error:
        raise UserError(str(error)) from error
    # Beside the model of a run on images stands what it knows of them.
    settings = _read(folder / ("config.json" if own else "images.json"))
    named = _read(folder / "classes.json") if own else settings
    return _Source(
        _name(folder.resolve()),
        model,
        _usual_size(settings),
        tuple(named.get("classes", ())),
        _usual_spacing(model, settings),
        _preparation(settings),
    )


def _name(folder: Path) -> str:
    """Of a folder; those of runs are called by their seed, and the ones of their models ``model``."""
    if folder.name == "model" and (folder.parent / "config.json").is_file():
        folder = folder.parent
    return f"{folder.parent.name}-{folder.name}" if re.fullmatch(r"seed\d+", folder.name) else folder.name


def _preparation(settings: dict[str, Any]) -> dict[str, Any]:
    """How a run on images made its input from the bytes of a photograph."""
    from torchsonic.lab.metrics.classification import MEAN, STD

    if "test_crop" not in settings:
        return {}
    return {"mean": MEAN, "std": STD, "scale": 1 / 255, "middle": settings["test_crop"], "channels": "RGB"}


def _read(path: Path) -> dict[str, Any]:
    try:
        return read_json(path)
    except (OSError, ValueError):
        return {}


def _usual_size(settings: dict[str, Any]) -> tuple[int, ...] | None:
    """Pixels of the images a model was trained with, as its run's settings say."""
    if settings.get("patch"):
        return tuple(settings["patch"])
    if settings.get("image_size"):
        return (int(settings["image_size"]),)
    return (64,) if settings.get("task") in ("synthshape", "halligalli") else None


def _usual_spacing(model: nn.Module, settings: dict[str, Any]) -> tuple[float, ...]:
    """What a model was told in training of pixels that are not those it was made for; empty if it was told nothing."""
    from torchsonic.lab.runs.images.network import told_spacing
    from torchsonic.models import Classifier

    if not isinstance(model, Classifier):
        return ()
    told = told_spacing(model, float(settings.get("pixel_width") or 1.0))
    return () if told is None else told if isinstance(told, tuple) else (told,)


def _num_axes(source: _Source) -> int:
    from torchsonic.nn.network_spacing import spaced_layers

    for _, layer in spaced_layers(source.model):
        return layer.num_axes
    return getattr(source.model, "num_axes", 2)
