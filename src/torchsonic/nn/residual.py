"""Parts of residual blocks besides the operator: skip connections, stochastic depth, channel mixing."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from torchsonic.arguments import fraction, per_axis
from torchsonic.functional.resample import resample
from torchsonic.nn.norm import Activation, Norm, make_activation, make_conv, make_norm

torch.fx.wrap("resample")  # one node of a graph that torch.fx records


class Shortcut(nn.Module):
    """The skip connection of a block: the identity, or a 1x1 projection onto the operator's channels and grid.

    ``smooth`` resamples without aliasing onto the grid of a spectral stride, which covers the same extent; ``centred``,
    onto a grid about the same centre. Otherwise every stride-th sample is kept, as in ordinary convolutions.
    ``(B, C, *size)`` to ``(B, K, *ceil(size / stride))``.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        stride: int | Sequence[int],
        *,
        spatial_dims: int,
        smooth: bool,
        centred: bool = False,
    ) -> None:
        super().__init__()
        self.stride = per_axis(stride, spatial_dims, "stride")
        self.smooth, self.centred = smooth and max(self.stride) > 1, centred
        self.project: nn.Module = nn.Identity()
        if in_channels != out_channels or (max(self.stride) > 1 and not smooth):
            step = 1 if smooth else stride
            self.project = make_conv(in_channels, out_channels, spatial_dims=spatial_dims, stride=step)

    def forward(self, x: Tensor) -> Tensor:
        if self.smooth:
            size = [(x.shape[2 + axis] + s - 1) // s for axis, s in enumerate(self.stride)]
            x = resample(x, size, centred=self.centred)
        return self.project(x)


class DropPath(nn.Module):
    """Skip a branch for a sample with the given probability during training; its expected value is kept."""

    def __init__(self, probability: float = 0.0) -> None:
        super().__init__()
        self.probability = fraction(probability, "probability")

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.probability == 0.0:
            return x
        kept = torch.rand(x.shape[0], *[1] * (x.dim() - 1), device=x.device) >= self.probability
        return x * (kept.to(x.dtype) / (1 - self.probability))

    def extra_repr(self) -> str:
        return f"{self.probability}"


class ChannelMLP(nn.Module):
    r"""A residual two-layer network over the channels of each pixel, independent of the grid.

    .. math:: y = x + W_2\,\phi(W_1\,\mathrm{norm}(x))

    Shapes: ``(B, C, *size)`` to the same; ``W_1`` widens to ``ratio * C`` channels.

    Examples
    --------
    >>> torchsonic.nn.ChannelMLP(8, 2, spatial_dims=3)(torch.randn(1, 8, 4, 5, 6)).shape
    torch.Size([1, 8, 4, 5, 6])
    """

    def __init__(
        self,
        channels: int,
        ratio: int = 2,
        *,
        spatial_dims: int = 2,
        norm: Norm = "group",
        activation: Activation = "gelu",
    ) -> None:
        super().__init__()
        if ratio < 1:
            raise ValueError(f"ratio must be at least 1, got {ratio}")
        self.norm = make_norm(norm, channels, spatial_dims)
        self.widen = make_conv(channels, ratio * channels, spatial_dims=spatial_dims, bias=True)
        self.activation = make_activation(activation)
        self.narrow = make_conv(ratio * channels, channels, spatial_dims=spatial_dims, bias=True)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.narrow(self.activation(self.widen(self.norm(x))))
