"""The first layer of a classifier: from any sampling of an image to the network's own grid."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from torchsonic.arguments import check_samples, choice
from torchsonic.engine.lowering import is_symbolic, lowering
from torchsonic.functional.resample import resample
from torchsonic.nn.bank import DEFAULT_FIELD
from torchsonic.nn.chain import SpacedSequential, walk
from torchsonic.nn.conv import make_sonic
from torchsonic.nn.network_spacing import place_behind
from torchsonic.nn.norm import Activation, Norm, make_activation, make_conv, make_norm
from torchsonic.nn.physical_layer import SpacedLayer, batch_spacing, scale_spacing
from torchsonic.spectral.spacing import ANY_BATCH, Spacing, as_spacing, spacing_values

__all__ = ["STEM_MODES", "DeepStem", "Grid", "ReferenceGrid", "SonicStem", "field_of", "local_stem"]

Grid = Literal["reference", "input"]
# Relative. A field of a whole number of cells must not gain one by rounding, of spacings in single precision either.
ROUNDING = 1e-6
# A spacing in the wrong unit must not fill the memory; grids of so few samples cannot, however small the image.
MOST_REFINEMENT, SMALL_GRID = 4, 512**2
STEM_MODES = 32
# Photographs have most of their power in the coarsest waves. With modes as long as the image and the mean left in, they
# drown the edges that a network learns from.
SHORT_MODES: Mapping[str, Any] = {"field": 4.0, "bank": {"shortest_decay": 0.5}, "standardise": True}


def field_of(grid: int) -> float:
    """Pixels that the longest initial mode of a layer covers: its grid, and not more than it would by default."""
    return min(float(grid), DEFAULT_FIELD[2])


def _reference_size(layer: SpacedLayer, size: Sequence[int], given: Spacing) -> tuple[int, ...]:
    """Samples at a layer's stride times its reference spacing, for an input of the given size and spacing."""
    reference = layer.reference_spacing
    if isinstance(given, Tensor):
        if lowering() is not None:
            raise ValueError(
                "the stem chooses its grid by the spacing (grid='reference'), so an exported model cannot take "
                "it as an input; export with a fixed spacing, or build the model with grid='input' and stem='deep'"
            )
        # Samples of a batch share one grid, on which none of them may lose what it would have alone.
        steps = as_spacing(given, len(size), batch=ANY_BATCH).amax(0).tolist()
    else:
        steps = spacing_values(given, len(size))
    if tuple(steps) == reference:
        return SpacedLayer.output_size(layer, size)
    if lowering() is not None and is_symbolic(tuple(size)):
        raise ValueError(
            f"with grid='reference' sizes can be dynamic only at the reference spacing {reference}, got spacing "
            f"{tuple(steps)}; export with fixed sizes, or build the model with grid='input' and stem='deep'"
        )
    whole = zip(size, steps, reference, layer.stride, strict=True)
    counts = tuple(max(1, math.ceil((1 - ROUNDING) * n * step / (ref * by))) for n, step, ref, by in whole)
    refined = any(count > MOST_REFINEMENT * n for n, count in zip(size, counts, strict=True))
    if refined and math.prod(counts) > SMALL_GRID:
        raise ValueError(
            f"spacing {tuple(steps)} is so far above the reference {reference} that grid='reference' would blow an "
            f"image of {tuple(size)} up to {counts}; use grid='input' and stem='deep'"
        )
    return counts


