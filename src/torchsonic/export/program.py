"""A model as a ``torch.export`` program, made of operations that every runtime supports."""

from __future__ import annotations

import inspect
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram

from torchsonic.export.config import ExportConfig, ExportError
from torchsonic.export.lowering.exporting import Exporting
from torchsonic.export.run import first_line
from torchsonic.nn.network_orientation import OrientedNetwork
from torchsonic.nn.network_spacing import spaced_layers
from torchsonic.nn.parameters import is_sharded
from torchsonic.nn.rearranged import oriented_axes, run_rearranged
from torchsonic.spectral.orientation import Storage, as_orientation

OTHER_SPACING = 0.8
OTHER_ANGLE = 0.2  # radians


class _Traced(nn.Module):
    """The model as exporters see it: tensors in, one tensor out."""

    axes: Tensor

    def __init__(self, model: nn.Module, export: Exporting, config: ExportConfig) -> None:
        super().__init__()
        self.model = model
        self._export, self._config = export, config
        if config.orientation_input != "no":
            self._storage = told_storage(model)
            self.register_buffer("axes", self._storage.matrix())

    def forward(self, x: Tensor, spacing: Tensor | None = None, orientation: Tensor | None = None) -> Tensor:
        model, config = self.model, self._config
        with self._export.active():
            if orientation is None or not isinstance(model, OrientedNetwork):
                return call_model(model, tuple(t for t in (x, spacing, orientation) if t is not None), config)
            # In the axes that the model was told: a program cannot choose the nearest by numbers it does not know.
            turn = as_orientation(orientation, len(config.size))
            rest = turn @ self.axes.to(turn)
            return run_rearranged(model._forward, x, config.spacing or spacing, (self._storage,), rest)


class _TracedWithoutSpacing(_Traced):
    """The same for two inputs, which every format passes by position."""

    def forward(self, x: Tensor, orientation: Tensor) -> Tensor:  # type: ignore[override]
        return super().forward(x, orientation=orientation)


def call_model(model: nn.Module, inputs: tuple[Tensor, ...], config: ExportConfig) -> Tensor:
    """The model's output for the inputs of its file."""
    x, told = inputs[0], dict(zip(config.input_names[1:], inputs[1:], strict=True))
    options: dict[str, Any] = {"spacing": config.spacing, **told} if config.spacing else told
    return model(x, **options)


def reference_spacing(model: nn.Module) -> tuple[float, ...] | None:
    """Reference spacing of a model's input; ``None`` if no layer has one."""
    for _, layer in spaced_layers(model):
        return layer.network_spacing
    return None


def input_channels(model: nn.Module) -> int:
    """Input channels of the first layer that has ``in_channels``."""
    for module in model.modules():
        channels = getattr(module, "in_channels", None)
        if isinstance(channels, int):
            return channels
    raise ExportError(f"{type(model).__name__} has no attribute in_channels, so no example input can be made")


def example_inputs(
    model: nn.Module, config: ExportConfig, *, size: tuple[int, ...], batch: int, others: bool = False
) -> tuple[Tensor, ...]:
    """Noise of the given size, and spacing and orientation if they are inputs: those of reference, or others."""
    parameter = next(model.parameters(), torch.empty(0))
    x = torch.randn(batch, input_channels(model), *size, generator=torch.Generator().manual_seed(0)).to(parameter)
    told = {}
    if config.spacing_input != "no":
        steps = reference_spacing(model)
        assert steps is not None
        told["spacing"] = torch.tensor(steps, dtype=torch.float32) * (OTHER_SPACING if others else 1.0)
    if config.orientation_input != "no":
        slope = torch.full((len(size), len(size)), OTHER_ANGLE if others else 0.0, dtype=torch.float64).triu(1)
        told["orientation"] = torch.linalg.matrix_exp(slope - slope.mT) @ told_storage(model).matrix().mT
    for name, values in told.items():
        rows = values.expand(batch, *values.shape) if getattr(config, f"{name}_input") == "sample" else values
        told[name] = rows.to(parameter.device, torch.float32).contiguous()
    return x, *told.values()


def _check_spacing(model: nn.Module, config: ExportConfig) -> None:
    asked = config.spacing or config.spacing_input != "no"
    if asked and not getattr(model, "takes_spacing", False):
        given = f"spacing={config.spacing}" if config.spacing else f"spacing_input={config.spacing_input!r}"
        raise ValueError(f"{given} given, but this {type(model).__name__} takes no spacing; leave it out")


def told_orientation(model: nn.Module) -> Tensor | None:
    """Directions of the axes of the input that a model was told, ``(n, D, D)``; ``None`` for the identity."""
    turns = [layer._orientation for _, layer in spaced_layers(model) if layer._orientation is not None]
    storages = next((known for m in model.modules() if (known := getattr(m, "storages", None)) is not None), None)
    if storages is None:
        return turns[0].cpu() if turns else None
    axes = torch.stack([storage.matrix() for storage in storages])
    return turns[0].cpu() @ axes.mT if turns else axes.mT


