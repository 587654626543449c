"""Chains of layers that pass the spacing on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from torchsonic.engine.lowering import lowering
from torchsonic.nn.network_spacing import place_behind
from torchsonic.nn.physical_layer import apply, coarsening, knows_spacing, nominal_stride, sampling, scale_spacing
from torchsonic.nn.rearranged import run_oriented
from torchsonic.spectral.orientation import Matrix
from torchsonic.spectral.spacing import Spacing


def walk(module: nn.Module, x: Tensor, spacing: Spacing | None) -> tuple[Tensor, Spacing | None]:
    """Call a layer or a chain of layers; return the output and its spacing."""
    own = getattr(module, "walk", None)
    if own is not None:
        return own(x, spacing)
    y = apply(module, x, spacing)
    if spacing is None:
        return y, None
    if isinstance(module, nn.Upsample):
        return y, scale_spacing(spacing, [n / m for n, m in zip(x.shape[2:], y.shape[2:], strict=True)])
    return y, scale_spacing(spacing, coarsening(module, tuple(x.shape[2:])))


class _KeepingBuffers:
    """Restore buffers afterwards, since batch norms must not see the same batch twice.

    A class, not a generator, since every backward pass through the same graph enters it again.
    """

    def __init__(self, module: nn.Module) -> None:
        self.module = module

    def __enter__(self) -> None:
        self.before = [(buffer, buffer.clone()) for buffer in self.module.buffers()]

    def __exit__(self, *error: object) -> None:
        for buffer, value in self.before:
            buffer.copy_(value)


def _walk_twice(module: nn.Module, x: Tensor, spacing: Spacing | None) -> tuple[Tensor, Spacing | None]:
    """Like :func:`walk`, but the backward pass recomputes intermediate results."""
    options: dict[str, Any] = {}
    if not torch.compiler.is_compiling():  # compilers accept no context, and do not repeat changes of buffers
        options["context_fn"] = lambda: (nullcontext(), _KeepingBuffers(module))
    return checkpoint(walk, module, x, spacing, use_reentrant=False, **options)  # type: ignore[return-value]


def _times(first: float | Sequence[float], second: float | Sequence[float]) -> float | tuple[float, ...]:
    """The product of two strides; one number stands for all axes."""
    if not isinstance(first, Sequence) and not isinstance(second, Sequence):
        return first * second
    axes = len(first) if isinstance(first, Sequence) else len(second)  # type: ignore[arg-type]
    pairs = [s if isinstance(s, Sequence) else (s,) * axes for s in (first, second)]
    return tuple(a * b for a, b in zip(*pairs, strict=True))


def _chain_stride(module: nn.Module) -> float | tuple[float, ...]:
    """The stride of a layer; for a plain container, the product of its layers' strides."""
    if type(module) in (nn.Sequential, nn.ModuleList):
        total: float | tuple[float, ...] = 1
        for part in module.children():
            total = _times(total, _chain_stride(part))
        return total
    return nominal_stride(module)


class SpacedSequential(nn.Sequential):
    """An ``nn.Sequential`` that passes the spacing on and tells each layer the strides before it.

    Do not reuse layers of another chain, since they have already been told their strides. A chain within a chain
    must be a :class:`SpacedSequential`, since a plain container does not pass the spacing on.

    Examples
    --------
    >>> blocks = [torchsonic.nn.SonicBlock(4, 4, stride=2), torchsonic.nn.SonicBlock(4, 4)]
    >>> chain = torchsonic.nn.SpacedSequential(*blocks)
    >>> chain[1].operator.input_stride
    (2.0, 2.0)
    >>> chain(torch.randn(1, 4, 16, 16), spacing=0.5).shape
    torch.Size([1, 4, 8, 8])
    """

    takes_spacing: ClassVar[bool] = True

    def __init__(self, *modules: nn.Module) -> None:
        super().__init__()
        if len(modules) == 1 and isinstance(modules[0], Mapping):
            raise TypeError("SpacedSequential takes layers, not a dictionary; pass them one by one, without names")
        self.checkpointing = False  # keep only the layers' inputs for the backward pass
        self.stride: float | tuple[float, ...] = 1
        for module in modules:
            self.append(module)

    def append(self, module: nn.Module) -> SpacedSequential:
        """Add a layer at the end."""
        stride = _chain_stride(module)
        strided = any(step != 1 for step in (stride if isinstance(stride, Sequence) else (stride,)))
        if type(module) in (nn.Sequential, nn.ModuleList) and (strided or knows_spacing(module)):
            raise ValueError(f"layer {len(self)} is a plain container and drops the spacing; use SpacedSequential")
        place_behind(module, self.stride)
        self.stride = _times(self.stride, stride)
        self.add_module(str(len(self)), module)
        return self

    def insert(self, index: int, module: nn.Module) -> SpacedSequential:
        """Refused, since the strides of later layers would change."""
        raise TypeError("layers cannot be inserted into a SpacedSequential; build a new one")

    def __getitem__(self, index: int | slice):  # type: ignore[override]
        """A layer, or a slice of the chain, whose layers keep the strides they were told."""
        if not isinstance(index, slice):
            return super().__getitem__(index)
        part = SpacedSequential()
        for module in list(self)[index]:
            part.add_module(str(len(part)), module)
            part.stride = _times(part.stride, _chain_stride(module))
        part.checkpointing = self.checkpointing
        return part

    def walk(self, x: Tensor, spacing: Spacing | None) -> tuple[Tensor, Spacing | None]:
        """Apply all layers; return the output and its spacing."""
        for module in self:
            if self.checkpointing and torch.is_grad_enabled() and not torch.compiler.is_exporting():
                x, spacing = _walk_twice(module, x, spacing)
            else:
                x, spacing = walk(module, x, spacing)
        return x, spacing

    def forward(  # type: ignore[override]
        self, x: Tensor, spacing: Spacing | None = None, *, orientation: Matrix | None = None
    ) -> Tensor:
        """Apply all layers to an input of the given spacing and orientation, in the axes of training as a network."""
        told = sampling(x, spacing, orientation)
        if orientation is None or lowering() is not None:  # a program knows no numbers by which to rearrange
            return self.walk(x, told)[0]
        return run_oriented(self, lambda x, own: self.walk(x, own)[0], x, spacing, orientation=orientation, affine=None)
