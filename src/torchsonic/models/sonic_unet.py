"""SonicUNet: a segmentation network of Sonic blocks on fine and coarse grids, in 1, 2 or 3 dimensions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from torch import Tensor, nn

from torchsonic.arguments import check_samples, positive
from torchsonic.functional.resample import resample
from torchsonic.models.pretrained import PretrainedModel
from torchsonic.models.reference_grid import OctaveGrid, run_per_grid
from torchsonic.models.sonicnet import MARGIN, border_options
from torchsonic.nn.bank import Variant
from torchsonic.nn.block import SonicBlock
from torchsonic.nn.chain import SpacedSequential, walk
from torchsonic.nn.network_spacing import place_behind
from torchsonic.nn.norm import Norm, make_activation, make_conv, make_norm
from torchsonic.spectral.boundary import PaddingMode
from torchsonic.spectral.spacing import Spacing, spacing_values

COARSE = 2.0
"""Axes coarser than the finest by this factor are not halved, which would lose thick slices."""


def halving_strides(spacing: Sequence[float], levels: int) -> list[tuple[int, ...]]:
    """Strides into each level: 2 along the axes that are about as fine as the finest at that level.

    Examples
    --------
    >>> halving_strides((10.0, 1.4, 1.4), 4)
    [(1, 2, 2), (1, 2, 2), (2, 2, 2), (2, 2, 2)]
    """
    steps, strides = list(spacing), []
    for _ in range(levels):
        strides.append(tuple(2 if step < COARSE * min(steps) else 1 for step in steps))
        steps = [step * stride for step, stride in zip(steps, strides[-1], strict=True)]
    return strides


class SonicUNet(PretrainedModel):
    r"""Sonic blocks on coarser and coarser grids and back: ``(B, C, *size)`` to logits ``(B, num_classes, *size)``.

    ::

        image -> block 0, stride ------------------------------------> + -> head -> logits, on the image's grid
                   -> block 1, stride -----------------> + -> block ---^
                        -> block 2, stride -> block -----^

    A stride crops the spectrum along the axes that are about as fine as the finest. The way back is a 1x1 projection
    and band-limited interpolation, added to the features of the level. The finest level, half as fine as the image,
    has most of the voxels and therefore few channels and modes: one block, of which only the input is kept for the
    backward pass, and two 1x1 convolutions as the head. If told the spacing, the network gives the same answer at
    samplings that differ by powers of two (:class:`OctaveGrid`) and a similar one in between: only a local branch
    depends on voxels. Samples of a batch whose spacings need different grids are computed in turn.

    Parameters
    ----------
    in_channels, num_classes
        Channels of images and of logits.
    widths, num_modes
        Channels and modes of the blocks of each level, from fine to coarse.
    norm, mlp_ratio, local_kernel
        Options of the blocks, see :class:`torchsonic.nn.SonicBlock`; the finest level has no local branch.
    spacing
        Reference spacing, for example the median voxel size of the training set; determines which axes are halved.
    field
        Length of each level's longest initial modes, in voxels of that level.
    padding, padding_mode, variant
        As in :class:`SonicNet`.

    Examples
    --------
    >>> model = torchsonic.create_model("sonicunet3d", in_channels=1, num_classes=4, spacing=(10.0, 1.4, 1.4))
    >>> model(torch.randn(1, 1, 6, 20, 24), spacing=(10.0, 1.5, 1.5)).shape
    torch.Size([1, 4, 6, 20, 24])
    """

    takes_spacing: ClassVar[bool] = True

    def __init__(
        self,
        in_channels: int,
        num_classes: int,
        *,
        spatial_dims: int = 3,
        widths: Sequence[int] = (16, 32, 64, 96),
        num_modes: Sequence[int] = (16, 32, 64, 96),
        norm: Norm = "group",
        mlp_ratio: int = 2,
        local_kernel: int = 0,
        spacing: float | Sequence[float] = 1.0,
        field: float = 16.0,
        padding: int | Sequence[int] | None = MARGIN,
        padding_mode: PaddingMode = "zeros",
        variant: Variant = "exact",
    ) -> None:
        super().__init__()
        self.in_channels, self.num_axes = positive(in_channels, "in_channels"), spatial_dims
        positive(num_classes, "num_classes")
        levels = len(widths)
        if levels != len(num_modes) or levels < 2:
            raise ValueError(f"widths and num_modes must have equal length, at least 2, got {widths} and {num_modes}")
        steps = spacing_values(spacing, spatial_dims)
        strides = halving_strides(steps, levels)
        behind = [(1,) * spatial_dims]  # strides before each level, and before its second block
        for stride in strides:
            behind.append(tuple(a * b for a, b in zip(behind[-1], stride, strict=True)))

        def block(channels: int, level: int, *, goes_down: bool) -> SonicBlock:
            return SonicBlock(
                channels,
                widths[level],
                num_modes=num_modes[level],
                spatial_dims=spatial_dims,
                stride=strides[level] if goes_down else 1,
                norm=norm,
                mlp_ratio=mlp_ratio,
                local_kernel=local_kernel if level else 0,
                standardise=True,
                spacing=steps,
                field=field,
                variant=variant,
                **border_options(padding, padding_mode, steps, behind[level if goes_down else level + 1]),
            )

        self.grid = OctaveGrid(spatial_dims=spatial_dims, spacing=steps)
        finest = SpacedSequential(block(in_channels, 0, goes_down=True))
        finest.checkpointing = True
        coarser = [block(widths[level - 1], level, goes_down=True) for level in range(1, levels)]
        self.down = SpacedSequential(finest, *coarser)
        self.up, self.across = nn.ModuleList(), nn.ModuleList()  # from coarse to fine
        for level in reversed(range(1, levels)):
            self.up.append(place_behind(block(widths[level], level, goes_down=False), behind[level + 1]))
            self.across.append(make_conv(widths[level], widths[level - 1], spatial_dims=spatial_dims))
        self.head = nn.Sequential(
            make_norm(norm, widths[0], spatial_dims),
            make_conv(widths[0], 2 * widths[0], spatial_dims=spatial_dims, bias=True),
            make_activation("relu"),
            make_conv(2 * widths[0], num_classes, spatial_dims=spatial_dims, bias=True),
        )

    def _forward(self, x: Tensor, spacing: Spacing | None = None) -> Tensor:
        check_samples(x, self.num_axes, self.in_channels, type(self).__name__)
        return run_per_grid(self._on_one_grid, self.grid.output_size, x, spacing, self.grid.told(spacing))

    def _on_one_grid(self, x: Tensor, spacing: Spacing | None) -> Tensor:
        size, kept = tuple(x.shape[2:]), []
        x, spacing = self.grid.walk(x, spacing)
        for block in self.down:
            x, spacing = walk(block, x, spacing)
            kept.append((x, spacing))
        x, spacing = kept.pop()
        for block, across in zip(self.up, self.across, strict=True):
            x = across(block(x, spacing))
            finer, spacing = kept.pop()
            x = finer + resample(x, finer.shape[2:])
        return resample(self.head(x), size)
