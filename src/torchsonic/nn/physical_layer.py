"""Layers with a physical kernel, which know the spacing of their samples and the strides before them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from torchsonic.engine.lowering import lowering, number
from torchsonic.nn.definition import DefinedLayer
from torchsonic.spectral.spacing import ANY_BATCH, Spacing, as_spacing, spacing_values

__all__ = [
    "SpacedLayer",
    "apply",
    "batch_spacing",
    "coarsening",
    "knows_spacing",
    "nominal_stride",
    "refuse_unheard",
    "scale_spacing",
]


class SpacedLayer(DefinedLayer):
    """A layer whose kernel is defined in physical units.

    ``reference_spacing`` is the spacing it was made for, ``spacing`` the one it assumes if ``forward`` is given none,
    and ``input_stride`` the cumulative stride between the network's input and the layer's. Subclasses set ``num_axes``
    and ``stride``, and implement ``forward(x, spacing=None)``.
    """

    takes_spacing: ClassVar[bool] = True
    draws_own_weights: ClassVar[bool] = True
    num_axes: int
    stride: tuple[int, ...]
    reference_spacing: tuple[float, ...]
    input_stride: tuple[float, ...]
    _spacing: tuple[float, ...] | Tensor

    def _assume_spacing(self, spacing: float | Sequence[float]) -> None:
        """Set the reference spacing; called once by the constructor."""
        self.reference_spacing = spacing_values(spacing, self.num_axes)
        self.input_stride = (1.0,) * self.num_axes
        self._spacing = self.reference_spacing

    @property
    def network_spacing(self) -> tuple[float, ...]:
        """Reference spacing of the network's input, before the strides in front of this layer, as it was passed."""
        steps = zip(self.reference_spacing, self.input_stride, strict=True)
        return tuple(float(f"{step / stride:.12g}") for step, stride in steps)

    def definition(self) -> dict[str, Any]:
        return {"spacing": self.network_spacing}

    @property
    def spacing(self) -> tuple[float, ...] | Tensor:
        """Spacing of the layer's input if ``forward`` is given none; change it with :meth:`set_spacing`."""
        return self._spacing

    def set_spacing(self, spacing: Spacing) -> None:
        """Set the spacing of this layer's input: a number, one per axis, or ``(batch, D)``."""
        steps = as_spacing(spacing, self.num_axes, batch=ANY_BATCH)
        self._spacing = tuple(steps[0].tolist()) if steps.shape[0] == 1 else steps

    def set_input_stride(self, stride: Sequence[float]) -> None:
        """Place the layer behind a cumulative stride. Its reference grid becomes coarser, in the same pixels."""
        change = [new / old for new, old in zip(stride, self.input_stride, strict=True)]
        untold = isinstance(self._spacing, tuple) and self._spacing == self.reference_spacing
        self.input_stride = tuple(float(s) for s in stride)
        self.reference_spacing = tuple(d * c for d, c in zip(self.reference_spacing, change, strict=True))
        if untold:
            self._spacing = self.reference_spacing

    def output_size(self, size: Sequence[int]) -> tuple[int, ...]:
        """Size of the output for an input of the given size: ``ceil(size / stride)``."""
        return tuple((n + s - 1) // s for n, s in zip(size, self.stride, strict=True))

    def output_spacing(self, size: Sequence[int], spacing: Spacing | None = None) -> Tensor:
        """Spacing of the output, ``(1, D)`` or ``(B, D)``."""
        steps = as_spacing(self._spacing if spacing is None else spacing, self.num_axes, batch=ANY_BATCH)
        return steps * torch.tensor(self.coarsening(size), dtype=steps.dtype, device=steps.device)

    def coarsening(self, size: Sequence[int]) -> tuple[float, ...]:
        """Ratio of output to input spacing; input and output cover the same extent."""
        pairs = zip(size, self.output_size(size), self.stride, strict=True)
        return tuple(1.0 if stride == 1 else n / m for n, m, stride in pairs)


def batch_spacing(spacing: Spacing) -> Spacing:
    """Convert a NumPy array with one spacing per sample to a tensor; leave other spacings as they are."""
    if isinstance(spacing, Tensor) and torch._C._functorch.is_batchedtensor(spacing):  # type: ignore[attr-defined]
        raise ValueError(
            "torch.func.vmap cannot map over the spacing, whose values a layer has to look at; call the layer once "
            "with all samples and their spacings as one tensor of shape (B, D)"
        )
    return torch.as_tensor(spacing) if isinstance(spacing, np.ndarray) and spacing.ndim == 2 else spacing


def scale_spacing(spacing: Spacing | None, factors: Sequence[float]) -> Spacing | None:
    """Multiply a spacing axis by axis. Numbers stay numbers, by which layers cache, and ``None`` stays ``None``."""
    if spacing is None:
        return None
    spacing = batch_spacing(spacing)
    # An exporter's dynamic sizes make symbolic factors, which conversion to numbers would fix.
    symbolic = lowering() is not None and any(isinstance(f, torch.SymFloat) for f in factors)
    if symbolic or isinstance(spacing, Tensor):
        steps = as_spacing(spacing, len(factors), batch=ANY_BATCH)
        if symbolic:
            scaled = [
                step * number(f, steps.dtype, steps.device) for step, f in zip(steps.unbind(1), factors, strict=True)
            ]
            return torch.stack(scaled, dim=1)
        return steps * torch.tensor(tuple(factors), dtype=steps.dtype, device=steps.device)
    return tuple(d * f for d, f in zip(spacing_values(spacing, len(factors)), factors, strict=True))


def knows_spacing(module: nn.Module) -> bool:
    """Whether any layer of a module has a physical kernel and so depends on the spacing."""
    return any(isinstance(layer, SpacedLayer) for layer in module.modules())


def refuse_unheard(model: nn.Module, spacing: Spacing | None) -> None:
    """Refuse a spacing that no layer of a model would use."""
    if spacing is not None and not getattr(model, "takes_spacing", False):
        raise ValueError(f"spacing={spacing} given, but this {type(model).__name__} has no layer that knows spacing")


def apply(module: nn.Module, x: Tensor, spacing: Spacing | None = None) -> Tensor:
    """Call a layer, with the spacing if it takes one; pixel-bound layers such as ``nn.Conv2d`` do not."""
    return module(x, spacing) if getattr(module, "takes_spacing", False) else module(x)


def coarsening(module: nn.Module, size: Sequence[int]) -> tuple[float, ...]:
    """Ratio of a layer's output spacing to its input spacing, for an input of the given size.

    A layer may define it in a method of this name. Otherwise it is the stride: a strided convolution keeps every
    stride-th sample, and a transposed one makes ``stride`` samples out of one.
    """
    own = getattr(module, "coarsening", None)
    if own is not None:
        return own(size)
    stride = nominal_stride(module)
    return tuple(map(float, stride if isinstance(stride, Sequence) else (stride,) * len(size)))


def nominal_stride(module: nn.Module) -> float | tuple[float, ...]:
    """The stride a layer was built with, below 1 if it refines the grid; one number stands for all axes."""
    if isinstance(module, (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)):
        return tuple(1 / step for step in module.stride)
    if isinstance(module, nn.Upsample) and module.scale_factor is not None:
        scale = module.scale_factor
        return tuple(1 / s for s in scale) if isinstance(scale, Sequence) else 1 / scale
    stride = getattr(module, "stride", 1)
    return tuple(stride) if isinstance(stride, Sequence) else stride
