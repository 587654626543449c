"""Spectral CNN: filters stored by their Fourier coefficients, and pooling that crops the spectrum."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from torchsonic.arguments import per_axis
from torchsonic.baselines.circular_filter import half_size, make_real
from torchsonic.baselines.operator import Operator
from torchsonic.functional import resample

CONVOLVE = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}


class SpectralCNN(Operator):
    r"""Convolution with a small kernel that is learned in the frequency domain, then spectral pooling.

    .. math:: y = \mathrm{crop}_{\text{band}}(w * x), \qquad w = \mathcal F^{-1}[\hat w]

    Zeros surround the input of the convolution. Pooling keeps the lowest frequencies: for ``N`` samples on an axis, the
    band of ``max(1, ceil(band N))``, or that of the output if it is smaller. An output with more samples shows the same
    band-limited field. Shapes: ``x (B, C, N_1 .. N_D)`` to ``y (B, K, ceil(N_1 / stride) ..)``. Learnable parameters:
    ``2 C K k^(D - 1) (k // 2 + 1)``, of which as many are independent as the kernel has taps.

    Parameters
    ----------
    kernel_size
        Odd kernel size, a number or one per axis.
    band
        Fraction of the frequencies on each axis that pooling keeps; with 1 and no stride there is no pooling.
    shape, options
        Channels, stride and axes, as in :class:`~torchsonic.baselines.operator.Operator`. ``stride`` is that of the
        output grid, without aliasing.

    Examples
    --------
    >>> layer = torchsonic.baselines.SpectralCNN(8, 16, stride=2)
    >>> layer(torch.randn(2, 8, 31, 48)).shape
    torch.Size([2, 16, 16, 24])

    References
    ----------
    Rippel, Snoek, Adams: Spectral representations for convolutional neural networks. NeurIPS, 2015.
    """

    shown: ClassVar = {"kernel_size": (), "band": 0}

    def __init__(self, *shape: Any, kernel_size: int | Sequence[int] = 5, band: float = 0.5, **options: Any) -> None:
        super().__init__(*shape, **options)
        self.kernel_size = per_axis(kernel_size, self.num_axes, "kernel_size")
        if any(n % 2 == 0 for n in self.kernel_size):
            raise ValueError(f"kernel_size must be odd, so that the kernel has a centre, got {kernel_size}")
        if not 0 < band <= 1:
            raise ValueError(f"band must be in (0, 1], got {band}")
        self.band = band
        sizes = (self.out_channels, self.in_channels, *half_size(self.kernel_size), 2)
        # Unit white noise leaves the convolution with a variance of about 1.
        self.spectrum = nn.Parameter(torch.randn(sizes) / math.sqrt(2 * self.in_channels))

    def kernel(self, *, dtype: torch.dtype = torch.float32) -> Tensor:
        """The filters in space, ``(K, C, *kernel_size)``, their origin in the middle."""
        axes = tuple(range(2, 2 + self.num_axes))
        spectrum = torch.view_as_complex(self.spectrum.to(dtype))
        real = make_real(spectrum.flatten(0, 1), self.kernel_size).unflatten(0, spectrum.shape[:2])
        return torch.fft.fftshift(torch.fft.irfftn(real, s=self.kernel_size, dim=axes), dim=axes)

    def _run(self, x: Tensor) -> Tensor:
        with torch.autocast(x.device.type, enabled=False):
            work = x.to(self._work_dtype(x))
            y = CONVOLVE[self.num_axes](
                work, self.kernel(dtype=work.dtype), padding=tuple(n // 2 for n in self.kernel_size)
            )
            target = self.output_size(x.shape[2:])
            kept = tuple(min(math.ceil(self.band * n), m) for n, m in zip(x.shape[2:], target, strict=True))
            return resample(resample(y, kept), target)
