"""Blocks in which every place looks at all others, by what they hold and not by where they are."""

from __future__ import annotations

from typing import Any, ClassVar

import torch.nn.functional as F
from torch import Tensor, nn

from torchsonic.arguments import positive
from torchsonic.baselines.operator import Operator

MAX_POOLINGS = {1: F.max_pool1d, 2: F.max_pool2d, 3: F.max_pool3d}


class Attention(Operator):
    """What both share: a 1x1 convolution of what was fetched, a path round it, and cells averaged at the end.

    Parameters
    ----------
    skip
        Have the path round, ``P x``.
    shape, options
        Channels, stride and axes, as of :class:`~torchsonic.baselines.operator.Operator`.
    """

    hidden: int

    def _make_ends(self, skip: bool) -> None:
        self.out = self._make_pointwise(self.hidden, self.out_channels)
        self.skip: nn.Module | None = None
        if skip:
            channels = self.in_channels, self.out_channels
            self.skip = nn.Identity() if channels[0] == channels[1] else self._make_pointwise(*channels)

    def _behind(self, x: Tensor, fetched: Tensor) -> Tensor:
        """The output for what each place fetched, ``(B, H, N)``."""
        y = self.out(fetched.unflatten(2, x.shape[2:]))
        return self._pool(y if self.skip is None else y + self.skip(x))


class NonLocal(Attention):
    r"""Self-attention over all places, embedded Gaussian, with a path round it.

    .. math:: y_i = P\,x_i + W \sum_j \mathrm{softmax}_j(\theta(x_i)^\top \phi(x_j))\, g(x_j)

    ``theta``, ``phi``, ``g`` and ``W`` are 1x1 convolutions; ``P`` is the identity, or one, too, where C and K differ.
    The operator is not linear, and knows no direction: any reordering of the places reorders the output. Shapes:
    ``x (B, C, N_1 .. N_D)`` to ``y (B, K, ceil(N_1 / stride) ..)``. Learnable reals: ``3 C H + H K``, and ``C K`` for
    P.

    Parameters
    ----------
    hidden
        H, features that are compared and fetched; by default half of C.
    subsample
        Take the largest of so many places per axis for ``phi`` and ``g``, which divides the cost.
    skip, shape, options
        As of :class:`Attention`.

    Examples
    --------
    >>> layer = torchsonic.baselines.NonLocal(8, 8, subsample=2)
    >>> layer(torch.randn(2, 8, 15, 24)).shape
    torch.Size([2, 8, 15, 24])

    References
    ----------
    Wang, Girshick, Gupta, He: Non-local neural networks. CVPR, 2018.
    """

    shown: ClassVar = {"hidden": 0, "subsample": 1}

    def __init__(
        self, *shape: Any, hidden: int | None = None, subsample: int = 1, skip: bool = True, **options: Any
    ) -> None:
        super().__init__(*shape, **options)
        self.hidden = max(1, self.in_channels // 2) if hidden is None else positive(hidden, "hidden")
        self.subsample = positive(subsample, "subsample")
        self.theta, self.phi, self.g = (self._make_pointwise(self.in_channels, self.hidden) for _ in range(3))
        self._make_ends(skip)

    def _thinned(self, x: Tensor) -> Tensor:
        return x if self.subsample == 1 else MAX_POOLINGS[self.num_axes](x, self.subsample, ceil_mode=True)

    def _run(self, x: Tensor) -> Tensor:
        parts = (self.theta(x), self._thinned(self.phi(x)), self._thinned(self.g(x)))
        # One head: kernels that never store all pairs of places want an axis for it.
        query, key, value = (part.flatten(2).mT.contiguous()[:, None] for part in parts)
        attended = F.scaled_dot_product_attention(query, key, value, scale=1.0)[:, 0]
        return self._behind(x, attended.mT)


class DoubleAttention(Attention):
    r"""The block of A2-Nets, with a path round it.

    .. math:: G_{hn} = \sum_j \mathrm{softmax}_j(\theta(x)_{nj})\, \phi(x)_{hj}, \qquad
       y_i = P\,x_i + W \sum_n G_{\cdot n}\, \mathrm{softmax}_n(\rho(x)_{ni})

    ``theta``, ``phi``, ``rho`` and ``W`` are 1x1 convolutions; ``P`` is the identity, or one, too, where C and K
    differ. The cost is linear in the number of places. The operator is not linear, and knows no direction. Shapes:
    ``x (B, C, N_1 .. N_D)`` to ``y (B, K, ceil(N_1 / stride) ..)``. Learnable reals: ``C (H + 2 n) + H K``, and ``C K``
    for P.

    Parameters
    ----------
    hidden
        H, features that are gathered; by default a quarter of C, and at least 2.
    num_maps
        n, descriptors; likewise.
    skip, shape, options
        As of :class:`Attention`.

    Examples
    --------
    >>> layer = torchsonic.baselines.DoubleAttention(8, 16, stride=2)
    >>> layer(torch.randn(2, 8, 31, 48)).shape
    torch.Size([2, 16, 16, 24])

    References
    ----------
    Chen, Kalantidis, Li, Yan, Feng: A2-Nets: double attention networks. NeurIPS, 2018.
    """

    shown: ClassVar = {"hidden": 0, "num_maps": 0}

    def __init__(
        self, *shape: Any, hidden: int | None = None, num_maps: int | None = None, skip: bool = True, **options: Any
    ) -> None:
        super().__init__(*shape, **options)
        quarter = max(2, self.in_channels // 4)
        self.hidden = quarter if hidden is None else positive(hidden, "hidden")
        self.num_maps = quarter if num_maps is None else positive(num_maps, "num_maps")
        self.phi = self._make_pointwise(self.in_channels, self.hidden)
        self.theta, self.rho = (self._make_pointwise(self.in_channels, self.num_maps) for _ in range(2))
        self._make_ends(skip)

    def _run(self, x: Tensor) -> Tensor:
        features, gather, share = (layer(x).flatten(2) for layer in (self.phi, self.theta, self.rho))
        descriptors = features @ gather.softmax(dim=2).to(features.dtype).mT
        return self._behind(x, descriptors @ share.softmax(dim=1).to(features.dtype))
