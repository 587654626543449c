"""SNO: a symbol in a fixed orthogonal basis."""

from __future__ import annotations

import itertools
import math
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from torchsonic.baselines.operator import SymbolOperator


class SNO(SymbolOperator):
    r"""A convolution whose symbol is a series of Chebyshev polynomials of frequency: global, dense, circular.

    .. math:: \hat H_{kc}(\omega) = \sum_{p} i^{\,|p| \bmod 2}\, S_{kcp} \prod_d P_{p_d}(\omega_d \Delta_d / \pi),
       \qquad p_d = 0 .. \text{degree}

    Even terms are real and odd ones imaginary, as for the symbol of a real kernel. Beyond the Nyquist frequency of the
    reference spacing, up to which the basis is orthogonal, the symbol keeps its value at the edge. This is how the
    SONIC paper interprets the spectral neural operator; the original maps Chebyshev coefficients of the *input* by a
    matrix, which is not a convolution. Shapes: ``x (B, C, N_1 .. N_D)`` to ``y (B, K, ceil(N_1 / stride) ..)``.
    Learnable parameters: ``K C (degree + 1)^D``.

    Parameters
    ----------
    degree
        Highest degree on each axis.
    shape, options
        As in :class:`~torchsonic.baselines.operator.SpacedOperator`. ``stride`` averages cells of this size after the
        filter.

    Examples
    --------
    >>> layer = torchsonic.baselines.SNO(8, 16, stride=2)
    >>> layer(torch.randn(2, 8, 31, 48)).shape
    torch.Size([2, 16, 16, 24])

    References
    ----------
    Fanaskov, Oseledets: Spectral neural operators. Doklady Mathematics, 2024.
    """

    shown: ClassVar = {"degree": -1}

    def __init__(self, *shape: Any, degree: int = 6, **options: Any) -> None:
        super().__init__(*shape, **options)
        if degree < 0:
            raise ValueError(f"degree must be at least 0, got {degree}")
        self.degree = degree
        sizes = (self.out_channels, self.in_channels, *[degree + 1] * self.num_axes)
        # A polynomial has a mean square of about 1/2 on each axis: white noise leaves with a variance of about 1.
        variance = 2**self.num_axes / (self.in_channels * (degree + 1) ** self.num_axes)
        self.coefficients = nn.Parameter(math.sqrt(variance) * torch.randn(sizes))

    def symbol(self, frequency: Tensor) -> Tensor:
        """``H`` at frequencies ``(P, D)`` in units of the reference Nyquist frequency: ``(K, C, P)``, complex."""
        angle = torch.acos(frequency.clamp(-1, 1))
        degrees = torch.arange(self.degree + 1, device=angle.device, dtype=angle.dtype)
        axes = torch.cos(degrees[:, None, None] * angle).unbind(-1)  # D times (degree + 1, P)
        basis = axes[0]
        for axis in axes[1:]:
            basis = (basis[:, None] * axis).flatten(0, 1)
        odd = [sum(p) % 2 == 1 for p in itertools.product(range(self.degree + 1), repeat=self.num_axes)]
        is_odd = torch.tensor(odd, device=angle.device)[:, None]
        values = self.coefficients.to(angle.dtype).flatten(2)
        return torch.complex(values @ basis.masked_fill(is_odd, 0), values @ basis.masked_fill(~is_odd, 0))
