"""Rotation-equivariant networks for segmentation, and as the backbone for synthetic shapes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from torch import Tensor, nn

from torchsonic.arguments import check_samples, positive
from torchsonic.functional.resample import resample
from torchsonic.models.orbit_classifier import OrbitClassifier
from torchsonic.models.orbit_features import OrbitFeatures
from torchsonic.models.pretrained import PretrainedModel
from torchsonic.models.registry import BACKBONES
from torchsonic.models.sonicnet import MARGIN
from torchsonic.nn.norm import make_conv, make_norm
from torchsonic.spectral.boundary import PaddingMode
from torchsonic.spectral.groups import Group
from torchsonic.spectral.spacing import Spacing

__all__ = ["OrbitClassifier", "OrbitFeatures", "OrbitNet"]


class OrbitNet(PretrainedModel):
    r"""Orbit blocks and a head: ``(B, C, *size)`` to logits ``(B, num_classes, *size)`` that rotate with the image.

    Parameters
    ----------
    in_channels, num_classes
        Channels of images and of logits.
    width, depth, num_modes
        Number of fields, of blocks, and of modes per block. A field has one channel per element of the group.
    group, axis
        See :class:`torchsonic.SonicOrbitConv2d`.
    stride
        Stride of the first block, alias-free. Band-limited interpolation brings the logits back to the input's grid.
    standardise
        Whether Sonic layers normalise each input channel to mean 0 and variance 1.
    spacing, field, padding, padding_mode, checkpointing
        As in :class:`torchsonic.models.SonicNet`.

    Examples
    --------
    >>> model = torchsonic.create_model("orbitnet2d", in_channels=1, num_classes=2, width=4).eval()
    >>> x = torch.randn(1, 1, 32, 32)
    >>> torch.allclose(model(x.rot90(1, (2, 3))), model(x).rot90(1, (2, 3)), atol=1e-4)
    True
    """

    takes_spacing: ClassVar[bool] = True

    def __init__(
        self,
        in_channels: int,
        num_classes: int,
        *,
        spatial_dims: int = 2,
        width: int = 12,
        depth: int = 4,
        num_modes: int = 6,
        group: str | Group = "C8",
        axis: int = 0,
        stride: int | Sequence[int] = 1,
        standardise: bool = True,
        spacing: float | Sequence[float] = 1.0,
        field: float | None = None,
        padding: int | Sequence[int] | None = MARGIN,
        padding_mode: PaddingMode = "zeros",
        dropout: float = 0.0,
        checkpointing: bool = False,
    ) -> None:
        super().__init__()
        self.in_channels, self.num_axes = positive(in_channels, "in_channels"), spatial_dims
        positive(num_classes, "num_classes")
        positive(depth, "depth")
        self.features = OrbitFeatures(
            in_channels,
            [width] * depth,
            num_modes=[num_modes] * depth,
            spatial_dims=spatial_dims,
            group=group,
            axis=axis,
            strides=[stride, *[1] * (depth - 1)],
            padding=padding,
            padding_mode=padding_mode,
            spacing=spacing,
            dropout=dropout,
            checkpointing=checkpointing,
            field=field,
            standardise=standardise,
        )
        self.head = nn.Sequential(
            make_conv(2 * width, 2 * width, spatial_dims=spatial_dims),
            make_norm("group", 2 * width, spatial_dims),
            nn.GELU(),
            make_conv(2 * width, num_classes, spatial_dims=spatial_dims, bias=True),
        )

    def _forward(self, x: Tensor, spacing: Spacing | None = None) -> Tensor:
        check_samples(x, self.num_axes, self.in_channels, type(self).__name__)
        size = tuple(x.shape[2:])
        logits = self.head(self.features(x, spacing))
        return logits if tuple(logits.shape[2:]) == size else resample(logits, size, centred=True)


class _OrbitBackbone(nn.Module):
    takes_spacing: ClassVar[bool] = True

    def __init__(self, width: int, depth: int, num_modes: int, **options: Any) -> None:
        super().__init__()
        self.features = OrbitFeatures(width, [width] * depth, num_modes=[num_modes] * depth, **options)
        self.project = make_conv(2 * width, width, spatial_dims=2)

    def forward(self, x: Tensor, spacing: Spacing | None = None) -> Tensor:
        return self.project(self.features(x, spacing))


def orbit_backbone(
    width: int,
    depth: int,
    *,
    num_modes: int = 4,
    group: str | Group = "C16",
    padding: int | None = 16,
    standardise: bool = True,
    **options: Any,
) -> nn.Module:
    """Orbit blocks between ordinary channels; takes the options of :class:`OrbitFeatures`.

    Eight directions are too few: shapes rotated by 15 or 30 degrees then lose up to 0.1 of Dice.
    """
    options |= {"group": group, "padding": padding, "standardise": standardise}
    return _OrbitBackbone(width, depth, num_modes, **options)


BACKBONES.add("orbit", orbit_backbone)
