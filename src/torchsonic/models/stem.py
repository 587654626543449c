"""The first layer of a classifier: from any sampling of an image to the network's own grid."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Literal

from torch import Tensor, nn

from torchsonic.functional.arguments import choice
from torchsonic.functional.frequency import ANY_BATCH, Spacing, as_spacing, spacing_values
from torchsonic.nn.conv import make_sonic
from torchsonic.nn.spaced import scale_spacing

__all__ = ["Grid", "SonicStem"]

Grid = Literal["reference", "input"]


class SonicStem(nn.Module):
    """A Sonic layer with a spectral stride.

    ``(B, C, *size)`` to ``(B, K, *grid)``. With ``grid="reference"`` the output is sampled at ``stride`` times the
    *reference* spacing, whatever the spacing of the input: two samplings of one band-limited field give the same
    features, here and in everything behind. With ``grid="input"`` it is ``stride`` times coarser than the input. Both
    are one evaluation of the same continuous operator; they agree when the input has the reference spacing.
    """

    takes_spacing: ClassVar[bool] = True

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        num_modes: int | None = None,
        *,
        stride: int = 4,
        spatial_dims: int = 2,
        grid: Grid = "reference",
        **options: Any,
    ) -> None:
        super().__init__()
        self.sonic = make_sonic(
            in_channels, out_channels, num_modes, spatial_dims=spatial_dims, stride=stride, bias=False, **options
        )
        self.grid: Grid = choice(grid, ("reference", "input"), "grid")

    @property
    def stride(self) -> tuple[int, ...]:
        """Output spacing over reference spacing, per axis."""
        return self.sonic.stride

    def _is_reference(self, given: Spacing) -> bool:
        reference = self.sonic.reference_spacing
        return not isinstance(given, Tensor) and spacing_values(given, len(reference)) == reference

    def output_size(self, size: Sequence[int], spacing: Spacing | None = None) -> tuple[int, ...]:
        """Samples of the output for an input of the given size and spacing."""
        given = self.sonic.spacing if spacing is None else spacing
        if self.grid == "input" or self._is_reference(given):
            return self.sonic.output_size(size)
        if isinstance(given, Tensor):
            # Samples of a batch share one grid: that of their mean spacing.
            steps = as_spacing(given, len(size), batch=ANY_BATCH).log().mean(0).exp().tolist()
        else:
            steps = spacing_values(given, len(size))
        return tuple(
            max(1, round(n * step / (reference * stride)))
            for n, step, reference, stride in zip(
                size, steps, self.sonic.reference_spacing, self.sonic.stride, strict=True
            )
        )

    def walk(self, x: Tensor, spacing: Spacing | None) -> tuple[Tensor, Spacing | None]:
        """Apply the stem; return its output and its spacing, ``None`` if that is what the layers behind assume."""
        given = self.sonic.spacing if spacing is None else spacing
        size = tuple(x.shape[2:])
        out_size = self.output_size(size, given)
        y = self.sonic(x, given, out_size)
        if self._is_reference(given):
            return y, None
        return y, scale_spacing(given, [n / m for n, m in zip(size, out_size, strict=True)])

    def forward(self, x: Tensor, spacing: Spacing | None = None) -> Tensor:
        """Apply the stem to an image of the given spacing."""
        return self.walk(x, spacing)[0]
