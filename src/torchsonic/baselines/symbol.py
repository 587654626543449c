"""What operators with a continuous, dense symbol share: they take the spacing and sample their symbol."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from torchsonic.baselines.circular_filter import half_size, mix_circularly
from torchsonic.baselines.operator import Operator, apply_by_spacing
from torchsonic.engine.call import without_autocast
from torchsonic.nn.physical_layer import SpacedLayer
from torchsonic.spectral.band import frequency_grid
from torchsonic.spectral.spacing import Spacing, as_spacing

__all__ = ["SymbolOperator"]


class SymbolOperator(Operator, SpacedLayer):
    r"""A dense, circular convolution given by a function of physical frequency.

    .. math:: \hat y(\omega) = \hat H(\omega)\,\hat x(\omega), \qquad \hat H(-\omega) = \overline{\hat H(\omega)}

    Subclasses implement ``symbol``. Shapes: ``x (B, C, N_1 .. N_D)`` to ``y (B, K, ceil(N_1 / stride) ..)``.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        stride: int | Sequence[int],
        *,
        spatial_dims: int,
        spacing: float | Sequence[float],
    ) -> None:
        super().__init__(in_channels, out_channels, stride, spatial_dims=spatial_dims)
        self._assume_spacing(spacing)

    def symbol(self, frequency: Tensor) -> Tensor:
        """``H`` at frequencies ``(P, D)`` in units of the reference Nyquist frequency: ``(K, C, P)``, complex."""
        raise NotImplementedError

    def response(
        self, size: Sequence[int], spacing: Spacing | None = None, *, dtype: torch.dtype = torch.float32
    ) -> Tensor:
        """The symbol on the half spectrum of a grid, ``(K, C, N_1 .. N_D // 2 + 1)``, complex."""
        device = next(self.parameters()).device
        steps = self.told(spacing)
        omega = frequency_grid(size, steps, half=True, dtype=dtype, device=device).flatten(0, -2)
        nyquist = torch.pi / torch.tensor(self.reference_spacing, dtype=dtype, device=device)
        return self.symbol(omega / nyquist).unflatten(-1, half_size(size))

    def coarsening(self, size: Sequence[int]) -> tuple[float, ...]:
        """Means of whole cells are exactly ``stride`` samples apart, whatever the size."""
        return tuple(float(s) for s in self.stride)

    def forward(self, x: Tensor, spacing: Spacing | None = None) -> Tensor:
        """Apply the layer.

        Parameters
        ----------
        x
            ``(B, C, N_1 .. N_D)``, real.
        spacing
            Physical step of ``x``: a number, one per axis, or ``(B, D)``. Defaults to the layer's spacing.

        Returns
        -------
        Tensor
            ``(B, K, ceil(N_1 / stride) ..)``, dtype of ``x``.
        """
        self._check(x)
        given = self.told(spacing)
        steps = as_spacing(given, self.num_axes, batch=x.shape[0], device=x.device)
        with without_autocast(x.device):
            y = apply_by_spacing(self._filter, x.to(self._work_dtype(x)), steps)
            return self._pool(y).to(x.dtype)

    def _filter(self, x: Tensor, steps: Tensor) -> Tensor:
        return mix_circularly(x, self.response(tuple(x.shape[2:]), steps, dtype=x.dtype))

    def extra_repr(self) -> str:
        text = super().extra_repr()
        plain = self.reference_spacing == (1.0,) * self.num_axes
        return text if plain else f"{text}, spacing={self.reference_spacing}"
