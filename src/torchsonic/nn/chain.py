"""Layers one after another, the spacing passed along."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from torchsonic.functional.frequency import Spacing
from torchsonic.nn.spaced import apply, coarsening, scale_spacing
from torchsonic.nn.spacing import place_behind

__all__ = ["SpacedSequential", "walk"]


def walk(module: nn.Module, x: Tensor, spacing: Spacing | None) -> tuple[Tensor, Spacing | None]:
    """Call a layer or a chain of layers; return its output and the spacing of that."""
    own = getattr(module, "walk", None)
    if own is not None:
        return own(x, spacing)
    y = apply(module, x, spacing)
    return y, None if spacing is None else scale_spacing(spacing, coarsening(module, tuple(x.shape[2:])))


def _times(first: float | Sequence[float], second: float | Sequence[float]) -> float | tuple[float, ...]:
    """Strides behind each other; a number stands for all axes."""
    if not isinstance(first, Sequence) and not isinstance(second, Sequence):
        return first * second
    axes = len(first) if isinstance(first, Sequence) else len(second)  # type: ignore[arg-type]
    pairs = [s if isinstance(s, Sequence) else (s,) * axes for s in (first, second)]
    return tuple(a * b for a, b in zip(*pairs, strict=True))


class SpacedSequential(nn.Sequential):
    """``nn.Sequential`` that passes the spacing on and tells each layer the strides before it.

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
        super().__init__(*modules)
        self.checkpointing = False  # keep only the layers' inputs for the backward pass
        self.stride: float | tuple[float, ...] = 1
        for module in modules:
            place_behind(module, self.stride)
            self.stride = _times(self.stride, getattr(module, "stride", 1))

    def walk(self, x: Tensor, spacing: Spacing | None) -> tuple[Tensor, Spacing | None]:
        """Apply all layers; return the output and its spacing."""
        for module in self:
            if self.checkpointing and torch.is_grad_enabled():
                x, spacing = checkpoint(walk, module, x, spacing, use_reentrant=False)
            else:
                x, spacing = walk(module, x, spacing)
        return x, spacing

    def forward(self, x: Tensor, spacing: Spacing | None = None) -> Tensor:  # type: ignore[override]
        """Apply all layers to an input of the given spacing."""
        return self.walk(x, spacing)[0]
