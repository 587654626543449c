"""Rotation-equivariant networks: for segmentation, for classification, and as the backbone for synthetic shapes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from torchsonic.arguments import check_samples, choice, per_axis, positive
from torchsonic.functional.resample import resample
from torchsonic.models.classifier import Classifier, linear_rates
from torchsonic.models.pretrained import PretrainedModel
from torchsonic.models.registry import BACKBONES
from torchsonic.models.sonicnet import MARGIN, border_options
from torchsonic.nn.chain import SpacedSequential
from torchsonic.nn.network_spacing import place_behind
from torchsonic.nn.norm import make_conv, make_last_norm, make_norm
from torchsonic.nn.orbit import OrbitBlock, OrbitDropout, OrbitPool
from torchsonic.spectral.boundary import PaddingMode
from torchsonic.spectral.groups import Group, make_group
from torchsonic.spectral.spacing import Spacing, spacing_values

__all__ = ["OrbitClassifier", "OrbitFeatures", "OrbitNet"]


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
        group: str = "C8",
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
        return logits if tuple(logits.shape[2:]) == size else resample(logits, size)


class OrbitClassifier(Classifier):
    """Orbit blocks with strides, mean over the image, linear head; ``(B, C, H, W)`` to ``(B, num_classes)``.

    The logits do not change when the image is rotated by an element of the group.

    Parameters
    ----------
    widths, strides, num_modes
        Number of fields, stride and number of modes of every block.
    dropout
        Probability of dropping a field after a block during training.
    drop_rate, drop_path_rate, global_pool
        Dropout before the last layer; stochastic depth; ``avg``, ``max`` or ``""`` for pooling.
    norm
        ``group``, or ``batch``, which learns faster with large batches.
    group, spacing, field, padding, padding_mode, standardise
        As in :class:`OrbitNet`.

    Examples
    --------
    >>> model = torchsonic.create_model("orbit_tiny", in_channels=1, num_classes=10)
    >>> model(torch.randn(2, 1, 28, 28)).shape
    torch.Size([2, 10])
    """

    def __init__(
        self,
        *,
        in_channels: int = 3,
        num_classes: int = 1000,
        widths: Sequence[int] = (8, 12, 16, 24, 24),
        strides: Sequence[int] = (1, 2, 1, 2, 1),
        num_modes: Sequence[int] = (6, 6, 6, 6, 6),
        group: str = "C8",
        spacing: float | Sequence[float] = 1.0,
        field: float | None = 5.0,
        padding: int | Sequence[int] | None = MARGIN,
        padding_mode: PaddingMode = "zeros",
        norm: Literal["group", "batch"] = "group",
        standardise: bool = False,
        dropout: float = 0.0,
        drop_rate: float = 0.0,
        drop_path_rate: float = 0.0,
        global_pool: str = "avg",
    ) -> None:
        super().__init__()
        self.in_channels = positive(in_channels, "in_channels")
        self.features = OrbitFeatures(
            in_channels,
            widths,
            num_modes=num_modes,
            group=group,
            strides=strides,
            padding=padding,
            padding_mode=padding_mode,
            spacing=spacing,
            dropout=dropout,
            drop_path=drop_path_rate,
            field=field,
            norm=norm,
            standardise=standardise,
        )
        self.feature_info = [{"num_chs": 2 * widths[-1], "reduction": math.prod(strides), "module": "features"}]
        last = make_last_norm(norm, 2 * widths[-1], 2)
        self._build_head(2 * widths[-1], num_classes, drop_rate=drop_rate, global_pool=global_pool, norm=last)

    def _stages(self) -> list[tuple[str, Sequence[nn.Module]]]:
        return [("features", (self.features,))]

    def group_matcher(self, coarse: bool = False) -> dict[str, Any]:
        return {"stem": r"^features\.blocks\.0", "blocks": r"^features\.blocks\.(\d+)"}


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
    group: str = "C16",
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
