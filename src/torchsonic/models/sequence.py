"""A classifier of signals: Sonic blocks along one axis, such as time."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from torch import nn

from torchsonic.arguments import positive
from torchsonic.models.classifier import Classifier, linear_rates
from torchsonic.nn.block import Form, SonicBlock
from torchsonic.nn.chain import SpacedSequential
from torchsonic.nn.norm import Norm, make_last_norm
from torchsonic.spectral.boundary import PaddingMode


class SequenceClassifier(Classifier):
    """Sonic blocks, mean over the signal, linear head; ``(B, C, L)`` to ``(B, num_classes)``.

    If told the spacing of its samples, it gives the same answer at every sampling rate that can represent the signal.

    Parameters
    ----------
    width, strides, num_modes, mlp_ratio
        Number of channels; stride of every block, alias-free; modes per block; and width of the two-layer network after
        each block, relative to ``width``.
    spacing
        Time between two samples of the training signals.
    field, bank, padding, padding_mode
        Options of the Sonic layers, see :class:`torchsonic.SonicConv1d`.
    form, norm
        See :class:`torchsonic.nn.SonicBlock`.
    drop_rate, drop_path_rate, global_pool
        Dropout before the last layer; stochastic depth, growing towards the last block; ``avg``, ``max`` or ``""`` for
        pooling.

    Examples
    --------
    >>> model = torchsonic.create_model("sonic_sequence", in_channels=1, num_classes=10)
    >>> model(torch.randn(2, 1, 784)).shape, model(torch.randn(2, 1, 392), spacing=2.0).shape
    (torch.Size([2, 10]), torch.Size([2, 10]))
    """

    num_axes = 1
    formats: ClassVar[tuple[str, ...]] = ("NCL",)

    def __init__(
        self,
        *,
        in_channels: int = 1,
        num_classes: int = 10,
        width: int = 64,
        strides: Sequence[int] = (1, 2, 2, 1),
        num_modes: int = 64,
        mlp_ratio: int = 2,
        spacing: float | Sequence[float] = 1.0,
        field: float | None = None,
        bank: Mapping[str, float] | None = None,
        padding: int | None = None,
        padding_mode: PaddingMode = "circular",
        form: Form = "post",
        norm: Norm = "batch",
        drop_rate: float = 0.0,
        drop_path_rate: float = 0.0,
        global_pool: str = "avg",
    ) -> None:
        super().__init__()
        self.in_channels = positive(in_channels, "in_channels")
        options: dict[str, Any] = {"spacing": spacing, "field": field, "padding": padding, "padding_mode": padding_mode}
        options |= {"bank": bank, "num_modes": num_modes, "mlp_ratio": mlp_ratio, "form": form, "norm": norm}
        blocks = []
        for stride, rate in zip(strides, linear_rates(drop_path_rate, len(strides)), strict=True):
            channels = width if blocks else in_channels
            blocks.append(SonicBlock(channels, width, spatial_dims=1, stride=stride, drop_path=rate, **options))
        self.blocks = SpacedSequential(*blocks)
        self.feature_info = [{"num_chs": width, "reduction": math.prod(strides), "module": "blocks"}]
        norms = make_last_norm(norm, width, 1) if form == "pre" else None
        self._build_head(width, num_classes, drop_rate=drop_rate, global_pool=global_pool, norm=norms)

    def _stages(self) -> list[tuple[str, Sequence[nn.Module]]]:
        return [("blocks", (self.blocks,))]
