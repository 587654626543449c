"""What all operators share: arguments, input checks, pooling for a stride, batches of several spacings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from torchsonic.arguments import check_samples, choice, per_axis, positive
from torchsonic.nn.norm import CONVOLUTIONS

__all__ = ["AXES", "Operator", "apply_by_spacing"]

AXES = (1, 2, 3)
POOLINGS = {1: F.avg_pool1d, 2: F.avg_pool2d, 3: F.avg_pool3d}


class Operator(nn.Module):
    """A map of ``(B, C, N_1 .. N_D)`` to ``(B, K, ceil(N_1 / stride) ..)``.

    Parameters
    ----------
    in_channels, out_channels
        C and K.
    stride
        A number or one per axis.
    spatial_dims
        D: 1, 2 or 3.
    """

    draws_own_weights: ClassVar[bool] = True
    stride: tuple[int, ...]

    def __init__(self, in_channels: int, out_channels: int, stride: int | Sequence[int], *, spatial_dims: int) -> None:
        super().__init__()
        self.in_channels = positive(in_channels, "in_channels")
        self.out_channels = positive(out_channels, "out_channels")
        self.num_axes = choice(spatial_dims, AXES, "spatial_dims")
        self.stride = per_axis(stride, self.num_axes, "stride")

    def output_size(self, size: Sequence[int]) -> tuple[int, ...]:
        """Samples of the output for an input of the given size: ``ceil(size / stride)``."""
        return tuple((n + s - 1) // s for n, s in zip(size, self.stride, strict=True))

    def _check(self, x: Tensor) -> None:
        check_samples(x, self.num_axes, self.in_channels, type(self).__name__)

    def _work_dtype(self, x: Tensor) -> torch.dtype:
        """The dtype of filters: never half precision, which transforms do not support."""
        return torch.promote_types(torch.promote_types(x.dtype, next(self.parameters()).dtype), torch.float32)

    def _pool(self, x: Tensor) -> Tensor:
        """Means of ``stride`` samples on each axis; a last, incomplete cell is the mean of what it has."""
        if max(self.stride) == 1:
            return x
        return POOLINGS[self.num_axes](x, self.stride, ceil_mode=True)

    def _make_pointwise(self, in_channels: int, out_channels: int) -> nn.Module:
        """A 1x1 convolution without bias."""
        return CONVOLUTIONS[self.num_axes](in_channels, out_channels, 1, bias=False)

    def _make_skip(self) -> nn.Module:
        """The skip connection of an operator, which changes only the number of channels."""
        same = self.in_channels == self.out_channels
        return nn.Identity() if same else self._make_pointwise(self.in_channels, self.out_channels)

    def extra_repr(self) -> str:
        text = f"{self.in_channels}, {self.out_channels}"
        if max(self.stride) > 1:
            text += f", stride={self.stride}"
        return text if self.num_axes == 2 else f"{text}, spatial_dims={self.num_axes}"


def apply_by_spacing(filter_: Callable[[Tensor, Tensor], Tensor], x: Tensor, steps: Tensor) -> Tensor:
    """Filter samples by ``filter_(x, spacing (1, D))``, those of each distinct spacing ``(1 or B, D)`` at once."""
    if steps.shape[0] == 1:
        return filter_(x, steps)
    spacings, group = torch.unique(steps, dim=0, return_inverse=True)
    members = [torch.nonzero(group == i)[:, 0] for i in range(spacings.shape[0])]
    parts = [filter_(x[index], spacings[i : i + 1]) for i, index in enumerate(members)]
    return torch.cat(parts)[torch.argsort(torch.cat(members))]
