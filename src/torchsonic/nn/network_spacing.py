"""Tell a network the physical spacing of its input."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from torchsonic.nn.conv import SonicConvNd
from torchsonic.nn.physical_layer import SpacedLayer
from torchsonic.spectral.orientation import reorder_spacing
from torchsonic.spectral.spacing import ANY_BATCH, Spacing, as_spacing


def sonic_layers(model: nn.Module) -> Iterator[tuple[str, SonicConvNd]]:
    """All Sonic layers of a model, with their names."""
    for name, layer in spaced_layers(model):
        if isinstance(layer, SonicConvNd):
            yield name, layer


def spaced_layers(model: nn.Module) -> Iterator[tuple[str, SpacedLayer]]:
    """All layers of a model that take a spacing, with their names."""
    for name, module in model.named_modules():
        if isinstance(module, SpacedLayer):
            yield name, module


def place_behind(model: nn.Module, stride: float | Sequence[float]) -> nn.Module:
    """Tell part of a network the stride in front of it, which multiplies the strides within that part."""
    for _, layer in spaced_layers(model):
        factors = (stride,) * layer.num_axes if isinstance(stride, (int, float)) else stride
        layer.set_input_stride([old * new for old, new in zip(layer.input_stride, factors, strict=True)])
    return model


def set_spacing(model: nn.Module, spacing: Spacing) -> nn.Module:
    """Tell every layer with a physical kernel the spacing of the model's *input*.

    Use it for containers that pass on only ``x``. A layer behind strides assumes the spacing times its
    ``input_stride``. Torchsonic's networks set that; for other models with strides, call :func:`infer_strides` first.

    Parameters
    ----------
    spacing
        A number, one per axis, or ``(B, D)`` for a batch of mixed spacings.

    Returns
    -------
    nn.Module
        The model.

    Examples
    --------
    >>> model = torch.nn.Sequential(torchsonic.SonicConv2d(1, 4), torch.nn.ReLU(), torchsonic.SonicConv2d(4, 1))
    >>> y = torchsonic.set_spacing(model, (2.0, 0.5))(torch.randn(1, 1, 16, 64))
    """
    layers = list(spaced_layers(model))
    if not layers:
        raise ValueError(
            f"set_spacing({spacing}) was called, but this {type(model).__name__} has no layer that uses the spacing; "
            "resample images to the spacing of training yourself"
        )
    if len(layers) > 1 and _has_strides(model) and all(set(layer.input_stride) == {1.0} for _, layer in layers):
        warnings.warn(
            "the model has strides but its layers do not know them; call infer_strides(model, example) first",
            stacklevel=2,
        )
    model.told_spacing = copy.deepcopy(spacing)  # type: ignore[assignment]  # along the axes of the input
    storages = getattr(model, "storages", None)
    if storages is not None:
        spacing = reorder_spacing(spacing, storages)
    for name, layer in layers:
        try:
            steps = as_spacing(spacing, layer.num_axes, batch=ANY_BATCH)
        except ValueError as error:
            raise ValueError(f"spacing does not fit layer {name or type(layer).__name__!r}: {error}") from error
        layer.set_spacing(steps * torch.tensor(layer.input_stride, dtype=steps.dtype, device=steps.device))
    return model


def _has_strides(model: nn.Module) -> bool:
    strides = [getattr(module, "stride", 1) for module in model.modules()]
    return any((max(s) if isinstance(s, tuple) else s) != 1 for s in strides if isinstance(s, (int, tuple)))


@contextmanager
def evaluating(model: nn.Module) -> Iterator[nn.Module]:
    """Put a model in evaluation mode within a ``with`` block; afterwards every module is back in its own mode."""
    training = {module: module.training for module in model.modules()}
    try:
        yield model.eval()
    finally:
        for module, mode in training.items():
            module.training = mode


def infer_strides(model: nn.Module, example: Tensor) -> nn.Module:
    """Find the cumulative stride of every layer with a physical kernel by running the model once on an example.

    Reference spacings are scaled accordingly, so that telling the model its reference spacing changes nothing.

    Parameters
    ----------
    example
        An input ``(B, C, N_1 .. N_D)``; strides are exact if the model's total stride divides its size.

    Returns
    -------
    nn.Module
        The model, with ``input_stride`` set in its layers.
    """
    seen: dict[SpacedLayer, tuple[float, ...]] = {}
    size = tuple(example.shape[2:])
    storages = getattr(model, "storages", None)
    if storages is not None:  # the model rearranges its input
        size = tuple(size[axis] for axis in storages[0].order)

    def record(layer: SpacedLayer, args: tuple, kwargs: dict) -> None:
        x = args[0] if args else kwargs["x"]
        axes = layer.num_axes
        stride = tuple(n / m for n, m in zip(size[-axes:], x.shape[-axes:], strict=True))
        if seen.setdefault(layer, stride) != stride:
            raise ValueError(f"a layer is called at strides {seen[layer]} and {stride}; pass spacing to it explicitly")

    told = {layer: layer.spacing for _, layer in spaced_layers(model)}
    handles = [layer.register_forward_pre_hook(record, with_kwargs=True) for _, layer in spaced_layers(model)]
    try:
        for layer in told:  # a network may choose its grids by the spacing it is told
            layer.set_spacing(layer.reference_spacing)
        with torch.no_grad(), evaluating(model):
            model(example)
    finally:
        for layer, spacing in told.items():
            layer.set_spacing(spacing)
        for handle in handles:
            handle.remove()
    for layer, stride in seen.items():
        layer.set_input_stride(stride)
    told_spacing = getattr(model, "told_spacing", None)
    return model if told_spacing is None else set_spacing(model, told_spacing)
