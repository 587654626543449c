"""Layers with a physical kernel, which know the spacing of their input and the strides before them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.fx import Proxy

from torchsonic.engine.lowering import lowering, number
from torchsonic.nn.definition import DefinedLayer
from torchsonic.spectral.orientation import Matrix, as_orientation
from torchsonic.spectral.spacing import (
    ANY_BATCH,
    Sampling,
    Spacing,
    as_spacing,
    orientation_of,
    plain_spacing,
    spacing_values,
)

NO_INPUT_OF_AN_EXPORT = (
    "follows the spacing, which therefore cannot be an input of an exported model, nor change with dynamic sizes "
    "behind a stride; export with a fixed spacing and fixed sizes"
)
TOLD_TWICE = "orientation was given twice, with the spacing and on its own"


class SpacedLayer(DefinedLayer):
    """A layer whose kernel is defined in physical units.

    ``reference_spacing`` is the spacing it was built for, ``spacing`` the one it assumes if ``forward`` is given none,
    and ``input_stride`` the cumulative stride between the network's input and the layer's. Subclasses set ``num_axes``
    and ``stride``, and implement ``forward(x, spacing=None)``.
    """

    takes_spacing: ClassVar[bool] = True
    takes_orientation: ClassVar[bool] = False
    draws_own_weights: ClassVar[bool] = True
    num_axes: int
    stride: tuple[int, ...]
    reference_spacing: tuple[float, ...]
    input_stride: tuple[float, ...]
    _spacing: tuple[float, ...] | Tensor
    _orientation: Tensor | None = None

    def _assume_spacing(self, spacing: float | Sequence[float]) -> None:
        """Set the reference spacing; called once by the constructor."""
        self.reference_spacing = spacing_values(spacing, self.num_axes)
        self.input_stride = (1.0,) * self.num_axes
        self._spacing = self.reference_spacing

    @property
    def network_spacing(self) -> tuple[float, ...]:
        """Reference spacing of the network's input, before any stride, as it was passed to the constructor."""
        steps = zip(self.reference_spacing, self.input_stride, strict=True)
        return tuple(float(f"{step / stride:.12g}") for step, stride in steps)

    def definition(self) -> dict[str, Any]:
        return {"spacing": self.network_spacing}

    @property
    def spacing(self) -> tuple[float, ...] | Tensor:
        """Spacing of the layer's input if ``forward`` is given none; change it with :meth:`set_spacing`."""
        return self._spacing

    def told(self, spacing: Spacing | None) -> Spacing:
        """Spacing, and orientation if there is one, of a call: as given, or what the layer assumes."""
        turn = self._orientation
        if isinstance(spacing, Sampling):
            spacing, turn = spacing.spacing, spacing.orientation
        given = self._spacing if spacing is None else batch_spacing(spacing)
        if turn is None:
            return given
        self._refuse_orientation()
        return Sampling(given, turn)

    def _refuse_orientation(self) -> None:
        if not self.takes_orientation:
            raise ValueError(
                f"{type(self).__name__} cannot take an orientation, since its kernel is tied to the axes of the "
                "array; bring all arrays to the same axis order yourself, or use a Sonic layer"
            )

    def set_spacing(self, spacing: Spacing) -> None:
        """Set the spacing of this layer's input: a number, one per axis, or ``(batch, D)``."""
        steps = as_spacing(spacing, self.num_axes, batch=ANY_BATCH)
        self._spacing = tuple(steps[0].tolist()) if steps.shape[0] == 1 else steps.clone()

    def set_orientation(self, orientation: Matrix | None) -> None:
        """Set the orientation of this layer's input: ``(D, D)`` or ``(batch, D, D)``; ``None`` for the identity."""
        if orientation is not None:
            self._refuse_orientation()
        self._orientation = None if orientation is None else as_orientation(orientation, self.num_axes).clone()

    def set_input_stride(self, stride: Sequence[float]) -> None:
        """Set the cumulative stride in front of the layer; its reference spacing is multiplied by it."""
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
        steps = as_spacing(self.told(spacing), self.num_axes, batch=ANY_BATCH)
        return steps * torch.tensor(self.coarsening(size), dtype=steps.dtype, device=steps.device)

    def coarsening(self, size: Sequence[int]) -> tuple[float, ...]:
        """Ratio of output to input spacing; input and output cover the same extent."""
        pairs = zip(size, self.output_size(size), self.stride, strict=True)
        return tuple(1.0 if stride == 1 else n / m for n, m, stride in pairs)


def split_batch(given: Spacing, num_axes: int) -> list[Spacing]:
    """Spacing, and orientation if there is one, of each sample; a single one if all are equal."""
    rows, turn = as_spacing(given, num_axes, batch=ANY_BATCH), orientation_of(given)
    steps = [tuple(row) for row in rows.tolist()]
    if turn is None:
        return [*steps]
    most = max(len(rows), len(turn))
    return [Sampling(steps[i % len(steps)], turn[i % len(turn)][None]) for i in range(most)]


def of_samples(given: Spacing, members: Sequence[int]) -> Spacing:
    """Spacing and orientation of some samples of a batch."""
    steps, turn = plain_spacing(given), orientation_of(given)
    if isinstance(steps, Tensor) and steps.dim() == 2 and len(steps) > 1:
        steps = steps[members]
    if turn is None:
        return steps
    return Sampling(steps, turn if len(turn) == 1 else turn[members])


