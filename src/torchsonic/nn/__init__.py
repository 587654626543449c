"""Layers and blocks: parameters plus one functional call."""

from torchsonic.functional.options import Execution
from torchsonic.nn.block import Bottleneck, ResidualBlock, SonicBlock
from torchsonic.nn.chain import SpacedSequential
from torchsonic.nn.conv import SonicConv1d, SonicConv2d, SonicConv3d, SonicConvNd
from torchsonic.nn.hybrid import HybridConv, LocalConv
from torchsonic.nn.network_orientation import OrientedNetwork, set_orientation
from torchsonic.nn.network_spacing import infer_strides, place_behind, set_spacing, sonic_layers, spaced_layers
from torchsonic.nn.norm import ChannelNorm, ReLU
from torchsonic.nn.orbit import (
    OrbitBatchNorm,
    OrbitBlock,
    OrbitDropout,
    OrbitMix,
    OrbitNorm,
    OrbitPool,
    SonicOrbitConv2d,
    SonicOrbitConv3d,
    SonicOrbitConvNd,
)
from torchsonic.nn.parameters import parameter_groups
from torchsonic.nn.physical_layer import SpacedLayer
from torchsonic.nn.replace import replace_convs, replaced_convs
from torchsonic.nn.residual import ChannelMLP

__all__ = [
    "Bottleneck",
    "ChannelMLP",
    "ChannelNorm",
    "Execution",
    "HybridConv",
    "LocalConv",
    "OrbitBatchNorm",
    "OrbitBlock",
    "OrbitDropout",
    "OrbitMix",
    "OrbitNorm",
    "OrbitPool",
    "OrientedNetwork",
    "ReLU",
    "ResidualBlock",
    "SonicBlock",
    "SonicConv1d",
    "SonicConv2d",
    "SonicConv3d",
    "SonicConvNd",
    "SonicOrbitConv2d",
    "SonicOrbitConv3d",
    "SonicOrbitConvNd",
    "SpacedLayer",
    "SpacedSequential",
    "infer_strides",
    "parameter_groups",
    "place_behind",
    "replace_convs",
    "replaced_convs",
    "set_orientation",
    "set_spacing",
    "sonic_layers",
    "spaced_layers",
]
