"""Features that rotate with the image, which rotation-equivariant networks share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from torchsonic.arguments import choice, per_axis, positive
from torchsonic.models.classifier import linear_rates
from torchsonic.models.sonicnet import MARGIN, border_options
from torchsonic.nn.chain import SpacedSequential
from torchsonic.nn.network_spacing import place_behind
from torchsonic.nn.orbit import OrbitBlock, OrbitDropout, OrbitPool
from torchsonic.spectral.boundary import PaddingMode
from torchsonic.spectral.groups import Group, make_group
from torchsonic.spectral.spacing import Spacing, spacing_values

__all__ = ["OrbitFeatures"]


class OrbitFeatures(nn.Module):
    """Orbit blocks, then maximum and mean over the group: features that rotate with the image.

    ``(B, C, *size)`` to ``(B, 2 width, *size / stride)``.

    Parameters
    ----------
    widths, strides, num_modes
        Number of fields, stride and number of modes of every block.
    group, axis
        See :class:`torchsonic.SonicOrbitConv2d`.
    dropout
        Probability of dropping a field after a block during training.
    drop_path
        Probability of skipping the last block during training; earlier blocks are skipped less often.
    options
        Options of the Sonic layers.
    """

    takes_spacing: ClassVar[bool] = True

    def __init__(
        self,
        in_channels: int,
        widths: Sequence[int],
        *,
        num_modes: Sequence[int],
        spatial_dims: int = 2,
        group: str | Group = "C8",
        axis: int = 0,
        strides: Sequence[int | Sequence[int]] | None = None,
        padding: int | Sequence[int] | None = MARGIN,
        padding_mode: PaddingMode = "zeros",
        spacing: float | Sequence[float] = 1.0,
        dropout: float = 0.0,
        drop_path: float = 0.0,
        checkpointing: bool = False,
        **options: Any,
    ) -> None:
        super().__init__()
        choice(spatial_dims, (2, 3), "spatial_dims")
        self.group = make_group(group, spatial_dims, axis=axis)
        steps = spacing_values(spacing, spatial_dims)
        strides = [1] * len(widths) if strides is None else strides
        if not len(widths) == len(strides) == len(num_modes) > 0:
            raise ValueError(
                "widths, strides and num_modes must have one value per block, "
                f"got {tuple(widths)}, {tuple(strides)} and {tuple(num_modes)}"
            )
        parts: list[nn.Module] = []
        rates = linear_rates(drop_path, len(widths))
        before = (1,) * spatial_dims
        channels = in_channels
        for index, (width, modes, stride) in enumerate(zip(widths, num_modes, strides, strict=True)):
            block = OrbitBlock(
                channels,
                positive(width, "width") * len(self.group),
                num_modes=modes,
                spatial_dims=spatial_dims,
                group=self.group,
                axis=axis,
                lift=index == 0,
                stride=stride,
                drop_path=rates[index],
                spacing=steps,
                **border_options(padding, padding_mode, steps, before),
                **options,
            )
            parts += [block, OrbitDropout(self.group, dropout)] if dropout else [block]
            before = tuple(a * b for a, b in zip(before, per_axis(stride, spatial_dims, "stride"), strict=True))
            channels = width * len(self.group)
        self.blocks = SpacedSequential(*parts)
        self.blocks.checkpointing = checkpointing
        place_behind(self.blocks, 1)
        self.largest, self.mean = OrbitPool(self.group, "max"), OrbitPool(self.group, "mean")

    def forward(self, x: Tensor, spacing: Spacing | None = None) -> Tensor:
        """Features of images of the given spacing."""
        y = self.blocks(x, spacing)
        return torch.cat([self.largest(y), self.mean(y)], dim=1)
