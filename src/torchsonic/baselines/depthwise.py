"""What depthwise operators share: a 1x1 convolution that mixes channels."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from torchsonic.baselines.operator import Operator

__all__ = ["Depthwise"]


class Depthwise(Operator):
    """A separate filter for each of C channels, then a 1x1 convolution to K channels if needed.

    Parameters
    ----------
    in_channels, out_channels, stride, spatial_dims
        As in :class:`torchsonic.baselines.operator.Operator`.
    pointwise
        Use the 1x1 convolution even if C = K; if they differ it is always used.
    """

    pointwise: nn.Module | None

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        stride: int | Sequence[int] = 1,
        *,
        spatial_dims: int = 2,
        pointwise: bool = False,
    ) -> None:
        super().__init__(in_channels, out_channels, stride, spatial_dims=spatial_dims)
        mixes = pointwise or in_channels != out_channels
        self.pointwise = self._make_pointwise(in_channels, out_channels) if mixes else None

    def _mix(self, y: Tensor, dtype: torch.dtype) -> Tensor:
        """Cast, and mix channels if the layer does; autocast may run the mixing in half precision."""
        y = y.to(dtype)
        return y if self.pointwise is None else self.pointwise(y).to(dtype)

    def _per_channel(self, values: Tensor) -> Tensor:
        """``(C,)`` as ``(C, 1 .. 1)``, to go with samples."""
        return values.reshape(-1, *[1] * self.num_axes)
