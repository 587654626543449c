"""ResNet-50 in which any operator can take the place of the 3x3 convolutions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from torch import nn

from torchsonic.arguments import choice, positive
from torchsonic.models.classifier import Classifier, linear_rates, stage_options
from torchsonic.models.registry import OPERATORS
from torchsonic.models.stem import Grid, field_of, make_stem
from torchsonic.nn.block import Bottleneck, Operator, ResidualBlock
from torchsonic.nn.chain import SpacedSequential
from torchsonic.nn.network_spacing import place_behind
from torchsonic.nn.norm import make_activation, make_conv, make_norm


class ResNet(Classifier):
    r"""Residual network of four stages; ``(B, C, H, W)`` to ``(B, num_classes)``.

    Parameters
    ----------
    operator
        The spatial operator in the blocks: ``conv``, ``sonic``, ``hybrid``, ``s4nd``, ``niff``, ``gfnet``, ``replk`` or
        ``dilated``.
    operator_options
        Arguments of the operator; a list of four values gives each stage its own.
    stem
        ``conv``: 7x7 convolution of stride 2 and max pooling, as usual. ``local``: the same on the network's own grid,
        onto which an image with a given spacing is resampled exactly. ``sonic``: one Sonic layer of stride 4, which
        makes the whole network independent of the sampling if it is told the spacing. ``deep``: two Sonic layers of
        stride 2 with a norm and a nonlinearity between them; equally independent, and it sees finer detail.
    grid
        See :class:`torchsonic.models.stem.SonicStem`; only for ``stem="sonic"`` and ``stem="deep"``.
    block
        ``bottleneck``, or ``plain``: one operator and a skip, no expansion.
    strides
        Strides of the four stages.
    image_size
        Usual size of images: sets the grid of operators that need one (GFNet) and the reach of initial Sonic modes.
    spacing
        Reference spacing of images.
    zero_init_last
        Let every block start as its skip connection, so that deep networks start with moderate gradients whatever the
        operator.
    drop_rate, drop_path_rate, global_pool
        Dropout before the last layer; stochastic depth, growing towards the last block; ``avg``, ``max`` or ``""`` for
        pooling.

    Examples
    --------
    >>> model = torchsonic.create_model("resnet50_sonic", num_classes=10).eval()
    >>> model(torch.randn(1, 3, 64, 64), spacing=0.5).shape
    torch.Size([1, 10])

    References
    ----------
    He, Zhang, Ren, Sun: Deep Residual Learning for Image Recognition (2016). With dilations instead of strides: Yu,
    Koltun, Funkhouser: Dilated Residual Networks (2017).
    """

    def __init__(
        self,
        operator: str = "conv",
        *,
        in_channels: int = 3,
        num_classes: int = 1000,
        depths: Sequence[int] = (3, 4, 6, 3),
        width: int = 64,
        operator_options: Mapping[str, Any] | None = None,
        stem: Literal["conv", "local", "sonic", "deep"] = "conv",
        grid: Grid = "reference",
        block: Literal["bottleneck", "plain"] = "bottleneck",
        strides: Sequence[int] = (1, 2, 2, 2),
        image_size: int = 224,
        spacing: float | Sequence[float] = 1.0,
        zero_init_last: bool = True,
        drop_rate: float = 0.0,
        drop_path_rate: float = 0.0,
        global_pool: str = "avg",
    ) -> None:
        super().__init__()
        self.in_channels = positive(in_channels, "in_channels")
        positive(width, "width")
        OPERATORS[operator]  # refuse an unknown name before anything is built
        options = dict(operator_options or {})
        choice(stem, ("conv", "local", "sonic", "deep"), "stem")
        choice(grid, ("reference", "input"), "grid")
        if "spacing" in options:
            raise ValueError(f"pass spacing to the model, not in operator_options: {options['spacing']}")
        choice(block, ("bottleneck", "plain"), "block")
        if len(depths) != 4 or len(strides) != 4:
            raise ValueError(f"depths and strides must be four numbers each, got {depths} and {strides}")
        self.conv1: nn.Module
        if stem == "conv":
            if grid != "reference":
                raise ValueError(f"grid={grid!r} given, but stem='conv' uses the input's pixels; use stem='deep'")
            self.conv1 = make_conv(in_channels, width, 7, spatial_dims=2, stride=2)
        else:
            shared = {"grid": grid, "spacing": spacing, "field": field_of(image_size)}
            shared |= {key: options[key] for key in ("padding_mode",) if key in options}
            self.conv1 = make_stem(stem, in_channels, width, norm="batch", activation="relu", **shared)
        pooled = stem in ("conv", "local")
        self.maxpool: nn.Module = nn.MaxPool2d(3, stride=2, padding=1) if pooled else nn.Identity()
        self.bn1 = make_norm("batch", width, 2)
        self.act1 = make_activation("relu")
        rates = iter(linear_rates(drop_path_rate, sum(depths)))
        channels, reduction = width, 4
        self.feature_info = [{"num_chs": width, "reduction": 2 if pooled else 4, "module": "act1"}]
        for stage, (depth, stride) in enumerate(zip(depths, strides, strict=True)):
            size = -(-image_size // (reduction * stride))
            build = _operator_of_stage(operator, options, stage, size, spacing)
            narrow, blocks = width * 2**stage, []
            for index in range(depth):
                step, rate = stride if index == 0 else 1, next(rates)
                if block == "bottleneck":
                    blocks.append(Bottleneck(build, channels, narrow, stride=step, drop_path=rate))
                    channels = Bottleneck.expansion * narrow
                else:
                    blocks.append(ResidualBlock(build, channels, narrow, stride=step, norm="batch", drop_path=rate))
                    channels = narrow
            layer = SpacedSequential(*blocks)
            self.add_module(f"layer{stage + 1}", place_behind(layer, reduction))
            reduction *= stride
            self.feature_info.append({"num_chs": channels, "reduction": reduction, "module": f"layer{stage + 1}"})
        self._build_head(channels, num_classes, drop_rate=drop_rate, global_pool=global_pool)
        if not self.takes_spacing and spacing != 1.0:
            raise ValueError(f"spacing={spacing} given, but neither the stem nor operator {operator!r} uses it")
        self.init_weights()
        if zero_init_last:
            for module in self.modules():
                last = {Bottleneck: "bn3", ResidualBlock: "norm"}.get(type(module))
                if last is not None:
                    module.get_parameter(f"{last}.weight").data.zero_()

    def _stages(self) -> list[tuple[str, Sequence[nn.Module]]]:
        layers: list[nn.Module] = [getattr(self, f"layer{i}") for i in (1, 2, 3, 4)]
        return [
            ("act1", (self.conv1, self.bn1, self.act1)),
            ("layer1", (self.maxpool, layers[0])),
            *[(f"layer{i}", (layer,)) for i, layer in enumerate(layers[1:], start=2)],
        ]

    def group_matcher(self, coarse: bool = False) -> dict[str, Any]:
        return {"stem": r"^conv1|bn1|maxpool", "blocks": r"^layer(\d+)" if coarse else r"^layer(\d+)\.(\d+)"}


def _operator_of_stage(
    name: str, options: Mapping[str, Any], stage: int, size: int, spacing: float | Sequence[float]
) -> Operator:
    """The builder of one stage's operator, with its options resolved."""
    chosen = stage_options(options, stage, 4)
    if name in ("sonic", "hybrid", "s4nd", "sno", "continuous_fno"):
        chosen["spacing"] = spacing
    if name in ("sonic", "hybrid") and chosen.get("bank") != "released":
        chosen.setdefault("field", field_of(size))

    def build(in_channels: int, out_channels: int, /, *, stride: Any) -> nn.Module:
        return OPERATORS[name](in_channels, out_channels, stride, grid=size, **chosen)

    return build
