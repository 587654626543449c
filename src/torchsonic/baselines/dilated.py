"""A dilated convolution: the oldest way to a larger receptive field."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from torchsonic.arguments import check_samples, choice, per_axis, positive
from torchsonic.baselines.operator import AXES
from torchsonic.nn.norm import CONVOLUTIONS

__all__ = ["Dilated"]


class Dilated(nn.Module):
    r"""Convolution with three taps on each axis, ``dilation`` samples apart, without bias.

    .. math:: y_k[n] = \sum_c \sum_{j \in \{-1, 0, 1\}^D} w_{kc}[j]\, x_c[\text{stride}\, n + \text{dilation}\, j]

    Zeros surround the input. Shapes: ``x (B, C, N_1 .. N_D)`` to ``y (B, K, ceil(N_1 / stride) ..)``. Learnable
    parameters: ``3^D C K``.

    Parameters
    ----------
    in_channels, out_channels
        C and K.
    stride
        Keeps every stride-th sample.
    spatial_dims
        D: 1, 2 or 3.
    dilation
        Samples between taps, a number or one per axis.

    Examples
    --------
    >>> layer = torchsonic.baselines.Dilated(8, 16, stride=2, dilation=3)
    >>> layer(torch.randn(2, 8, 31, 48)).shape
    torch.Size([2, 16, 16, 24])

    References
    ----------
    Yu, Koltun: Multi-scale context aggregation by dilated convolutions. ICLR, 2016.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        stride: int | Sequence[int] = 1,
        *,
        spatial_dims: int = 2,
        dilation: int | Sequence[int] = 2,
    ) -> None:
        super().__init__()
        self.in_channels = positive(in_channels, "in_channels")
        self.out_channels = positive(out_channels, "out_channels")
        self.num_axes = choice(spatial_dims, AXES, "spatial_dims")
        self.stride = per_axis(stride, spatial_dims, "stride")
        self.dilation = per_axis(dilation, spatial_dims, "dilation")
        self.conv = CONVOLUTIONS[spatial_dims](
            in_channels,
            out_channels,
            3,
            stride=self.stride,  # type: ignore[arg-type]
            padding=self.dilation,  # type: ignore[arg-type]
            dilation=self.dilation,  # type: ignore[arg-type]
            bias=False,
        )

    def forward(self, x: Tensor) -> Tensor:
        """Apply the layer: ``(B, C, N_1 .. N_D)`` to ``(B, K, ceil(N_1 / stride) ..)``."""
        check_samples(x, self.num_axes, self.in_channels, type(self).__name__)
        return self.conv(x).to(x.dtype)