class ReferenceGrid(SpacedLayer):
    """Resample an image onto the network's own grid, exactly; ``(B, C, *size)`` to ``(B, C, *grid)``.

    Layers behind it may count pixels: two samplings of one band-limited image are the same to them.

    Parameters
    ----------
    spacing
        Of the network's grid; images that are told no spacing have this one and stay as they are.

    Examples
    --------
    >>> to_grid = torchsonic.models.ReferenceGrid()
    >>> to_grid(torch.randn(1, 3, 128, 96), spacing=(0.5, 1.0)).shape
    torch.Size([1, 3, 64, 96])
    """

    def __init__(self, *, spatial_dims: int = 2, spacing: float | Sequence[float] = 1.0) -> None:
        super().__init__()
        self.num_axes = choice(spatial_dims, (1, 2, 3), "spatial_dims")
        self.stride = (1,) * spatial_dims
        self._assume_spacing(spacing)

    def output_size(self, size: Sequence[int], spacing: Spacing | None = None) -> tuple[int, ...]:
        """Samples of the network's grid for an image of the given size and spacing."""
        return _reference_size(self, size, self._spacing if spacing is None else batch_spacing(spacing))

    def output_spacing(self, size: Sequence[int], spacing: Spacing | None = None) -> Tensor:
        """Spacing of the network's grid, ``(1, D)`` or ``(B, D)``: at most the reference, as it fills the image."""
        steps = as_spacing(self._spacing if spacing is None else spacing, self.num_axes, batch=ANY_BATCH)
        return steps * torch.tensor(self.coarsening(size, spacing), dtype=steps.dtype, device=steps.device)

    def coarsening(self, size: Sequence[int], spacing: Spacing | None = None) -> tuple[float, ...]:
        """Output spacing over input spacing; the image and the network's grid cover the same extent."""
        return tuple(n / m for n, m in zip(size, self.output_size(size, spacing), strict=True))

    def walk(self, x: Tensor, spacing: Spacing | None) -> tuple[Tensor, Spacing | None]:
        """Resample the image; return it and its spacing."""
        check_samples(x, self.num_axes, None, type(self).__name__)
        given = self._spacing if spacing is None else batch_spacing(spacing)
        if isinstance(given, Tensor) and lowering() is None:
            self._check_batch(as_spacing(given, self.num_axes, batch=x.shape[0]))
        size = tuple(x.shape[2:])
        out_size = self.output_size(size, given)
        y = x if out_size == size else resample(x, out_size)
        return y, scale_spacing(given, [n / m for n, m in zip(size, out_size, strict=True)])

    def _check_batch(self, rows: Tensor) -> None:
        """Refuse samples of different spacings ``(B, D)``: layers behind that count pixels would not know."""
        if not torch.equal(rows, rows[:1].expand_as(rows)):
            raise ValueError(
                f"samples of a batch have different spacings, between {rows.amin(0).tolist()} and "
                f"{rows.amax(0).tolist()}, and so no grid in common for a stem that counts pixels; call the model "
                "for each spacing, or build it with stem='deep'"
            )

    def forward(self, x: Tensor, spacing: Spacing | None = None) -> Tensor:
        """Resample an image of the given spacing."""
        return self.walk(x, spacing)[0]

    def extra_repr(self) -> str:
        return f"spacing={self.reference_spacing}"


def local_stem(
    in_channels: int, out_channels: int, *, grid: Grid = "reference", spacing: float | Sequence[float] = 1.0
) -> SpacedSequential:
    """A 7x7 convolution of stride 2 on the network's own grid, whatever the sampling of the image."""
    if grid != "reference":
        raise ValueError(f"grid={grid!r} given, but a local stem counts pixels of grid='reference'; use stem='deep'")
    return SpacedSequential(
        ReferenceGrid(spacing=spacing), make_conv(in_channels, out_channels, 7, spatial_dims=2, stride=2)
    )


