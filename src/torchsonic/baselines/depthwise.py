"""What depthwise operators share: their arguments, pooling for a stride, a 1x1 convolution that mixes channels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from torchsonic.arguments import check_samples, choice, per_axis, positive
from torchsonic.nn.norm import CONVOLUTIONS

__all__ = ["AXES", "Depthwise"]

AXES = (1, 2, 3)
POOLINGS = {1: F.avg_pool1d, 2: F.avg_pool2d, 3: F.avg_pool3d}


class Depthwise(nn.Module):
    """A filter of its own for each of C channels, then a 1x1 convolution to K channels where one is needed.

    Parameters
    ----------
    in_channels, out_channels
        C and K.
    stride
        A number or one per axis.
    spatial_dims
        D: 1, 2 or 3.
    pointwise
        Have the 1x1 convolution even where C = K; where they differ it is always there.
    """

    draws_own_weights: ClassVar[bool] = True
    stride: tuple[int, ...]
    pointwise: nn.Module | None

    def __init__(
        self, in_channels: int, out_channels: int, stride: int | Sequence[int], *, spatial_dims: int, pointwise: bool
    ) -> None:
        super().__init__()
        self.in_channels = positive(in_channels, "in_channels")
        self.out_channels = positive(out_channels, "out_channels")
        self.num_axes = choice(spatial_dims, AXES, "spatial_dims")
        self.stride = per_axis(stride, self.num_axes, "stride")
        mixes = pointwise or in_channels != out_channels
        self.pointwise = CONVOLUTIONS[spatial_dims](in_channels, out_channels, 1, bias=False) if mixes else None

    def output_size(self, size: Sequence[int]) -> tuple[int, ...]:
        """Samples of the output for an input of the given size: ``ceil(size / stride)``."""
        return tuple((n + s - 1) // s for n, s in zip(size, self.stride, strict=True))

    def _check(self, x: Tensor) -> None:
        check_samples(x, self.num_axes, self.in_channels, type(self).__name__)

    def _work_dtype(self, x: Tensor) -> torch.dtype:
        """What filters are computed in: never half precision, which transforms do not bear."""
        return torch.promote_types(torch.promote_types(x.dtype, next(self.parameters()).dtype), torch.float32)

    def _pool(self, x: Tensor) -> Tensor:
        """Means of ``stride`` samples on each axis; a last, incomplete cell is the mean of what it has."""
        if max(self.stride) == 1:
            return x
        return POOLINGS[self.num_axes](x, self.stride, ceil_mode=True)

    def _mix(self, y: Tensor, dtype: torch.dtype) -> Tensor:
        """Cast, and mix channels if the layer does; autocast may run the mixing in half precision."""
        y = y.to(dtype)
        return y if self.pointwise is None else self.pointwise(y).to(dtype)

    def _per_channel(self, values: Tensor) -> Tensor:
        """``(C,)`` as ``(C, 1 .. 1)``, to go with samples."""
        return values.reshape(-1, *[1] * self.num_axes)

    def extra_repr(self) -> str:
        text = f"{self.in_channels}, {self.out_channels}"
        if max(self.stride) > 1:
            text += f", stride={self.stride}"
        return text if self.num_axes == 2 else f"{text}, spatial_dims={self.num_axes}"
