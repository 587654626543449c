"""Mixing of channels at each pixel, between operators that look at neighbours."""

from __future__ import annotations

from torch import Tensor, nn

from torchsonic.nn.norm import Activation, Norm, make_activation, make_conv, make_norm

__all__ = ["ChannelMLP"]


class ChannelMLP(nn.Module):
    r"""A residual two-layer network over the channels of each pixel, whatever the grid.

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