def leaf_call(layer: nn.Module, x: Proxy, *arguments: Any, **options: Any) -> Any:
    """Record a call of a layer as one node of a ``torch.fx`` graph, with the arguments of its ``forward``.

    Otherwise tracers would step into it, where control flow depends on sizes and values.
    """
    target = x.tracer.path_of_module(layer)  # type: ignore[attr-defined]
    if not target:
        raise TypeError(
            f"torch.fx records a {type(layer).__name__} as a single node and needs a module around it; "
            "trace torch.nn.Sequential(layer)"
        )
    refuse_tracing(x.tracer.root)  # type: ignore[attr-defined]  # whose hooks torch.fx does not call
    given = {name: value for name, value in options.items() if value is not None}
    return x.tracer.create_proxy("call_module", target, (x, *arguments), given)


def refuse_tracing(module: nn.Module) -> None:
    """Refuse to let ``torch.fx`` record a module that rearranges its input, which a graph would not contain."""
    if getattr(module, "storages", None) is not None:
        raise TypeError(
            f"torch.fx does not record how a {type(module).__name__} that was told an orientation rearranges its "
            "input; call set_orientation(model, None), trace the model, and call set_orientation with the traced one"
        )


def batch_spacing(spacing: Spacing) -> Spacing:
    """Convert a NumPy array with one spacing per sample to a tensor; leave other spacings as they are."""
    if isinstance(spacing, Tensor) and torch._C._functorch.is_batchedtensor(spacing):  # type: ignore[attr-defined]
        raise ValueError(
            "torch.func.vmap cannot map over the spacing, since layers need its values; call the layer once with all "
            "samples and their spacings as one tensor of shape (B, D)"
        )
    return torch.as_tensor(spacing) if isinstance(spacing, np.ndarray) and spacing.ndim == 2 else spacing


def sampling(x: Tensor, spacing: Spacing | None, orientation: Matrix | None) -> Spacing | None:
    """Combine the spacing and, if there is one, the orientation of ``x (B, C, *size)`` as layers take them."""
    if isinstance(x, Tensor) and hasattr(x, "affine"):  # MONAI's
        raise TypeError(
            f"the input is a {type(x).__name__}, whose affine would be ignored; use a network of "
            "torchsonic.integrations.monai, or pass x.as_tensor(), and affine=x.affine if the model is a network"
        )
    if orientation is None:
        return spacing
    if not isinstance(x, Tensor):
        raise TypeError(f"an orientation was given with an input that is no tensor, but a {type(x).__name__}")
    if isinstance(spacing, Sampling):
        raise ValueError(TOLD_TWICE)
    return Sampling(spacing, as_orientation(orientation, x.dim() - 2, batch=x.shape[0]))


def scale_spacing(spacing: Spacing | None, factors: Sequence[float]) -> Spacing | None:
    """Multiply a spacing axis by axis. Numbers stay numbers, which serve as cache keys; ``None`` stays ``None``."""
    if spacing is None:
        return None
    if isinstance(spacing, Sampling):
        return Sampling(scale_spacing(spacing.spacing, factors), spacing.orientation)
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
    """Whether any layer of a module has a physical kernel and thus depends on the spacing."""
    return any(isinstance(layer, SpacedLayer) for layer in module.modules())


def refuse_unheard(model: nn.Module, spacing: Spacing | None) -> None:
    """Refuse a spacing that no layer of a model would use."""
    if spacing is not None and not getattr(model, "takes_spacing", False):
        raise ValueError(
            f"spacing={spacing} given, but this {type(model).__name__} has no layer that uses it; leave it out, and "
            "resample images to the spacing of training yourself"
        )


def apply(module: nn.Module, x: Tensor, spacing: Spacing | None = None) -> Tensor:
    """Call a layer, with the spacing if it takes one; pixel-bound layers such as ``nn.Conv2d`` do not."""
    return module(x, spacing) if getattr(module, "takes_spacing", False) else module(x)


def coarsening(module: nn.Module, size: Sequence[int]) -> tuple[float, ...]:
    """Ratio of a layer's output spacing to its input spacing, for an input of the given size.

    A layer may define it in a method of this name. Otherwise it is the stride: a strided convolution keeps every
    stride-th sample, and a transposed one turns one sample into ``stride``.
    """
    own = getattr(module, "coarsening", None)
    if own is not None:
        return own(size)
    stride = nominal_stride(module)
    return tuple(map(float, stride if isinstance(stride, Sequence) else (stride,) * len(size)))


def nominal_stride(module: nn.Module) -> float | tuple[float, ...]:
    """The stride a layer was built with, less than 1 if it refines the grid; one number stands for all axes."""
    if isinstance(module, (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)):
        return tuple(1 / step for step in module.stride)
    if isinstance(module, nn.Upsample) and module.scale_factor is not None:
        scale = module.scale_factor
        return tuple(1 / s for s in scale) if isinstance(scale, Sequence) else 1 / scale
    stride = getattr(module, "stride", 1)
    return tuple(stride) if isinstance(stride, Sequence) else stride
