"""Continuous FNO: dense matrices that a small neural network gives for any frequency."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from torchsonic.arguments import positive
from torchsonic.baselines.niff import FrequencyNetwork
from torchsonic.baselines.operator import SymbolOperator


class ContinuousFNO(SymbolOperator):
    r"""A Fourier layer whose matrices are a neural network of the physical frequency: global, dense, circular.

    .. math:: \hat y(\omega) = \hat H(\omega)\,\hat x(\omega), \qquad
       \hat H(\omega) = \tfrac12 [G(\omega) + \overline{G(-\omega)}], \quad G = \mathrm{MLP}_1 + i\,\mathrm{MLP}_2

    with ``G (K, C)``; only the symmetric part acts on real fields. The networks see ``omega`` in units of the Nyquist
    frequency of the reference spacing, so a layer that is told the spacing is the same on every grid. Shapes:
    ``x (B, C, N_1 .. N_D)`` to ``y (B, K, ceil(N_1 / stride) ..)``. Learnable parameters for hidden layers of width 16
    and 16: ``2 (16 D + 16 + 272 + 17 C K)``.

    Parameters
    ----------
    hidden
        Widths of the hidden layers of both networks.
    shape, options
        As in :class:`~torchsonic.baselines.operator.SpacedOperator`. ``stride`` averages cells of this size after the
        filter.

    Examples
    --------
    >>> layer = torchsonic.baselines.ContinuousFNO(8, 8)
    >>> layer(torch.randn(2, 8, 31, 48)).shape
    torch.Size([2, 8, 31, 48])
    >>> layer(torch.randn(2, 8, 62, 96), spacing=0.5).shape  # the same field, sampled twice as finely
    torch.Size([2, 8, 62, 96])

    References
    ----------
    Kabri, Roith, Tenbrinck, Burger: Resolution-invariant image classification based on Fourier neural operators. SSVM,
    2023. For filters as networks of frequency: Grabinski, Keuper, Keuper, TMLR, 2024.
    """

    def __init__(self, *shape: Any, hidden: Sequence[int] = (16, 16), **options: Any) -> None:
        super().__init__(*shape, **options)
        pairs = self.in_channels * self.out_channels
        widths = (self.num_axes, *[positive(width, "hidden") for width in hidden], pairs)
        self.real, self.imaginary = FrequencyNetwork(widths), FrequencyNetwork(widths)
        with torch.no_grad():  # so that the sum over channels does not grow with their number
            for network in (self.real, self.imaginary):
                for parameter in network[-1].parameters():
                    parameter.mul_(2 / math.sqrt(self.in_channels))

    def symbol(self, frequency: Tensor) -> Tensor:
        """``H`` at frequencies ``(P, D)`` in units of the reference Nyquist frequency: ``(K, C, P)``, complex."""
        both = torch.cat([frequency, -frequency]).T
        (real, mirrored_real), (imaginary, mirrored_imaginary) = (
            network(both).chunk(2, dim=-1) for network in (self.real, self.imaginary)
        )
        values = torch.complex(real + mirrored_real, imaginary - mirrored_imaginary) / 2
        return values.unflatten(0, (self.out_channels, self.in_channels))
