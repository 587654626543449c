"""A small convolutional classifier of signals or images: what one would try first."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from torchsonic.arguments import choice, positive
from torchsonic.models.classifier import Classifier
from torchsonic.nn.norm import make_conv, make_norm


class PlainCNN(Classifier):
    """Convolutions with batch norm and ReLU, mean, linear head; ``(B, C, *size)`` to ``(B, num_classes)``.

    Parameters
    ----------
    widths, strides
        Channels and stride of every convolution.
    kernel
        Kernel size.
    drop_rate, global_pool
        Dropout before the last layer; ``avg``, ``max`` or ``""`` for pooling.

    Examples
    --------
    >>> torchsonic.create_model("cnn_tiny", in_channels=1, num_classes=10)(torch.randn(2, 1, 28, 28)).shape
    torch.Size([2, 10])
    """

    def __init__(
        self,
        *,
        in_channels: int = 3,
        num_classes: int = 10,
        spatial_dims: int = 2,
        widths: Sequence[int] = (24, 24, 48, 48, 48, 48),
        strides: Sequence[int] = (1, 1, 2, 1, 2, 1),
        kernel: int = 3,
        drop_rate: float = 0.0,
        global_pool: str = "avg",
    ) -> None:
        super().__init__()
        self.in_channels, self.num_axes = (
            positive(in_channels, "in_channels"),
            choice(spatial_dims, (1, 2), "spatial_dims"),
        )
        parts: list[nn.Module] = []
        channels, reduction = in_channels, 1
        for width, stride in zip(widths, strides, strict=True):
            conv = make_conv(channels, width, kernel, spatial_dims=spatial_dims, stride=stride)
            parts += [conv, make_norm("batch", width, spatial_dims), nn.ReLU()]
            channels, reduction = width, reduction * stride
        self.features = nn.Sequential(*parts)
        self.feature_info = [{"num_chs": channels, "reduction": reduction, "module": "features"}]
        self._build_head(channels, num_classes, drop_rate=drop_rate, global_pool=global_pool)
        self.init_weights()

    def _stages(self) -> list[tuple[str, Sequence[nn.Module]]]:
        return [("features", (self.features,))]
