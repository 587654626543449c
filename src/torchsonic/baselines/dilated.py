"""A dilated convolution: the oldest way to a larger receptive field."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from torchsonic.arguments import per_axis
from torchsonic.baselines.operator import Operator
from torchsonic.nn.norm import CONVOLUTIONS


class Dilated(Operator):
    r"""Convolution with three taps on each axis, ``dilation`` samples apart, without bias.

    .. math:: y_k[n] = \sum_c \sum_{j \in \{-1, 0, 1\}^D} w_{kc}[j]\, x_c[\text{stride}\, n + \text{dilation}\, j]

    Zeros surround the input. Shapes: ``x (B, C, N_1 .. N_D)`` to ``y (B, K, ceil(N_1 / stride) ..)``. Learnable
    parameters: ``3^D C K``.

    Parameters
    ----------
    dilation
        Samples between taps, a number or one per axis.
    shape, options
        Channels, stride and axes, as in :class:`~torchsonic.baselines.operator.Operator`. ``stride`` keeps every
        stride-th sample.

    Examples
    --------
    >>> layer = torchsonic.baselines.Dilated(8, 16, stride=2, dilation=3)
    >>> layer(torch.randn(2, 8, 31, 48)).shape
    torch.Size([2, 16, 16, 24])

    References
    ----------
    Yu, Koltun: Multi-scale context aggregation by dilated convolutions. ICLR, 2016.
    """

    draws_own_weights = False  # a network draws them as those of any convolution

    def __init__(self, *shape: Any, dilation: int | Sequence[int] = 2, **options: Any) -> None:
        super().__init__(*shape, **options)
        self.dilation = per_axis(dilation, self.num_axes, "dilation")
        self.conv = CONVOLUTIONS[self.num_axes](
            self.in_channels,
            self.out_channels,
            3,
            stride=self.stride,  # type: ignore[arg-type]
            padding=self.dilation,  # type: ignore[arg-type]
            dilation=self.dilation,  # type: ignore[arg-type]
            bias=False,
        )

    def _run(self, x: Tensor) -> Tensor:
        return self.conv(x)
