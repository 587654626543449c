"""GFNet: a filter whose Fourier transform is learned bin by bin."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from torchsonic.arguments import choice, per_axis
from torchsonic.baselines.circular_filter import filter_circularly, half_size
from torchsonic.baselines.operator import Depthwise
from torchsonic.engine.call import without_autocast

INITIAL_STD = 0.02
GAUSSIAN_WIDTH, GAUSSIAN_NOISE = 0.4, 0.01
INTERPOLATION = {1: "linear", 2: "bicubic", 3: "trilinear"}


def _gaussian(shape: Sequence[int]) -> Tensor:
    """Real and imaginary part ``(*shape, 2)``: a Gaussian over rows from -1 to 1 and columns from 0 to 1."""
    axes = [torch.linspace(-1, 1, n) for n in shape[:-1]] + [torch.linspace(0, 1, shape[-1])]
    radius = torch.stack(torch.meshgrid(*axes, indexing="ij")).square().sum(0)
    bell = torch.exp(-radius / (2 * GAUSSIAN_WIDTH**2))
    return torch.stack([bell, torch.zeros_like(bell)], dim=-1)


class GFNet(Depthwise):
    r"""Global filter: depthwise, circular, one learned complex number for each channel and frequency bin.

    .. math:: y_c = \mathcal F^{-1}[M_c \odot \mathcal F[x_c]]

    The paper uses transforms with ``norm="ortho"``; the product of both transforms, and so the operator, is the same
    under any normalisation. Shapes: ``x (B, C, N_1 .. N_D)`` to ``y (B, K, ceil(N_1 / stride) ..)``. Learnable
    parameters in 2-D: ``2 C H (W // 2 + 1)`` for a grid ``(H, W)``, plus ``C K`` for the 1x1 convolution.

    Parameters
    ----------
    grid
        Size of the *output* for which the mask is learned, a number or one per axis. For other sizes the mask is
        interpolated as it is stored, real and imaginary part separately, with aligned corners: bicubic, or linear in
        one and three dimensions.
    initial
        Initialise the mask with small noise, or with a Gaussian around the middle of its *stored* rows, as in the
        script that SONIC's authors released. Rows are stored in FFT order, so such a mask passes low frequencies along
        the last axis and high ones along the others.
    shape, options
        As in :class:`~torchsonic.baselines.operator.Depthwise`. ``stride`` averages cells of this size before the
        filter, whose mask then lives on the smaller grid.

    Examples
    --------
    >>> layer = torchsonic.baselines.GFNet(8, 8, grid=(32, 24))
    >>> layer(torch.randn(2, 8, 32, 24)).shape
    torch.Size([2, 8, 32, 24])
    >>> layer(torch.randn(2, 8, 48, 17)).shape  # with an interpolated mask
    torch.Size([2, 8, 48, 17])

    References
    ----------
    Rao, Zhao, Zhu, Lu, Zhou: Global filter networks for image classification. NeurIPS, 2021.
    """

    shown: ClassVar = {"grid": ()}

    def __init__(
        self,
        *shape: Any,
        grid: int | Sequence[int] = 32,
        initial: Literal["noise", "gaussian"] = "noise",
        **options: Any,
    ) -> None:
        super().__init__(*shape, **options)
        self.grid = per_axis(grid, self.num_axes, "grid")
        noise = torch.randn(self.in_channels, *half_size(self.grid), 2)
        if choice(initial, ("noise", "gaussian"), "initial") == "noise":
            self.mask = nn.Parameter(INITIAL_STD * noise)
        else:
            self.mask = nn.Parameter(_gaussian(half_size(self.grid)) + GAUSSIAN_NOISE * noise)

    def response(self, size: Sequence[int], *, dtype: torch.dtype = torch.float32) -> Tensor:
        """The mask on the half spectrum of a grid, ``(C, N_1 .. N_D // 2 + 1)``, complex."""
        mask = self.mask.to(dtype)
        shape = half_size(size)
        if shape != half_size(self.grid):
            # Rows stay in the order of the transform, as in the authors' own change of resolution.
            mode = INTERPOLATION[self.num_axes]
            parts = F.interpolate(mask.movedim(-1, 0), size=shape, mode=mode, align_corners=True)
            mask = parts.movedim(0, -1).contiguous()
        return torch.view_as_complex(mask)

    def _run(self, x: Tensor) -> Tensor:
        dtype = self._work_dtype(x)
        with without_autocast(x.device):
            pooled = self._pool(x.to(dtype))
            return filter_circularly(pooled, self.response(pooled.shape[2:], dtype=dtype))
