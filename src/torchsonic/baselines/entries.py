"""Names under which networks find the rivals; importing this file registers them."""

from __future__ import annotations

from typing import Any

from torch import nn

from torchsonic.baselines.backbones import (
    VitBackbone,
    conv_backbone,
    gfnet_backbone,
    niff_backbone,
    s4nd_backbone,
)
from torchsonic.baselines.dilated import Dilated
from torchsonic.baselines.gfnet import GFNet
from torchsonic.baselines.niff import NIFF
from torchsonic.baselines.replk import RepLK
from torchsonic.baselines.s4nd import S4ND
from torchsonic.baselines.vit import VisionTransformer
from torchsonic.models.registry import BACKBONES, MODELS, OPERATORS, ModelEntry


def _gridless(operator: type[nn.Module]):
    """An operator that is not tied to a grid: it is not told one."""

    def build(in_channels: int, out_channels: int, stride: int, *, grid: int, **options: Any) -> nn.Module:
        return operator(in_channels, out_channels, stride, **options)

    return build


for name, operator in {"s4nd": S4ND, "niff": NIFF, "replk": RepLK, "dilated": Dilated}.items():
    OPERATORS.add(name, _gridless(operator))
OPERATORS.add("gfnet", GFNet)

for name, backbone in {
    "conv": conv_backbone,
    "vit": VitBackbone,
    "s4nd": s4nd_backbone,
    "niff": niff_backbone,
    "gfnet": gfnet_backbone,
}.items():
    BACKBONES.add(name, backbone)

MODELS.add(
    "vit_s16",
    ModelEntry(
        VisionTransformer,
        {},
        input_size=(3, 224, 224),
        task="classification",
        # The paper's 48.6 M parameters are those of the wide, shallow ViT-S that early libraries shipped.
        presets={"paper": {"dim": 768, "depth": 8, "num_heads": 8, "mlp_ratio": 3.0, "qkv_bias": False}},
        paper={"paper": "ViT-S/16"},
    ),
)
