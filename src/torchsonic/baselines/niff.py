"""NIFF: a filter whose Fourier transform is a small neural network of the frequency."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from torchsonic.arguments import positive
from torchsonic.baselines.circular_filter import filter_circularly, half_size, make_real
from torchsonic.baselines.operator import Depthwise
from torchsonic.engine.call import without_autocast
from torchsonic.spectral.band import frequency_grid


class FrequencyNetwork(nn.Sequential):
    """Linear layers with SiLU between them, from ``(D, P)`` frequencies to ``(C, P)`` values."""

    def __init__(self, widths: Sequence[int]) -> None:
        super().__init__(*[nn.Linear(a, b) for a, b in itertools.pairwise(widths)])

    def forward(self, input: Tensor) -> Tensor:
        # Channels come first, so that the last layer writes the filters in the order of the spectrum.
        values = input
        for i, layer in enumerate(self):
            assert isinstance(layer, nn.Linear)
            hidden = F.silu(values) if i > 0 else values
            weight, bias = layer.weight.to(input.dtype), layer.bias.to(input.dtype)
            values = torch.addmm(bias[:, None], weight, hidden)
        return values


class NIFF(Depthwise):
    r"""Neural implicit frequency filter: depthwise, global, circular.

    .. math:: y_c = \mathcal F^{-1}[F_c(\omega)\,\mathcal F[x_c](\omega)],
       \qquad F(\omega) = \mathrm{MLP}_1(\omega / \pi) + i\,\mathrm{MLP}_2(\omega / \pi)

    The networks see frequencies in units of the Nyquist frequency, so the filter follows the pixels and not the
    extent. They are evaluated on the half spectrum; the other half is its conjugate. Shapes: ``x (B, C, N_1 .. N_D)``
    to ``y (B, K, ceil(N_1 / stride) ..)``. Learnable parameters for two hidden layers of width 8 and 4:
    ``2 (8 D + 8 + 36 + 5 C)``, plus ``C K`` for the 1x1 convolution.

    Parameters
    ----------
    hidden
        Widths of the hidden layers of both networks.
    bins
        Let the networks see integer wavenumbers of either sign instead, and take the real part of the output, as in
        the script that SONIC's authors released; the filter then follows the extent.
    shape, options
        As in :class:`~torchsonic.baselines.operator.Depthwise`. ``stride`` averages cells of this size after the
        filter.

    Examples
    --------
    >>> layer = torchsonic.baselines.NIFF(8, 16, stride=2)
    >>> layer(torch.randn(2, 8, 31, 48)).shape
    torch.Size([2, 16, 16, 24])

    References
    ----------
    Grabinski, Keuper, Keuper: As large as it gets - studying infinitely large convolutions via neural implicit
    frequency filters. Transactions on Machine Learning Research, 2024.
    """

    def __init__(self, *shape: Any, hidden: Sequence[int] = (8, 4), bins: bool = False, **options: Any) -> None:
        super().__init__(*shape, **options)
        self.bins = bins
        widths = (self.num_axes, *[positive(width, "hidden") for width in hidden], self.in_channels)
        self.real, self.imaginary = FrequencyNetwork(widths), FrequencyNetwork(widths)

    def response(self, size: Sequence[int], *, dtype: torch.dtype = torch.float32) -> Tensor:
        """The filters on the half spectrum of a grid, ``(C, N_1 .. N_D // 2 + 1)``, complex."""
        device = next(self.parameters()).device
        steps = [2 * math.pi / n for n in size] if self.bins else [math.pi] * self.num_axes
        omega = frequency_grid(size, half=not self.bins, dtype=dtype, device=device)
        frequencies = (omega / omega.new_tensor(steps)).reshape(-1, self.num_axes).T
        values = torch.complex(self.real(frequencies), self.imaginary(frequencies))
        if not self.bins:
            return values.reshape(-1, *half_size(size))
        return make_real(values.reshape(-1, *size), size, whole=True)[..., : half_size(size)[-1]]

    def _run(self, x: Tensor) -> Tensor:
        dtype = self._work_dtype(x)
        with without_autocast(x.device):
            return self._pool(filter_circularly(x.to(dtype), self.response(x.shape[2:], dtype=dtype)))