class SonicStem(nn.Module):
    """A Sonic layer with a spectral stride.

    ``(B, C, *size)`` to ``(B, K, *grid)``. With ``grid="reference"`` the output is sampled at ``stride`` times the
    *reference* spacing, whatever the spacing of the input: two samplings of one band-limited field give the same
    features, here and in everything behind. With ``grid="input"`` it is ``stride`` times coarser than the input. Both
    are one evaluation of the same continuous operator; they agree when the input has the reference spacing.

    Examples
    --------
    >>> stem = torchsonic.models.SonicStem(3, 8)
    >>> stem(torch.randn(1, 3, 64, 64)).shape, stem(torch.randn(1, 3, 128, 128), spacing=0.5).shape
    (torch.Size([1, 8, 16, 16]), torch.Size([1, 8, 16, 16]))
    """

    takes_spacing: ClassVar[bool] = True

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        *,
        num_modes: int | None = None,
        stride: int = 4,
        spatial_dims: int = 2,
        grid: Grid = "reference",
        **options: Any,
    ) -> None:
        super().__init__()
        self.sonic = make_sonic(
            in_channels,
            out_channels,
            num_modes=num_modes,
            spatial_dims=spatial_dims,
            stride=stride,
            bias=False,
            **options,
        )
        self.grid: Grid = choice(grid, ("reference", "input"), "grid")

    @property
    def stride(self) -> tuple[int, ...]:
        """Output spacing over reference spacing, per axis."""
        return self.sonic.stride

    def output_size(self, size: Sequence[int], spacing: Spacing | None = None) -> tuple[int, ...]:
        """Samples of the output for an input of the given size and spacing."""
        return self._sonic_size(size, self.sonic.spacing if spacing is None else batch_spacing(spacing))

    def _sonic_size(self, size: Sequence[int], given: Spacing) -> tuple[int, ...]:
        """Samples behind the Sonic layer, on the grid that was chosen."""
        return self.sonic.output_size(size) if self.grid == "input" else _reference_size(self.sonic, size, given)

    def walk(self, x: Tensor, spacing: Spacing | None) -> tuple[Tensor, Spacing | None]:
        """Apply the stem; return its output and the exact spacing of that."""
        given = self.sonic.spacing if spacing is None else batch_spacing(spacing)
        size = tuple(x.shape[2:])
        out_size = self._sonic_size(size, given)
        y = self.sonic(x, given, out_size)
        return y, scale_spacing(given, [n / m for n, m in zip(size, out_size, strict=True)])

    def forward(self, x: Tensor, spacing: Spacing | None = None) -> Tensor:
        """Apply the stem to an image of the given spacing."""
        return self.walk(x, spacing)[0]


class DeepStem(SonicStem):
    """Two Sonic layers of stride 2 with a norm and a nonlinearity between them; ``(B, C, *size)`` to ``(B, K, *grid)``.

    One linear layer of stride 4 passes nothing finer than eight pixels of the reference grid, whatever it learns. Here
    the first layer keeps what is coarser than four, and the nonlinearity folds it into what the second keeps: where
    edges and textures are, in place of their waves. It acts on the grid that the first layer chose, so that with
    ``grid="reference"`` two samplings of one band-limited field still give the same features. Both layers standardise
    their input and begin with short modes (``SHORT_MODES``), which ``options`` may change.

    Examples
    --------
    >>> stem = torchsonic.models.DeepStem(3, 8)
    >>> stem(torch.randn(1, 3, 64, 64)).shape, stem(torch.randn(1, 3, 128, 128), spacing=0.5).shape
    (torch.Size([1, 8, 16, 16]), torch.Size([1, 8, 16, 16]))
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        *,
        num_modes: int | None = None,
        spatial_dims: int = 2,
        norm: Norm = "group",
        activation: Activation = "gelu",
        grid: Grid = "reference",
        **options: Any,
    ) -> None:
        options = {**SHORT_MODES, **options}
        super().__init__(
            in_channels, out_channels, num_modes=num_modes, stride=2, spatial_dims=spatial_dims, grid=grid, **options
        )
        self.norm = make_norm(norm, out_channels, spatial_dims)
        self.activation = make_activation(activation)
        self.second = make_sonic(
            out_channels, out_channels, num_modes=num_modes, spatial_dims=spatial_dims, stride=2, bias=False, **options
        )
        place_behind(self.second, 2)

    @property
    def stride(self) -> tuple[int, ...]:
        """Output spacing over reference spacing, per axis."""
        return tuple(2 * step for step in super().stride)

    def output_size(self, size: Sequence[int], spacing: Spacing | None = None) -> tuple[int, ...]:
        """Samples of the output for an input of the given size and spacing."""
        return self.second.output_size(super().output_size(size, spacing))

    def walk(self, x: Tensor, spacing: Spacing | None) -> tuple[Tensor, Spacing | None]:
        """Apply the stem; return its output and the exact spacing of that."""
        x, spacing = super().walk(x, spacing)
        return walk(self.second, self.activation(self.norm(x)), spacing)
