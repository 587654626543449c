"""RepLK: a very large depthwise kernel trained in parallel with a small one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.conv import _ConvNd

from torchsonic.arguments import per_axis
from torchsonic.baselines.operator import Depthwise
from torchsonic.engine.call import without_autocast
from torchsonic.nn.norm import CONVOLUTIONS
from torchsonic.spectral.boundary import fast_size

NORMS = {1: nn.BatchNorm1d, 2: nn.BatchNorm2d, 3: nn.BatchNorm3d}
DIRECT = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
# From as many taps on, transforms beat sliding sums on a CPU: forty times for 31 x 31 taps on 56 x 56 samples.
TRANSFORM_TAPS = 31


def depthwise_conv(x: Tensor, weight: Tensor, bias: Tensor | None = None, *, stride: Sequence[int]) -> Tensor:
    """A faster ``F.convNd`` for one odd kernel per channel and padding to the same size.

    Parameters
    ----------
    x
        ``(B, C, N_1 .. N_D)``.
    weight, bias
        ``(C, 1, k_1 .. k_D)`` and ``(C,)``.

    Returns
    -------
    Tensor
        ``(B, C, ceil(N_1 / stride) ..)``.
    """
    num_axes = x.dim() - 2
    reach = [k // 2 for k in weight.shape[2:]]
    if x.device.type != "cpu" or math.prod(weight.shape[2:]) < TRANSFORM_TAPS:
        return DIRECT[num_axes](x, weight, bias, stride=tuple(stride), padding=tuple(reach), groups=x.shape[1])
    with without_autocast(x.device):
        dtype = torch.promote_types(x.dtype, torch.float32)
        y = _transformed_conv(x.to(dtype), weight.squeeze(1).to(dtype), reach)
        y = y[(..., *[slice(None, None, s) for s in stride])]
        if bias is not None:
            y = y + bias.to(dtype).reshape(-1, *[1] * num_axes)
    return y.to(x.dtype)


def _transformed_conv(x: Tensor, kernel: Tensor, reach: Sequence[int]) -> Tensor:
    """Correlate ``(B, C, *size)`` with ``(C, *taps)``, zeros around."""
    size, axes = tuple(x.shape[2:]), tuple(range(-len(reach), 0))
    # Taps that reach beyond the image from every pixel meet nothing but zeros.
    useful = [min(r, n - 1) for r, n in zip(reach, size, strict=True)]
    for axis, r, u in zip(axes, reach, useful, strict=True):
        kernel = kernel.narrow(axis, r - u, 2 * u + 1)
    # Half a kernel of zeros is enough: what wraps round from either side ends there.
    grid = tuple(fast_size(n + u) for n, u in zip(size, useful, strict=True))
    spectrum = torch.fft.rfftn(x, s=grid, dim=axes) * torch.fft.rfftn(kernel.flip(axes), s=grid, dim=axes)
    y = torch.fft.irfftn(spectrum, s=grid, dim=axes)
    return y[(..., *[slice(u, u + n) for u, n in zip(useful, size, strict=True)])]


def _make_conv(channels: int, kernel_size: int, num_axes: int, *, bias: bool) -> _ConvNd:
    return CONVOLUTIONS[num_axes](channels, channels, kernel_size, groups=channels, bias=bias)


class _Branch(nn.Module):
    """One depthwise convolution and its norm."""

    conv: _ConvNd
    norm: _BatchNorm

    def __init__(self, channels: int, kernel_size: int, num_axes: int) -> None:
        super().__init__()
        self.conv = _make_conv(channels, kernel_size, num_axes, bias=False)
        self.norm = NORMS[num_axes](channels)

    def forward(self, x: Tensor, stride: Sequence[int]) -> Tensor:
        return self.norm(depthwise_conv(x, self.conv.weight, stride=stride))

    def fold(self) -> tuple[Tensor, Tensor]:
        """Weight and bias of a convolution that does what the branch does in evaluation."""
        mean, variance = self.norm.running_mean, self.norm.running_var
        assert mean is not None
        assert variance is not None
        scale = self.norm.weight * (variance + self.norm.eps).rsqrt()
        weight = self.conv.weight * scale.reshape(-1, *[1] * (self.conv.weight.dim() - 1))
        return weight, self.norm.bias - mean * scale


class RepLK(Depthwise):
    r"""Depthwise convolution with a large kernel and, in parallel, with a small one; then a 1x1 convolution.

    .. math:: y = P\,[\mathrm{BN}(w_{31} * x) + \mathrm{BN}(w_5 * x)]

    Zeros surround the input, which may be smaller than the kernel. On a CPU, large kernels use Fourier transforms,
    equal up to rounding. Shapes: ``x (B, C, N_1 .. N_D)`` to ``y (B, K, ceil(N_1 / stride) ..)``. Learnable
    parameters: ``C (31^D + 5^D + 4) + C K``.

    Parameters
    ----------
    kernel_size, small_kernel
        Odd sizes, the small one not larger than the other.
    shape, pointwise, options
        As in :class:`~torchsonic.baselines.operator.Depthwise`; RepLKNet always has the 1x1 convolution. ``stride``
        keeps every stride-th sample.

    Examples
    --------
    >>> layer = torchsonic.baselines.RepLK(8, 16, stride=2, kernel_size=13)
    >>> layer(torch.randn(2, 8, 31, 48)).shape
    torch.Size([2, 16, 16, 24])
    >>> x = torch.randn(2, 8, 31, 48)
    >>> y = layer.eval()(x)
    >>> torch.allclose(layer.merge()(x), y, atol=1e-5)
    True

    References
    ----------
    Ding, Zhang, Han, Ding: Scaling up your kernels to 31x31: revisiting large kernel design in CNNs. CVPR, 2022.
    """

    shown: ClassVar = {"kernel_size": 0, "small_kernel": 0}
    large: _Branch | None
    small: _Branch | None
    merged: _ConvNd | None

    def __init__(
        self, *shape: Any, kernel_size: int = 31, small_kernel: int = 5, pointwise: bool = True, **options: Any
    ) -> None:
        super().__init__(*shape, pointwise=pointwise, **options)
        self.kernel_size = _odd(kernel_size, "kernel_size")
        self.small_kernel = _odd(small_kernel, "small_kernel")
        if small_kernel > kernel_size:
            raise ValueError(f"small_kernel must be at most kernel_size {kernel_size}, got {small_kernel}")
        self.large = _Branch(self.in_channels, kernel_size, self.num_axes)
        self.small = _Branch(self.in_channels, small_kernel, self.num_axes)
        self.merged = None

    def _run(self, x: Tensor) -> Tensor:
        if self.large is not None and self.small is not None:
            return self.large(x, self.stride) + self.small(x, self.stride)
        assert self.merged is not None
        return depthwise_conv(x, self.merged.weight, self.merged.bias, stride=self.stride)

    @torch.no_grad()
    def merge(self) -> RepLK:
        """Fold both branches and their norms into one depthwise convolution with bias; in evaluation mode only.

        Afterwards the layer has ``merged`` and ``pointwise``; ``large`` and ``small`` are ``None``. So its state dict
        has ``merged.weight`` and ``merged.bias`` instead of theirs, and loads only into a merged layer. Training mode
        no longer makes a difference, since nothing is normalised. Merging again changes nothing.
        """
        if self.large is None or self.small is None:
            return self
        if self.training:
            raise RuntimeError("merge needs fixed running statistics; call eval() before merge()")
        weight, bias = self.large.fold()
        small_weight, small_bias = self.small.fold()
        margin = (self.kernel_size - self.small_kernel) // 2
        merged = _make_conv(self.in_channels, self.kernel_size, self.num_axes, bias=True).to(weight).eval()
        assert merged.bias is not None
        merged.weight.copy_(weight + F.pad(small_weight, (margin,) * (2 * self.num_axes)))
        merged.bias.copy_(bias + small_bias)
        self.large, self.small, self.merged = None, None, merged
        return self


def _odd(value: int, name: str) -> int:
    (size,) = per_axis(value, 1, name)
    if size % 2 == 0:
        raise ValueError(f"{name} must be odd, so that the kernel has a centre, got {size}")
    return size
