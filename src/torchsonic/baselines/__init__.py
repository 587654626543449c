"""Published operators that Sonic layers are compared with, each written from its paper, all with one interface.

``Operator(in_channels, out_channels, stride=1, *, spatial_dims=2, ...)`` maps ``(B, C, N_1 .. N_D)`` to
``(B, K, ceil(N_1 / stride) .. ceil(N_D / stride))`` in the dtype of its input. There are whole networks as well:
``VisionTransformer``, and MONAI's U-Net as ``MonaiUNet``. Importing this package registers their names.
"""

from typing import Any

from torch import nn

from torchsonic.baselines import window as _window  # noqa: F401  (registers the shorter ways)
from torchsonic.baselines.attention import DoubleAttention, NonLocal
from torchsonic.baselines.backbones import (
    VitBackbone,
    conv_backbone,
    gfnet_backbone,
    niff_backbone,
    s4nd_backbone,
)
from torchsonic.baselines.continuous_fno import ContinuousFNO
from torchsonic.baselines.dilated import Dilated
from torchsonic.baselines.fno import FNO
from torchsonic.baselines.gfnet import GFNet
from torchsonic.baselines.niff import NIFF
from torchsonic.baselines.plain_cnn import PlainCNN
from torchsonic.baselines.replk import RepLK
from torchsonic.baselines.s4nd import S4ND
from torchsonic.baselines.sno import SNO
from torchsonic.baselines.spectral_cnn import SpectralCNN
from torchsonic.baselines.steerable import SteerableCNN
from torchsonic.baselines.unet import MonaiUNet
from torchsonic.baselines.vit import VisionTransformer
from torchsonic.models.registry import BACKBONES, MODELS, OPERATORS, ModelEntry

__all__ = [
    "FNO",
    "NIFF",
    "S4ND",
    "SNO",
    "ContinuousFNO",
    "Dilated",
    "DoubleAttention",
    "GFNet",
    "MonaiUNet",
    "NonLocal",
    "PlainCNN",
    "RepLK",
    "SpectralCNN",
    "SteerableCNN",
    "VisionTransformer",
]


def _gridless(operator: type[nn.Module]):
    """An operator that is not tied to a grid: it is not told one."""

    def build(in_channels: int, out_channels: int, stride: int, *, grid: int, **options: Any) -> nn.Module:
        return operator(in_channels, out_channels, stride, **options)

    return build


def _fno(in_channels: int, out_channels: int, stride: int, *, grid: int, **options: Any) -> nn.Module:
    """No more wavenumbers than the usual image has at this place."""
    options.setdefault("num_wavenumbers", max(1, min(8, grid * stride // 2)))
    return FNO(in_channels, out_channels, stride, **options)


_GRIDLESS = {
    "s4nd": S4ND,
    "niff": NIFF,
    "replk": RepLK,
    "dilated": Dilated,
    "continuous_fno": ContinuousFNO,
    "sno": SNO,
    "spectral_cnn": SpectralCNN,
    "non_local": NonLocal,
    "double_attention": DoubleAttention,
}
_BACKBONES = {
    "conv": conv_backbone,
    "vit": VitBackbone,
    "s4nd": s4nd_backbone,
    "niff": niff_backbone,
    "gfnet": gfnet_backbone,
}
_SIGNAL = {"spatial_dims": 1, "in_channels": 1, "kernel": 9, "strides": (1, 2, 1, 2, 1, 2)}

# Names that stay behind are private: another "operator" would hide the module of that name.
for _name, _operator in _GRIDLESS.items():
    OPERATORS.add(_name, _gridless(_operator))
OPERATORS.add("gfnet", GFNet)
OPERATORS.add("fno", _fno)
for _name, _backbone in _BACKBONES.items():
    BACKBONES.add(_name, _backbone)
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
MODELS.add("cnn_sequence", ModelEntry(PlainCNN, _SIGNAL, input_size=(1, 784), task="arrays"))
