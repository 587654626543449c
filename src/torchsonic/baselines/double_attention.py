"""Double attention: gather a few descriptors of the whole image and give each position a mixture of them."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from torchsonic.arguments import positive
from torchsonic.baselines.operator import Operator

__all__ = ["DoubleAttention"]


class DoubleAttention(Operator):
    r"""The block of A2-Nets, with a skip connection.

    .. math:: G_{hn} = \sum_j \mathrm{softmax}_j(\theta(x)_{nj})\, \phi(x)_{hj}, \qquad
       y_i = P\,x_i + W \sum_n G_{\cdot n}\, \mathrm{softmax}_n(\rho(x)_{ni})

    ``theta``, ``phi``, ``rho`` and ``W`` are 1x1 convolutions; ``P`` is the identity, or a 1x1 convolution if C and K
    differ. The cost is linear in the number of positions. The operator is not linear and has no sense of direction.
    Shapes: ``x (B, C, N_1 .. N_D)`` to ``y (B, K, ceil(N_1 / stride) ..)``. Learnable parameters:
    ``C (H + 2 n) + H K``, plus ``C K`` for P.

    Parameters
    ----------
    in_channels, out_channels
        C and K.
    stride
        Averages cells of this size at the end.
    spatial_dims
        D: 1, 2 or 3.
    hidden
        H, the number of gathered features; by default a quarter of C, at least 2.
    num_maps
        n, the number of descriptors; same default.
    skip
        Use the skip connection, ``P x``.

    Examples
    --------
    >>> layer = torchsonic.baselines.DoubleAttention(8, 16, stride=2)
    >>> layer(torch.randn(2, 8, 31, 48)).shape
    torch.Size([2, 16, 16, 24])

    References
    ----------
    Chen, Kalantidis, Li, Yan, Feng: A2-Nets: double attention networks. NeurIPS, 2018.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        stride: int | Sequence[int] = 1,
        *,
        spatial_dims: int = 2,
        hidden: int | None = None,
        num_maps: int | None = None,
        skip: bool = True,
    ) -> None:
        super().__init__(in_channels, out_channels, stride, spatial_dims=spatial_dims)
        quarter = max(2, in_channels // 4)
        self.hidden = quarter if hidden is None else positive(hidden, "hidden")
        self.num_maps = quarter if num_maps is None else positive(num_maps, "num_maps")
        self.phi = self._make_pointwise(in_channels, self.hidden)
        self.theta, self.rho = (self._make_pointwise(in_channels, self.num_maps) for _ in range(2))
        self.out = self._make_pointwise(self.hidden, out_channels)
        self.skip = self._make_skip() if skip else None

    def forward(self, x: Tensor) -> Tensor:
        """Apply the layer: ``(B, C, N_1 .. N_D)`` to ``(B, K, ceil(N_1 / stride) ..)``."""
        self._check(x)
        features, gather, share = (layer(x).flatten(2) for layer in (self.phi, self.theta, self.rho))
        descriptors = features @ gather.softmax(dim=2).to(features.dtype).mT
        y = self.out((descriptors @ share.softmax(dim=1).to(features.dtype)).unflatten(2, x.shape[2:]))
        return self._pool(y if self.skip is None else y + self.skip(x)).to(x.dtype)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, hidden={self.hidden}, num_maps={self.num_maps}"
