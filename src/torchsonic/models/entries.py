"""The catalogue of model names and what they are built from. Importing this file registers them."""

from __future__ import annotations

from typing import Any

from torch import nn

from torchsonic.models.orbitnet import OrbitClassifier, OrbitNet
from torchsonic.models.pretrained import PretrainedModel
from torchsonic.models.registry import MODELS, OPERATORS, ModelEntry
from torchsonic.models.resnet import ResNet
from torchsonic.models.sequence import SequenceClassifier
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

# Half of the samples along each axis; what that saves pays for a second nonlinearity in each block many times over, and
# for computing activations twice instead of keeping them: 0.3 of the memory, and no more time where it is short.
LIGHT = {"stride": 2, "mlp_ratio": 2, "checkpointing": True, "mode_chunk": 16}
# So many modes are taken in turns: all at once would need 150 GB for a patch of 96^3 voxels.
PAPER_SIZE = {"width": 128, "num_modes": 1412, "head_kernel": 3, "padding_mode": "circular"}
PAPER_SIZE |= {"mode_chunk": 32, "recompute": True, "checkpointing": True}
# Presets named "paper" compute what the paper's notes say and start as its released layers do; "paper_size" has its
# numbers of channels and modes, and the exact operator.
PAPER_LAYER = {"variant": "paper", "bank": "released"}
SHAPES: dict[str, dict[str, Any]] = {
    "text": {"head": "text", "backbone_options": {"form": "pre"}},
    "paper": {"backbone_options": {**PAPER_LAYER, "padding_mode": "circular"}},
}
# The paper's count leaves no room for bottlenecks that end in 2048 channels.
PAPER_MODES = [24, 32, 48, 48]
# Released classifiers take features as they are.
PAPER_STAGES = {"num_modes": PAPER_MODES, **PAPER_LAYER, "standardise": False}


def _add_classifier(name: str, build: type[PretrainedModel], arguments: dict[str, Any], **more: Any) -> None:
    MODELS.add(name, ModelEntry(build, arguments, input_size=(3, 224, 224), task="classification", **more))


def _add_segmenter(name: str, build: type[PretrainedModel], size: int, arguments: dict[str, Any], **more: Any) -> None:
    grid = (size,) * arguments.get("spatial_dims", 2)
    entry = ModelEntry(build, arguments, (arguments.get("in_channels", 3), *grid), task="segmentation", **more)
    MODELS.add(name, entry)


for backbone, name, row in (
    ("sonic", "sonicnet", "SonicNet"),
    ("conv", "convnet", "ConvNet"),
    ("vit", "vit", "ViT"),
    ("s4nd", "s4nd", "S4ND"),
    ("niff", "niff", "NIFF"),
    ("gfnet", "gfnet", "GFNet"),
):
    presets = SHAPES if backbone == "sonic" else {}
    rows = dict.fromkeys(("", "paper") if presets else ("",), row)
    _add_segmenter(f"synthshape_{name}", SynthShapeNet, 64, {"backbone": backbone}, presets=presets, paper=rows)

_add_classifier("resnet50", ResNet, {"operator": "conv"}, paper={"": "ResNet-50"})
for operator, row, options in (
    ("s4nd", "ResNet-50 S4ND", {}),
    ("niff", "ResNet-50 NIFF", {"operator_options": {"pointwise": True}}),
    ("gfnet", "ResNet-50 GFNet", {}),
    ("replk", "ResNet-50 RepLK", {}),
    # Dilations in place of the last two strides: the paper's GFLOPs say so.
    ("dilated", "ResNet-50 Dilated", {"strides": (1, 2, 1, 1), "operator_options": {"dilation": [1, 1, 2, 4]}}),
):
    _add_classifier(f"resnet50_{operator}", ResNet, {"operator": operator, **options}, paper={"": row})
_add_classifier(
    "resnet50_sonic",
    ResNet,
    {"operator": "sonic", "stem": "local"},
    presets={
        "paper": {"stem": "conv", "block": "plain", "operator_options": PAPER_STAGES},
        "paper_size": {"stem": "conv", "block": "plain", "operator_options": {"num_modes": PAPER_MODES}},
        "hybrid": {"operator": "hybrid"},
    },
    paper={"paper": "ResNet-50 Sonic", "paper_size": "ResNet-50 Sonic"},
)

for name, widths, depths in (
    ("tiny", (32, 64, 128, 256), (2, 2, 6, 2)),
    ("small", (64, 128, 256, 512), (2, 2, 6, 2)),
    ("base", (96, 192, 384, 768), (3, 3, 9, 3)),
):
    stages = {"widths": widths, "depths": depths, "stem": "local", "norm": "batch"}
    _add_classifier(f"sonic_{name}", SonicClassifier, stages)

orbits = {"backbone": "orbit", "width": 8}
_add_segmenter("synthshape_orbitnet", SynthShapeNet, 64, orbits)
_add_classifier("orbit_tiny", OrbitClassifier, {})
MODELS.add("sonic_sequence", ModelEntry(SequenceClassifier, {}, input_size=(1, 784), task="arrays"))
plane = {"in_channels": 3, "num_classes": 2, "spatial_dims": 2}
image = {**plane, "width": 64, "num_modes": 64}
_add_segmenter("sonicnet2d", SonicNet, 256, image, presets={"hybrid": {"local_kernel": 3}, "light": LIGHT})
volume = {"in_channels": 1, "num_classes": 4, "spatial_dims": 3}
networks = {"light": LIGHT, "paper": {**PAPER_SIZE, **PAPER_LAYER, "activation": "relu"}, "paper_size": PAPER_SIZE}
many = {**volume, "width": 48, "num_modes": 64}
_add_segmenter(
    "sonicnet3d", SonicNet, 96, many, presets=networks, paper=dict.fromkeys(("paper", "paper_size"), "SonicNet")
)
_add_segmenter("sonicunet3d", SonicUNet, 96, volume)
levels = {"widths": (32, 64, 96, 128), "num_modes": (32, 64, 96, 128)}
_add_segmenter("sonicunet2d", SonicUNet, 256, {**plane, **levels}, presets={"hybrid": {"local_kernel": 3}})
_add_segmenter("orbitnet2d", OrbitNet, 256, plane)
_add_segmenter("orbitnet3d", OrbitNet, 96, {**volume, "group": "O", "stride": 2})
