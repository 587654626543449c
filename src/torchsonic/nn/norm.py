"""Normalisation, activation and convolution by name, for any number of axes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, get_args

import torch
from torch import Tensor, nn

from torchsonic.arguments import choice

Norm = Literal["group", "channel", "batch", "instance", "none"]
Activation = Literal["relu", "gelu", "silu", "none"]

NUM_GROUPS = 8
CONVOLUTIONS = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}
_BATCH_NORMS = {1: nn.BatchNorm1d, 2: nn.BatchNorm2d, 3: nn.BatchNorm3d}
_INSTANCE_NORMS = {1: nn.InstanceNorm1d, 2: nn.InstanceNorm2d, 3: nn.InstanceNorm3d}


class ChannelNorm(nn.LayerNorm):
    """LayerNorm over the channels at each pixel, ``(B, C, ...)`` to the same.

    Unlike GroupNorm it does not depend on the rest of the image. So a weak signal far from bright objects keeps its
    scale, and the norm commutes with resampling.
    """

    def forward(self, x: Tensor) -> Tensor:  # type: ignore[override]
        return super().forward(x.movedim(1, -1)).movedim(-1, 1)


class _SignedReLU(torch.autograd.Function):
    """``max(x, 0)`` whose gradient is ``sign(y) * grad``: the same value without a boolean mask."""

    @staticmethod
    def forward(ctx, x: Tensor) -> Tensor:
        y = x.relu()
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, grad: Tensor) -> Tensor:  # type: ignore[override]
        (y,) = ctx.saved_tensors
        return grad * y.sign()


class ReLU(nn.ReLU):
    """``max(x, 0)`` for any shape; in compiled training on a CPU, its gradient needs no mask.

    PyTorch's compiler saves the boolean mask ``x > 0``. On a CPU, its code stores and loads the mask one value at a
    time, which takes ten times as long as the rest of the pass. Elsewhere the mask saves memory and is kept.
    """

    def forward(self, x: Tensor) -> Tensor:  # type: ignore[override]
        compiled = torch.compiler.is_dynamo_compiling() and not torch.compiler.is_exporting()
        if compiled and x.device.type == "cpu" and torch.is_grad_enabled():
            return _SignedReLU.apply(x)  # type: ignore[return-value]
        return super().forward(x)


def make_norm(kind: Norm, channels: int, spatial_dims: int) -> nn.Module:
    """Build a normalisation of ``(B, channels, *axes)``; GroupNorm has 8 groups, or as many as divide the channels."""
    choice(kind, get_args(Norm), "norm")
    if kind == "group":
        return nn.GroupNorm(math.gcd(NUM_GROUPS, channels), channels)
    if kind == "channel":
        return ChannelNorm(channels, eps=1e-6)
    if kind == "batch":
        return _BATCH_NORMS[spatial_dims](channels)
    if kind == "instance":
        return _INSTANCE_NORMS[spatial_dims](channels, affine=True)
    return nn.Identity()


def make_last_norm(kind: Norm, channels: int, spatial_dims: int) -> nn.Module:
    """Build the norm in front of average pooling, whose groups have at least two channels.

    A channel that is normalised alone has the same mean for every image, and pooling keeps nothing but the mean.
    """
    if kind != "group":
        return make_norm(kind, channels, spatial_dims)
    if channels < 2:
        raise ValueError(
            "norm='group' needs at least two channels before pooling, which would make the result the same for all "
            f"images, got {channels}; use norm='batch' or a larger width"
        )
    return nn.GroupNorm(min(math.gcd(NUM_GROUPS, channels), channels // 2), channels)


def make_activation(kind: Activation) -> nn.Module:
    """Build a pointwise nonlinearity."""
    choice(kind, get_args(Activation), "activation")
    return {"relu": ReLU, "gelu": nn.GELU, "silu": nn.SiLU, "none": nn.Identity}[kind]()


def make_conv(
    in_channels: int,
    out_channels: int,
    kernel_size: int = 1,
    *,
    spatial_dims: int,
    stride: int | Sequence[int] = 1,
    bias: bool = False,
) -> nn.Module:
    """Build a convolution that keeps the size up to its stride; by default 1x1 without bias."""
    choice(spatial_dims, tuple(CONVOLUTIONS), "spatial_dims")
    steps = stride if isinstance(stride, int) else tuple(stride)
    padding = kernel_size // 2
    return CONVOLUTIONS[spatial_dims](in_channels, out_channels, kernel_size, steps, padding, bias=bias)
