"""Non-local block: every position attends to all others, by content and not by location."""

from __future__ import annotations

from collections.abc import Sequence

import torch.nn.functional as F
from torch import Tensor

from torchsonic.arguments import positive
from torchsonic.baselines.operator import Operator

__all__ = ["NonLocal"]

MAX_POOLINGS = {1: F.max_pool1d, 2: F.max_pool2d, 3: F.max_pool3d}


class NonLocal(Operator):
    r"""Self-attention over all positions, embedded Gaussian, with a skip connection.

    .. math:: y_i = P\,x_i + W \sum_j \mathrm{softmax}_j(\theta(x_i)^\top \phi(x_j))\, g(x_j)

    ``theta``, ``phi``, ``g`` and ``W`` are 1x1 convolutions; ``P`` is the identity, or a 1x1 convolution if C and K
    differ. The operator is not linear and has no sense of direction: permuting the positions permutes the output.
    Shapes: ``x (B, C, N_1 .. N_D)`` to ``y (B, K, ceil(N_1 / stride) ..)``. Learnable parameters: ``3 C H + H K``,
    plus ``C K`` for P.

    Parameters
    ----------
    in_channels, out_channels
        C and K.
    stride
        Averages cells of this size at the end.
    spatial_dims
        D: 1, 2 or 3.
    hidden
        H, the number of features that are compared and gathered; by default half of C.
    subsample
        Max-pool ``phi`` and ``g`` over this many positions per axis, which lowers the cost.
    skip
        Use the skip connection, ``P x``.

    Examples
    --------
    >>> layer = torchsonic.baselines.NonLocal(8, 8, subsample=2)
    >>> layer(torch.randn(2, 8, 15, 24)).shape
    torch.Size([2, 8, 15, 24])

    References
    ----------
    Wang, Girshick, Gupta, He: Non-local neural networks. CVPR, 2018.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        stride: int | Sequence[int] = 1,
        *,
        spatial_dims: int = 2,
        hidden: int | None = None,
        subsample: int = 1,
        skip: bool = True,
    ) -> None:
        super().__init__(in_channels, out_channels, stride, spatial_dims=spatial_dims)
        self.hidden = max(1, in_channels // 2) if hidden is None else positive(hidden, "hidden")
        self.subsample = positive(subsample, "subsample")
        self.theta, self.phi, self.g = (self._make_pointwise(in_channels, self.hidden) for _ in range(3))
        self.out = self._make_pointwise(self.hidden, out_channels)
        self.skip = self._make_skip() if skip else None

    def _thinned(self, x: Tensor) -> Tensor:
        return x if self.subsample == 1 else MAX_POOLINGS[self.num_axes](x, self.subsample, ceil_mode=True)

    def forward(self, x: Tensor) -> Tensor:
        """Apply the layer: ``(B, C, N_1 .. N_D)`` to ``(B, K, ceil(N_1 / stride) ..)``."""
        self._check(x)
        parts = (self.theta(x), self._thinned(self.phi(x)), self._thinned(self.g(x)))
        # One head: kernels that never store all pairs of places want an axis for it.
        query, key, value = (part.flatten(2).mT.contiguous()[:, None] for part in parts)
        attended = F.scaled_dot_product_attention(query, key, value, scale=1.0)[:, 0]
        y = self.out(attended.mT.unflatten(2, x.shape[2:]))
        return self._pool(y if self.skip is None else y + self.skip(x)).to(x.dtype)

    def extra_repr(self) -> str:
        text = f"{super().extra_repr()}, hidden={self.hidden}"
        return text if self.subsample == 1 else f"{text}, subsample={self.subsample}"
