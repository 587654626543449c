"""The catalogue: which names there are and what they are built from. Importing this file registers them."""

from __future__ import annotations

from typing import Any

from torch import nn

from torchsonic.models.registry import MODELS, OPERATORS, ModelEntry
from torchsonic.models.resnet import ResNet
from torchsonic.models.sonic_classifier import SonicClassifier
from torchsonic.models.sonic_unet import SonicUNet
from torchsonic.models.sonicnet import SonicNet
from torchsonic.models.synthshape import SynthShapeNet
from torchsonic.nn.conv import SonicConv2d
from torchsonic.nn.hybrid import HybridConv
from torchsonic.nn.norm import make_conv


def _conv(in_channels: int, out_channels: int, stride: int, *, grid: int) -> nn.Module:
    return make_conv(in_channels, out_channels, 3, spatial_dims=2, stride=stride)


def _sonic(in_channels: int, out_channels: int, stride: int, *, grid: int, **options: Any) -> nn.Module:
    return SonicConv2d(in_channels, out_channels, stride=stride, bias=False, **options)


def _hybrid(in_channels: int, out_channels: int, stride: int, *, grid: int, **options: Any) -> nn.Module:
    return HybridConv(in_channels, out_channels, stride=stride, bias=False, **options)


OPERATORS.add("conv", _conv)
OPERATORS.add("sonic", _sonic)
OPERATORS.add("hybrid", _hybrid)

IMAGE, SHAPES = (3, 224, 224), (3, 64, 64)
# Half of the samples along each axis; what that saves pays for a second nonlinearity in each block many times over, and
# for computing activations twice instead of keeping them: 0.3 of the memory, and no more time where it is short.
LIGHT = {"stride": 2, "mlp_ratio": 2, "checkpointing": True, "mode_chunk": 16}

for backbone, name, row in (
    ("sonic", "sonicnet", "SonicNet"),
    ("conv", "convnet", "ConvNet"),
    ("vit", "vit", "ViT"),
    ("s4nd", "s4nd", "S4ND"),
    ("niff", "niff", "NIFF"),
    ("gfnet", "gfnet", "GFNet"),
):
    MODELS.add(
        f"synthshape_{name}",
        ModelEntry(
            SynthShapeNet,
            {"backbone": backbone},
            input_size=SHAPES,
            task="segmentation",
            presets={"text": {"head": "text", "backbone_options": {"form": "pre"}}} if backbone == "sonic" else {},
            paper={"": row},
        ),
    )

MODELS.add(
    "resnet50",
    ModelEntry(ResNet, {"operator": "conv"}, input_size=IMAGE, task="classification", paper={"": "ResNet-50"}),
)
for operator, row, options in (
    ("s4nd", "ResNet-50 S4ND", {}),
    ("niff", "ResNet-50 NIFF", {"operator_options": {"pointwise": True}}),
    ("gfnet", "ResNet-50 GFNet", {}),
    ("replk", "ResNet-50 RepLK", {}),
    # Dilations in place of the last two strides: the paper's GFLOPs say so.
    ("dilated", "ResNet-50 Dilated", {"strides": (1, 2, 1, 1), "operator_options": {"dilation": [1, 1, 2, 4]}}),
):
    MODELS.add(
        f"resnet50_{operator}",
        ModelEntry(ResNet, {"operator": operator, **options}, input_size=IMAGE, task="classification", paper={"": row}),
    )
MODELS.add(
    "resnet50_sonic",
    ModelEntry(
        ResNet,
        {"operator": "sonic", "stem": "local"},
        input_size=IMAGE,
        task="classification",
        presets={
            # The paper's count leaves no room for bottlenecks that end in 2048 channels.
            "paper": {"stem": "conv", "block": "plain", "operator_options": {"num_modes": [24, 32, 48, 48]}},
            "hybrid": {"operator": "hybrid"},
        },
        paper={"paper": "ResNet-50 Sonic"},
    ),
)

for name, widths, depths in (
    ("tiny", (32, 64, 128, 256), (2, 2, 6, 2)),
    ("small", (64, 128, 256, 512), (2, 2, 6, 2)),
    ("base", (96, 192, 384, 768), (3, 3, 9, 3)),
):
    MODELS.add(
        f"sonic_{name}",
        ModelEntry(
            SonicClassifier,
            {"widths": widths, "depths": depths, "stem": "local", "norm": "batch"},
            input_size=IMAGE,
            task="classification",
        ),
    )

MODELS.add(
    "sonicnet2d",
    ModelEntry(
        SonicNet,
        {"in_channels": 3, "num_classes": 2, "spatial_dims": 2, "width": 64, "num_modes": 64},
        input_size=(3, 256, 256),
        task="segmentation",
        presets={"hybrid": {"local_kernel": 3}, "light": LIGHT},
    ),
)
MODELS.add(
    "sonicnet3d",
    ModelEntry(
        SonicNet,
        {"in_channels": 1, "num_classes": 4, "spatial_dims": 3, "width": 48, "num_modes": 64},
        input_size=(1, 96, 96, 96),
        task="segmentation",
        presets={
            "light": LIGHT,
            # So many modes are taken in turns: all at once would need 150 GB for a patch of 96^3 voxels.
            "paper": {
                "width": 128,
                "num_modes": 1412,
                "head_kernel": 3,
                "padding_mode": "circular",
                "mode_chunk": 32,
                "recompute": True,
                "checkpointing": True,
            },
        },
        paper={"paper": "SonicNet"},
    ),
)
MODELS.add(
    "sonicunet3d",
    ModelEntry(
        SonicUNet,
        {"in_channels": 1, "num_classes": 4, "spatial_dims": 3},
        input_size=(1, 96, 96, 96),
        task="segmentation",
    ),
)
