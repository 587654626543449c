"""FNO: dense matrices for the lowest wavenumbers, zero for all others."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from torchsonic.arguments import per_axis
from torchsonic.baselines.operator import Operator
from torchsonic.engine.call import without_autocast


class FNO(Operator):
    r"""The linear part of a layer of the Fourier neural operator: truncated, dense, circular.

    .. math:: y = W x + \mathcal F^{-1}[R_k\,\mathcal F[x]_k], \qquad R_k = 0 \text{ unless } |k_d| < k_{\max}

    Wavenumbers ``k`` count periods of the *image*, so a matrix belongs to a wavelength relative to the extent: a field
    sampled more finely gives the same output field, but a larger image with the same pixels sees another operator. A
    small grid uses the wavenumbers below its Nyquist frequency. Shapes: ``x (B, C, N_1 .. N_D)`` to
    ``y (B, K, ceil(N_1 / stride) ..)``. Learnable parameters: ``2 K C k_max (2 k_max - 1)^(D - 1)``, plus ``C K`` for
    W.

    Parameters
    ----------
    num_wavenumbers
        ``k_max``, a number or one per axis; the original keeps 12 in two dimensions.
    pointwise
        Use W; without it, nothing above ``k_max`` passes.
    shape, options
        Channels, stride and axes, as in :class:`~torchsonic.baselines.operator.Operator`. ``stride`` averages cells of
        this size after the filter.

    Examples
    --------
    >>> layer = torchsonic.baselines.FNO(8, 16, stride=2, num_wavenumbers=6)
    >>> layer(torch.randn(2, 8, 31, 48)).shape
    torch.Size([2, 16, 16, 24])

    References
    ----------
    Li, Kovachki, Azizzadenesheli, Liu, Bhattacharya, Stuart, Anandkumar: Fourier neural operator for parametric
    partial differential equations. ICLR, 2021.
    """

    shown: ClassVar = {"num_wavenumbers": ()}

    def __init__(
        self, *shape: Any, num_wavenumbers: int | Sequence[int] = 8, pointwise: bool = True, **options: Any
    ) -> None:
        super().__init__(*shape, **options)
        self.num_wavenumbers = per_axis(num_wavenumbers, self.num_axes, "num_wavenumbers")
        in_channels, out_channels = self.in_channels, self.out_channels
        *others, last = self.num_wavenumbers
        # Wavenumbers of both signs but on the last axis, whose negative ones are the conjugates.
        sizes = (out_channels, in_channels, *[2 * n - 1 for n in others], last, 2)
        self.weight = nn.Parameter(torch.randn(sizes) / math.sqrt(2 * in_channels))  # a kept coefficient has gain 1
        self.pointwise = self._make_pointwise(in_channels, out_channels) if pointwise else None

    def matrices(self, size: Sequence[int], *, dtype: torch.dtype = torch.float32) -> Tensor:
        """``R`` at the wavenumbers that a grid has, ascending, ``(K, C, 2 r_1 + 1, .., r_D + 1)``, complex."""
        *others, last = self._reach(size)
        middle = [slice(n - 1 - r, n + r) for n, r in zip(self.num_wavenumbers, others, strict=False)]
        chosen = torch.view_as_complex(self.weight.to(dtype)[(..., *middle, slice(0, last + 1), slice(None))])
        # At 0 on the last axis both signs of the others are stored and must be conjugate to each other.
        flat = chosen[..., :1]
        flat = (flat + flat.conj().flip(tuple(range(2, 1 + self.num_axes)))) / 2
        return torch.cat([flat, chosen[..., 1:]], dim=-1)

    def _reach(self, size: Sequence[int]) -> list[int]:
        """Largest wavenumber on each axis: kept, and below the Nyquist frequency."""
        return [min(kept - 1, (n - 1) // 2) for kept, n in zip(self.num_wavenumbers, size, strict=True)]

    def _filter(self, x: Tensor) -> Tensor:
        size, axes = tuple(x.shape[2:]), tuple(range(2, x.dim()))
        *others, last = self._reach(size)
        places = [torch.arange(-r, r + 1, device=x.device) % n for r, n in zip(others, size, strict=False)]
        spectrum = torch.fft.rfftn(x, dim=axes)[..., : last + 1]
        for axis, place in enumerate(places, start=2):
            spectrum = spectrum.index_select(axis, place)
        mixed = torch.einsum("kc...,bc...->bk...", self.matrices(size, dtype=x.dtype), spectrum)
        for axis, place in enumerate(places, start=2):
            whole = mixed.new_zeros(*mixed.shape[:axis], size[axis - 2], *mixed.shape[axis + 1 :])
            mixed = whole.index_copy(axis, place, mixed)
        return torch.fft.irfftn(mixed, s=size, dim=axes)  # fills the rest of the last axis with zeros

    def _run(self, x: Tensor) -> Tensor:
        with without_autocast(x.device):
            y = self._pool(self._filter(x.to(self._work_dtype(x)))).to(x.dtype)
        return y if self.pointwise is None else y + self.pointwise(self._pool(x)).to(x.dtype)
