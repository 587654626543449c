"""A model as a ``torch.export`` program, made of operations that every runtime supports."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram

from torchsonic.export.config import ExportConfig, ExportError
from torchsonic.export.lowering.exporting import Exporting
from torchsonic.export.run import first_line
from torchsonic.nn.network_spacing import spaced_layers
from torchsonic.nn.parameters import is_sharded


class _Traced(nn.Module):
    """The model as exporters see it: tensors in, one tensor out."""

    def __init__(self, model: nn.Module, export: Exporting, config: ExportConfig) -> None:
        super().__init__()
        self.model = model
        self._export, self._config = export, config

    def forward(self, x: Tensor, spacing: Tensor | None = None) -> Tensor:
        with self._export.active():
            return call_model(self.model, (x,) if spacing is None else (x, spacing), self._config)


def call_model(model: nn.Module, inputs: tuple[Tensor, ...], config: ExportConfig) -> Tensor:
    """The model's output for the inputs of its file."""
    if len(inputs) == 2:
        return model(inputs[0], spacing=inputs[1])
    return model(inputs[0], spacing=config.spacing) if config.spacing else model(inputs[0])


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
    model: nn.Module, config: ExportConfig, *, size: tuple[int, ...], batch: int, spacing_factor: float = 1.0
) -> tuple[Tensor, ...]:
    """Noise of the given size and, if it is an input, the reference spacing times a factor."""
    parameter = next(model.parameters(), torch.empty(0))
    x = torch.randn(batch, input_channels(model), *size, generator=torch.Generator().manual_seed(0)).to(parameter)
    if config.spacing_input == "no":
        return (x,)
    steps = reference_spacing(model)
    assert steps is not None
    spacing = torch.tensor(steps, dtype=torch.float32, device=parameter.device) * spacing_factor
    return x, spacing if config.spacing_input == "batch" else spacing.expand(batch, -1).contiguous()


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


def _check_orientation(model: nn.Module, config: ExportConfig) -> None:
    turn = told_orientation(model)
    if turn is not None and len(turn) > 1 and "batch" in config.dynamic:
        raise ValueError(
            f"this {type(model).__name__} was told {len(turn)} orientations, one per sample, so "
            f"dynamic={config.dynamic} cannot contain 'batch'; leave it out, or tell one orientation for all"
        )


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
    traced = _Traced(deepcopy(model).eval().requires_grad_(False), export, config).eval()
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
    if config.spacing_input != "no":
        batch = "batch" in config.dynamic and config.spacing_input == "sample"
        shapes["spacing"] = {0: Dim.DYNAMIC} if batch else {}
    return shapes


def axis_names(config: ExportConfig) -> dict[str, dict[int, str]]:
    """Names of dynamic axes, for formats that store them."""
    names = {0: "batch"} | {2 + axis: f"size_{axis}" for axis in range(len(config.size))}
    return {name: {axis: names[axis] for axis in axes} for name, axes in _dynamic_shapes(config).items()}
