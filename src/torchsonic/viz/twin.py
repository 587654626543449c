"""A convolutional network to compare a Sonic network with: the same except for the operator."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

from torchsonic.functional.resample import resample
from torchsonic.nn import SonicConvNd, SpacedLayer, sonic_layers
from torchsonic.nn.norm import make_conv
from torchsonic.spectral.spacing import Spacing


class _Pixels(SpacedLayer):
    """A 3^D convolution in place of a Sonic layer; it takes a spacing but cannot use it."""

    def __init__(self, layer: SonicConvNd, kernel_size: int) -> None:
        super().__init__()
        self.num_axes, self.stride = layer.num_axes, layer.stride
        self.conv = make_conv(
            layer.in_channels,
            layer.out_channels,
            kernel_size,
            spatial_dims=layer.num_axes,
            stride=layer.stride,
            bias=layer.bias is not None,
        ).to(layer.mix_in)
        self.before: nn.Module = getattr(layer, "pre_norm", nn.Identity())  # what a layer of a classifier brings along
        self.reference_spacing, self.input_stride = layer.reference_spacing, layer.input_stride
        self._spacing = layer.spacing

    def forward(self, x: Tensor, spacing: Spacing | None = None, output_size=None) -> Tensor:
        y = self.conv(self.before(x))
        wanted = tuple(y.shape[2:]) if output_size is None else tuple(output_size)
        return y if tuple(y.shape[2:]) == wanted else resample(y, wanted)


def convolution_twin(model: nn.Module, *, kernel_size: int = 3, seed: int = 0) -> nn.Module:
    """A copy of a network with a new, untrained convolution in place of each Sonic layer; the rest is the same.

    Parameters
    ----------
    kernel_size
        Odd kernel size.
    seed
        Seed of the new weights.

    Examples
    --------
    >>> model = torch.nn.Sequential(torchsonic.SonicConv2d(1, 4), torch.nn.ReLU(), torchsonic.SonicConv2d(4, 1))
    >>> field = torchsonic.viz.receptive_field(torchsonic.viz.convolution_twin(model), torch.randn(1, 1, 15, 15))
    >>> field.reach(1.0) <= 2 * 2**0.5
    True
    """
    if kernel_size < 1 or kernel_size % 2 == 0:
        raise ValueError(f"kernel_size must be odd, got {kernel_size}")
    if isinstance(model, SonicConvNd):
        model = nn.Sequential(model)
    twin = copy.deepcopy(model)
    layers = list(sonic_layers(twin))
    if not layers:
        raise ValueError(f"{type(model).__name__} has no Sonic layer to replace with a convolution")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        for name, layer in layers:
            parent, _, own = name.rpartition(".")
            setattr(twin.get_submodule(parent), own, _Pixels(layer, kernel_size))
    return twin
