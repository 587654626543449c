"""Rotation-invariant classifiers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

from torch import nn

from torchsonic.arguments import positive
from torchsonic.models.classifier import Classifier
from torchsonic.models.orbit_features import OrbitFeatures
from torchsonic.models.sonicnet import MARGIN
from torchsonic.nn.norm import make_last_norm
from torchsonic.spectral.boundary import PaddingMode
from torchsonic.spectral.groups import Group

__all__ = ["OrbitClassifier"]


class OrbitClassifier(Classifier):
    """Orbit blocks with strides, mean over the image, linear head; ``(B, C, H, W)`` to ``(B, num_classes)``.

    The logits do not change when the image is rotated about its centre by an element of the group: exactly for quarter
    turns, and up to sampling for other angles.

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
        As in :class:`torchsonic.models.OrbitNet`.

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
        group: str | Group = "C8",
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
