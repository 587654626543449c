"""Names by which networks find the baselines; importing this file registers them."""

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
from torchsonic.baselines.continuous_fno import ContinuousFNO
from torchsonic.baselines.dilated import Dilated
from torchsonic.baselines.double_attention import DoubleAttention
from torchsonic.baselines.fno import FNO
from torchsonic.baselines.gfnet import GFNet
from torchsonic.baselines.niff import NIFF
from torchsonic.baselines.non_local import NonLocal
from torchsonic.baselines.plain_cnn import PlainCNN
from torchsonic.baselines.replk import RepLK
from torchsonic.baselines.s4nd import S4ND
from torchsonic.baselines.sno import SNO
from torchsonic.baselines.spectral_cnn import SpectralCNN
from torchsonic.baselines.vit import VisionTransformer
from torchsonic.models.registry import BACKBONES, MODELS, OPERATORS, ModelEntry


def _gridless(operator: type[nn.Module]):
    """An operator that is not tied to a grid: it is not told one."""

    def build(in_channels: int, out_channels: int, stride: int, *, grid: int, **options: Any) -> nn.Module:
        return operator(in_channels, out_channels, stride, **options)

    return build


def _fno(in_channels: int, out_channels: int, stride: int, *, grid: int, **options: Any) -> nn.Module:
    """No more wavenumbers than the usual image has at this place."""
    options.setdefault("num_wavenumbers", max(1, min(8, grid * stride // 2)))
    return FNO(in_channels, out_channels, stride, **options)


for name, operator in {
    "s4nd": S4ND,
    "niff": NIFF,
    "replk": RepLK,
    "dilated": Dilated,
    "continuous_fno": ContinuousFNO,
    "sno": SNO,
    "spectral_cnn": SpectralCNN,
    "non_local": NonLocal,
    "double_attention": DoubleAttention,
}.items():
    OPERATORS.add(name, _gridless(operator))
OPERATORS.add("gfnet", GFNet)
OPERATORS.add("fno", _fno)

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
MODELS.add("cnn_tiny", ModelEntry(PlainCNN, {}, input_size=(3, 28, 28), task="arrays"))
signal = {"spatial_dims": 1, "in_channels": 1, "kernel": 9, "strides": (1, 2, 1, 2, 1, 2)}
MODELS.add("cnn_sequence", ModelEntry(PlainCNN, signal, input_size=(1, 784), task="arrays"))
