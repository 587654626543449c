"""Layers that tests build again and again."""

import torch

from torchsonic import SonicConv1d, SonicConv2d, SonicConv3d
from torchsonic.nn import SonicConvNd

LAYERS: dict[int, type[SonicConvNd]] = {1: SonicConv1d, 2: SonicConv2d, 3: SonicConv3d}


def make_layer(num_axes: int, channels=(3, 4), num_modes=6, *, dtype=torch.float64, seed=0, **options) -> SonicConvNd:
    """A layer with a bias that is not zero."""
    torch.manual_seed(seed)
    layer = LAYERS[num_axes](*channels, num_modes=num_modes, dtype=dtype, **options)
    if layer.bias is not None:
        with torch.no_grad():
            layer.bias.normal_()
    return layer