def told_storage(model: nn.Module) -> Storage:
    """The order and flips of axes that a model was told."""
    num_axes = oriented_axes(model, "orientation_input was given")
    as_it_is = Storage(tuple(range(num_axes)), (False,) * num_axes)
    return (getattr(model, "storages", None) or (as_it_is,))[0]


def _check_orientation(model: nn.Module, config: ExportConfig) -> None:
    turn, name = told_orientation(model), type(model).__name__
    if turn is not None and len(turn) > 1 and ("batch" in config.dynamic or config.orientation_input != "no"):
        raise ValueError(
            f"this {name} was told {len(turn)} orientations, one per sample, which allows neither a dynamic batch nor "
            "an orientation as an input; leave them out, or tell one orientation for all"
        )
    if config.orientation_input == "no":
        return
    rearranged = getattr(model, "storages", None) is not None and not isinstance(model, OrientedNetwork)
    if rearranged or "orientation" not in inspect.signature(model.forward).parameters:
        raise ValueError(
            f"orientation_input={config.orientation_input!r} given, but this {name} takes no orientation in a call"
            f"{' once set_orientation has rearranged its input' if rearranged else ''}; leave it out, which makes the "
            "orientation that set_orientation told a constant of the file"
        )
    oriented_axes(model, "orientation_input was given")  # which refuses layers that would ignore it


def _check_numbers(model: nn.Module, config: ExportConfig) -> None:
    """ONNX runtimes lack operations for types other than float32, or round between them."""
    others = {p.dtype for p in model.parameters() if p.is_floating_point()} - {torch.float32}
    if config.to == "onnx" and others:
        raise ValueError(
            f"to='onnx' is for float32, but this {type(model).__name__} contains {min(map(str, others))}; call "
            "model.float() first, or use to='pt2'"
        )


def trace_model(model: nn.Module, config: ExportConfig) -> ExportedProgram:
    """Trace a model in evaluation mode; the model itself does not change.

    Raises
    ------
    ValueError
        If model and configuration do not match.
    ExportError
        If the model cannot be traced.
    """
    _check_spacing(model, config)
    _check_orientation(model, config)
    _check_numbers(model, config)
    if is_sharded(model):
        raise ValueError(
            f"this {type(model).__name__} is sharded over processes, and a file would contain only a part of it; "
            "gather it with save_pretrained and from_pretrained first"
        )
    # Constants would be those of sizes that need not come.
    budget = 0 if "size" in config.dynamic else config.constant_megabytes << 20
    export = Exporting(config.chosen_transforms, constant_bytes=budget)
    build = _TracedWithoutSpacing if config.input_names == ["x", "orientation"] else _Traced
    traced = build(deepcopy(model).eval().requires_grad_(False), export, config).eval()
    inputs = example_inputs(model, config, size=_traced_size(config), batch=_traced_batch(config))
    with torch.no_grad():
        traced(*inputs)
        try:
            return torch.export.export(traced, inputs, dynamic_shapes=_dynamic_shapes(config), strict=False)
        except ValueError:
            raise
        except Exception as error:  # whatever the tracer makes of a model that was not written for it
            raise ExportError(
                f"{type(model).__name__} cannot be traced with dynamic={config.dynamic}: {first_line(error)}; fewer "
                "dynamic axes may help"
            ) from error


def _traced_size(config: ExportConfig) -> tuple[int, ...]:
    """Dynamic axes differ from each other, so that none is taken for another."""
    return tuple(n + d for d, n in enumerate(config.size)) if "size" in config.dynamic else config.size


def _traced_batch(config: ExportConfig) -> int:
    """A dynamic batch of one would be taken for a fixed one."""
    return max(2, config.batch) if "batch" in config.dynamic else config.batch


def _dynamic_shapes(config: ExportConfig) -> dict[str, Any]:
    axes: dict[int, Any] = {0: Dim.DYNAMIC} if "batch" in config.dynamic else {}
    if "size" in config.dynamic:
        axes |= {2 + axis: Dim.DYNAMIC for axis in range(len(config.size))}
    shapes: dict[str, Any] = {"x": axes}
    for name in config.input_names[1:]:
        batch = "batch" in config.dynamic and getattr(config, f"{name}_input") == "sample"
        shapes[name] = {0: Dim.DYNAMIC} if batch else {}
    return shapes


def axis_names(config: ExportConfig) -> dict[str, dict[int, str]]:
    """Names of dynamic axes, for formats that store them."""
    names = {0: "batch"} | {2 + axis: f"size_{axis}" for axis in range(len(config.size))}
    return {name: {axis: names[axis] for axis in axes} for name, axes in _dynamic_shapes(config).items()}
