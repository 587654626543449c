"""The first layers of a classifier, which bring an image of any spacing to the network's own grid."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

from torch import Tensor, nn

from torchsonic.arguments import choice
from torchsonic.models.reference_grid import ReferenceGrid, reference_size
from torchsonic.nn.bank import DEFAULT_FIELD
from torchsonic.nn.chain import SpacedSequential, walk
from torchsonic.nn.conv import make_sonic
from torchsonic.nn.network_spacing import place_behind
from torchsonic.nn.norm import Activation, Norm, make_activation, make_conv, make_norm
from torchsonic.nn.physical_layer import scale_spacing
from torchsonic.spectral.spacing import Spacing

Grid = Literal["reference", "input"]
STEM_MODES = 32
# Photographs have most of their power in the coarsest waves. With modes as long as the image and the mean left in, they
# drown the edges that a network learns from.
SHORT_MODES: Mapping[str, Any] = {"field": 4.0, "bank": {"shortest_decay": 0.5}, "standardise": True}


def field_of(grid: int) -> float:
    """Length in pixels of a layer's longest initial mode: the size of its grid, but no more than the default."""
    return min(float(grid), DEFAULT_FIELD[2])


class SonicStem(nn.Module):
    """A Sonic layer with a spectral stride.

    ``(B, C, *size)`` to ``(B, K, *grid)``. With ``grid="reference"`` the output is sampled at ``stride`` times the
    *reference* spacing, whatever the spacing of the input: two samplings of one band-limited field give the same
    features, here and in all later layers. With ``grid="input"`` it is ``stride`` times coarser than the input. Both
    evaluate the same continuous operator; they agree if the input has the reference spacing.

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
        options |= {"num_modes": num_modes, "spatial_dims": spatial_dims, "stride": stride}
        self.sonic = make_sonic(in_channels, out_channels, bias=False, **options)
        self.grid: Grid = choice(grid, ("reference", "input"), "grid")

    @property
    def stride(self) -> tuple[int, ...]:
        """Output spacing over reference spacing, per axis."""
        return self.sonic.stride

    def output_size(self, size: Sequence[int], spacing: Spacing | None = None) -> tuple[int, ...]:
        """Samples of the output for an input of the given size and spacing."""
        return self.first_size(size, self.told(spacing))

    def told(self, spacing: Spacing | None) -> Spacing:
        """Spacing, and orientation if there is one, of a call."""
        return self.sonic.told(spacing)

    def first_size(self, size: Sequence[int], given: Spacing) -> tuple[int, ...]:
        """Output size of the Sonic layer, on the chosen grid."""
        return self.sonic.output_size(size) if self.grid == "input" else reference_size(self.sonic, size, given)

    def walk(self, x: Tensor, spacing: Spacing | None) -> tuple[Tensor, Spacing | None]:
        """Apply the stem; return its output and the exact spacing of that."""
        given = self.told(spacing)
        size = tuple(x.shape[2:])
        out_size = self.first_size(size, given)
        y = self.sonic(x, given, out_size)
        return y, scale_spacing(given, [n / m for n, m in zip(size, out_size, strict=True)])

    def forward(self, x: Tensor, spacing: Spacing | None = None) -> Tensor:
        """Apply the stem to an image of the given spacing."""
        return self.walk(x, spacing)[0]


class DeepStem(SonicStem):
    """Two Sonic layers of stride 2 with a norm and a nonlinearity between them; ``(B, C, *size)`` to ``(B, K, *grid)``.

    One linear layer of stride 4 passes nothing finer than eight pixels of the reference grid, whatever it learns. Here
    the first layer keeps what is coarser than four, and the nonlinearity turns it into coarser features that the second
    keeps: where edges and textures are, instead of their waves. It acts on the grid that the first layer chose, so that
    with ``grid="reference"`` two samplings of one band-limited field still give the same features. Both layers
    standardise their input and start with short modes (``SHORT_MODES``); ``options`` can change this.

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
        options = {**SHORT_MODES, **options, "num_modes": num_modes, "spatial_dims": spatial_dims, "stride": 2}
        super().__init__(in_channels, out_channels, grid=grid, **options)
        self.norm = make_norm(norm, out_channels, spatial_dims)
        self.activation = make_activation(activation)
        self.second = make_sonic(out_channels, out_channels, bias=False, **options)
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


def make_stem(
    kind: str,
    in_channels: int,
    out_channels: int,
    *,
    num_modes: int = STEM_MODES,
    field: float,
    norm: Norm,
    activation: Activation = "gelu",
    **options: Any,
) -> nn.Module:
    """The stem of a classifier: ``local`` is a 7x7 convolution of stride 2 on the network's own grid, whatever the
    sampling of the image; ``deep`` a :class:`DeepStem`; any other name one Sonic layer of stride 4.

    Only that one layer uses the given modes and field; a local stem uses only grid and spacing.
    """
    if kind == "local":
        if (grid := options["grid"]) != "reference":
            raise ValueError(f"grid={grid!r} given, but this stem always uses grid='reference'; use stem='deep'")
        conv = make_conv(in_channels, out_channels, 7, spatial_dims=2, stride=2)
        return SpacedSequential(ReferenceGrid(spacing=options["spacing"]), conv)
    if kind == "deep":
        options |= {"norm": norm, "activation": activation}
        return DeepStem(in_channels, out_channels, num_modes=STEM_MODES, **options)
    return SonicStem(in_channels, out_channels, num_modes=num_modes, field=field, **options)
