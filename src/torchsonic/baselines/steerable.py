"""A network of escnn's steerable convolutions: exact for quarter turns, nearly so for other rotations of the group."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from torchsonic.arguments import positive
from torchsonic.models.classifier import Classifier

SIGMA = 0.66
"""Width of the Gaussian before a stride, in pixels, as in escnn's examples."""


class SteerableCNN(Classifier):
    """Steerable convolutions over ``C{order}``, maximum over the group, mean, linear head; ``(B, C, H, W)`` to logits.

    Parameters
    ----------
    order
        Number of rotations.
    widths, strides
        Number of fields and stride of every convolution; a field has one channel per rotation.
    kernel
        Kernel size.

    References
    ----------
    Weiler, Cesa: General E(2)-Equivariant Steerable CNNs (2019).
    Cesa, Lang, Weiler: A Program to Build E(N)-Equivariant Steerable CNNs (2022).
    """

    def __init__(
        self,
        *,
        in_channels: int = 1,
        num_classes: int = 10,
        order: int = 8,
        widths: Sequence[int] = (6, 8, 10, 12, 12),
        strides: Sequence[int] = (1, 2, 1, 2, 1),
        kernel: int = 5,
        drop_rate: float = 0.0,
    ) -> None:
        super().__init__()
        self.in_channels = positive(in_channels, "in_channels")
        gspaces, escnn = _import_escnn()
        self._wrap, self._convolution = escnn.GeometricTensor, escnn.R2Conv
        space = gspaces.rot2dOnR2(order)
        before = self.input_type = escnn.FieldType(space, in_channels * [space.trivial_repr])
        parts: list[Any] = []
        with torch.device("cpu"):  # escnn computes its bases at once, which tensors without values would not allow
            for width, stride in zip(widths, strides, strict=True):
                after = escnn.FieldType(space, width * [space.regular_repr])
                parts.append(escnn.R2Conv(before, after, kernel_size=kernel, padding=kernel // 2, bias=False))
                parts += [escnn.InnerBatchNorm(after), escnn.ReLU(after)]
                if stride > 1:
                    parts.append(escnn.PointwiseAvgPoolAntialiased(after, sigma=SIGMA, stride=stride))
                before = after
            self.features = escnn.SequentialModule(*parts, escnn.GroupPooling(before))
        self.feature_info = [{"num_chs": widths[-1], "reduction": 1, "module": "features"}]
        self._build_head(widths[-1], num_classes, drop_rate=drop_rate, global_pool="avg")
        self.train()  # which drops what a new convolution keeps for evaluation

    def train(self, mode: bool = True) -> SteerableCNN:
        """Set the mode; convolutions stay in training mode, since evaluation would change their state dict."""
        super().train(mode)
        for module in self.modules():
            if isinstance(module, self._convolution):
                module.train()
        return self

    def _run(self, x: Tensor, *arguments: Any, **options: Any) -> tuple[Tensor, list[Tensor]]:
        return self.features(self._wrap(x, self.input_type)).tensor, []

    def _stages(self) -> list[tuple[str, Sequence[nn.Module]]]:
        return [("features", (self.features,))]


def _import_escnn() -> tuple[Any, Any]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of a package that only groups of space need
            from escnn import gspaces, nn  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise ImportError(
            "steerable convolutions need escnn, which needs an environment with NumPy 1; see docs/studies.md"
        ) from error
    return gspaces, nn
