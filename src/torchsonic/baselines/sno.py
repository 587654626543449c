"""SNO: a symbol in a fixed orthogonal basis."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from torchsonic.baselines.symbol import SymbolOperator

__all__ = ["SNO"]


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
    in_channels, out_channels
        C and K.
    stride
        Averages cells of this size after the filter.
    spatial_dims
        D: 1, 2 or 3.
    degree
        Highest degree on each axis.
    spacing
        Reference spacing, a number or one per axis.

    Examples
    --------
    >>> layer = torchsonic.baselines.SNO(8, 16, stride=2)
    >>> layer(torch.randn(2, 8, 31, 48)).shape
    torch.Size([2, 16, 16, 24])

    References
    ----------
    Fanaskov, Oseledets: Spectral neural operators. Doklady Mathematics, 2024.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        stride: int | Sequence[int] = 1,
        *,
        spatial_dims: int = 2,
        degree: int = 6,
        spacing: float | Sequence[float] = 1.0,
    ) -> None:
        super().__init__(in_channels, out_channels, stride, spatial_dims=spatial_dims, spacing=spacing)
        if degree < 0:
            raise ValueError(f"degree must be at least 0, got {degree}")
        self.degree = degree
        shape = (out_channels, in_channels, *[degree + 1] * spatial_dims)
        # A polynomial has a mean square of about 1/2 on each axis: white noise leaves with a variance of about 1.
        variance = 2**spatial_dims / (in_channels * (degree + 1) ** spatial_dims)
        self.coefficients = nn.Parameter(math.sqrt(variance) * torch.randn(shape))

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

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, degree={self.degree}"
