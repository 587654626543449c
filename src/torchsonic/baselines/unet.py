"""MONAI's U-Net as the convolutional baseline in 3-D: built, saved and called like the other models here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import torch.nn.functional as F
from torch import Tensor

from torchsonic.arguments import check_samples
from torchsonic.models.pretrained import PretrainedModel
from torchsonic.nn.physical_layer import refuse_unheard
from torchsonic.spectral.spacing import Spacing


class MonaiUNet(PretrainedModel):
    """``monai.networks.nets.UNet`` with residual units: ``(B, C, *size)`` to logits ``(B, num_classes, *size)``.

    It works in voxels, not millimetres, and therefore refuses a spacing. If the strides do not divide the size, the
    input is padded with its outermost voxels and the output is cropped.

    Parameters
    ----------
    channels
        Channels of each level, from fine to coarse.
    strides
        Strides between levels, one fewer than there are levels; each a number or one per axis.
    res_units
        Convolutions per residual unit.
    """

    takes_spacing: ClassVar[bool] = False

    def __init__(
        self,
        in_channels: int,
        num_classes: int,
        *,
        spatial_dims: int = 3,
        channels: Sequence[int] = (16, 32, 64, 128, 256),
        strides: Sequence[int | Sequence[int]] = (2, 2, 2, 2),
        res_units: int = 2,
    ) -> None:
        super().__init__()
        if len(strides) != len(channels) - 1:
            raise ValueError(f"there must be one stride fewer than channels, got {len(strides)} and {len(channels)}")
        self.in_channels, self.num_axes = in_channels, spatial_dims
        steps = [(s,) * spatial_dims if isinstance(s, int) else tuple(s) for s in strides]
        self.multiple = [1] * spatial_dims
        for step in steps:
            self.multiple = [m * s for m, s in zip(self.multiple, step, strict=True)]
        self.net = _import_unet()(
            spatial_dims=spatial_dims,
            in_channels=in_channels,
            out_channels=num_classes,
            channels=tuple(channels),
            strides=tuple(steps),
            num_res_units=res_units,
        )

    def _forward(self, x: Tensor, spacing: Spacing | None = None) -> Tensor:
        """Logits; a spacing is refused, since it would have no effect."""
        refuse_unheard(self, spacing)
        check_samples(x, self.num_axes, self.in_channels, type(self).__name__)
        size = x.shape[2:]
        missing = [-n % m for n, m in zip(size, self.multiple, strict=True)]
        if any(missing):
            x = F.pad(x, [part for more in reversed(missing) for part in (0, more)], mode="replicate")
        return self.net(x)[(..., *[slice(n) for n in size])]


def _import_unet() -> Any:
    try:
        from monai.networks.nets import UNet
    except ImportError as error:
        raise ImportError('the U-Net needs monai; run: pip install "torchsonic[medical]"') from error
    return UNet
