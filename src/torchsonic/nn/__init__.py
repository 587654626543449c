"""Layers: parameters plus one functional call."""

from torchsonic.nn.conv import SonicConv1d, SonicConv2d, SonicConv3d, SonicConvNd
from torchsonic.nn.parameters import parameter_groups
from torchsonic.nn.replace import replace_convs
from torchsonic.nn.spacing import infer_strides, set_spacing, sonic_layers

__all__ = [
    "SonicConv1d",
    "SonicConv2d",
    "SonicConv3d",
    "SonicConvNd",
    "infer_strides",
    "parameter_groups",
    "replace_convs",
    "set_spacing",
    "sonic_layers",
]
