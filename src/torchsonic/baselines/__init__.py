"""Published operators that Sonic layers are compared with, each written from its paper, all with one interface.

``Operator(in_channels, out_channels, stride=1, *, spatial_dims=2, ...)`` maps ``(B, C, N_1 .. N_D)`` to
``(B, K, ceil(N_1 / stride) .. ceil(N_D / stride))`` in the dtype of its input. There are whole networks as well:
``VisionTransformer``, and MONAI's U-Net as ``MonaiUNet``.
"""

from torchsonic.baselines import entries as _entries  # noqa: F401  (registers the names)
from torchsonic.baselines import window as _window  # noqa: F401  (registers the shorter ways)
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
from torchsonic.baselines.steerable import SteerableCNN
from torchsonic.baselines.unet import MonaiUNet
from torchsonic.baselines.vit import VisionTransformer

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
