"""The output of a backbone in a window, without computing the rest of the image.

Tasks that need a few pixels would otherwise pay for the whole image: a global filter is an inner product at each pixel,
and four of them are far cheaper than 4,096 by FFT. What needs the whole image (a norm over it, the blocks before the
last) is computed as usual, then cropped; the result is the same.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import singledispatch
from itertools import takewhile

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from torchsonic.engine.call import without_autocast
from torchsonic.nn.block import ResidualBlock
from torchsonic.nn.chain import walk
from torchsonic.nn.conv import SonicConvNd
from torchsonic.nn.norm import ChannelNorm
from torchsonic.nn.parameters import is_sharded
from torchsonic.nn.physical_layer import apply
from torchsonic.spectral.spacing import Spacing, as_spacing
from torchsonic.spectral.window import Window, crop, seen_from, window_size

# Image channels times pixels of the window above which the FFT of the whole image is cheaper.
MOST_PRODUCTS = 32


@dataclass(frozen=True)
class Projected:
    """An image of few channels and the matrix that widens it.

    The matrix commutes with filters, so they need to see only the few channels.

    Parameters
    ----------
    image
        ``(B, C, *size)``.
    weight, bias
        ``(K, C)`` and ``(K,)``; ``None`` leaves the image as it is.
    """

    image: Tensor
    weight: Tensor | None = None
    bias: Tensor | None = None

    def widen(self, values: Tensor) -> Tensor:
        """Multiply the channels by the matrix: ``(B, C, ..)`` to ``(B, K, ..)``."""
        if self.weight is None:
            return values
        wide = F.conv2d(values.flatten(2)[..., None], self.weight[:, :, None, None], self.bias)
        return wide.reshape(*wide.shape[:2], *values.shape[2:])

    def whole(self) -> Tensor:
        """The widened image, ``(B, K, *size)``."""
        return self.widen(self.image)

    def crop(self, window: Window) -> Tensor:
        """The widened image in a window."""
        return self.widen(crop(self.image, window))

    def normalised(self, norm: nn.Module) -> Projected:
        r"""The image after a pointwise norm; still few channels and a matrix.

        .. math:: \mathrm{LN}(W x) = \gamma\,\bar W \frac{x}{\sqrt{x^\top \bar W^\top \bar W x / K + \epsilon}} + \beta,
           \qquad \bar W = W - \operatorname{mean}_k W
        """
        if isinstance(norm, nn.Identity):
            return self
        if self.weight is None or self.bias is not None or not isinstance(norm, ChannelNorm):
            return Projected(norm(self.whole()))
        centred = self.weight - self.weight.mean(0)
        gram = centred.T @ centred / len(centred)
        variance = torch.einsum("bc...,cd,bd...->b...", self.image, gram, self.image).unsqueeze(1)
        return Projected(self.image * (variance + norm.eps).rsqrt(), norm.weight[:, None] * centred, norm.bias)


def is_pointwise(part: nn.Module) -> bool:
    """Whether a layer acts on each pixel separately."""
    if isinstance(part, nn.Conv2d):
        return part.kernel_size == (1, 1) and part.stride == (1, 1)
    return isinstance(part, (ChannelNorm, nn.Identity, nn.GELU, nn.ReLU, nn.SiLU))


@singledispatch
def run_in_window(part: nn.Module, x: Projected, window: Window, spacing: Spacing | None = None) -> Tensor:
    """Output of a part of a network in a window, ``(B, K, *window_size)``; shortcuts are registered by type."""
    return crop(apply(part, x.whole(), spacing), window)


@run_in_window.register
def _(part: nn.Sequential, x: Projected, window: Window, spacing: Spacing | None = None) -> Tensor:
    layers = list(part)
    tail = [*takewhile(is_pointwise, reversed(layers))][::-1]
    rest = layers[: len(layers) - len(tail)]
    if not rest:
        return part(x.crop(window))
    for layer in rest[:-1]:
        y, spacing = walk(layer, x.whole(), spacing)
        x = Projected(y)
    y = run_in_window(rest[-1], x, window, spacing)
    return nn.Sequential(*tail)(y)


@run_in_window.register
def _(part: nn.Conv2d, x: Projected, window: Window, spacing: Spacing | None = None) -> Tensor:
    halo = [n // 2 for n in part.kernel_size]
    places = [range(*place.indices(n)) for place, n in zip(window, x.image.shape[2:], strict=True)]
    inside = all(
        place.step == 1 and place.start >= h and place.stop + h <= n
        for place, h, n in zip(places, halo, x.image.shape[2:], strict=True)
    )
    if not inside or part.stride != (1, 1) or part.dilation != (1, 1) or part.padding != tuple(halo):
        return crop(part(x.whole()), window)
    wider = [slice(place.start - h, place.stop + h) for place, h in zip(places, halo, strict=True)]
    return F.conv2d(x.crop(wider), part.weight, part.bias, groups=part.groups)


@run_in_window.register
def _(part: ResidualBlock, x: Projected, window: Window, spacing: Spacing | None = None) -> Tensor:
    plain = part.form == "post" and is_pointwise(part.norm) and max(part.stride) == 1
    # A block whose parameters are shared out has them whole only while it is called.
    if not plain or not isinstance(part.operator, SonicConvNd) or is_sharded(part):
        return crop(part(x.whole(), spacing), window)
    y = run_in_window(part.operator, x, window, spacing)
    return part.activation(part.drop_path(part.norm(y)) + part.shortcut(x.crop(window)))


@run_in_window.register
def _(part: SonicConvNd, x: Projected, window: Window, spacing: Spacing | None = None) -> Tensor:
    size = tuple(x.image.shape[2:])
    steps = as_spacing(part.spacing if spacing is None else spacing, part.num_axes, batch=len(x.image))
    linear = x.bias is None and part.variant == "exact" and not part.standardise and part.mode_dropout == 0
    circular = part.padding_mode == "circular" and max(part.stride) == 1 and len(steps) == 1
    products = x.image.shape[1] * math.prod(window_size(window, size))
    if not (linear and circular) or products > MOST_PRODUCTS or is_sharded(part):
        return crop(part(x.whole(), spacing), window)
    with without_autocast(x.image.device):
        kernels = part.mode_kernels(size, spacing).flatten(0, 1).flatten(1)
        mix_in, mix_out, bias = part.mixing(kernels.dtype)
        if x.weight is not None:
            mix_in = mix_in @ x.weight.to(kernels.dtype)
        # What both kernels of each mode see in each channel at each pixel of the window: (B, C, P, M, 2).
        seen = (seen_from(x.image.to(kernels.dtype), window) @ kernels.T).unflatten(3, (len(mix_in), 2))
        mixed = torch.einsum("bcpmk,mic->bpmki", seen, mix_in)
        real = mixed[..., 0, 0] - mixed[..., 1, 1]
        imaginary = mixed[..., 0, 1] + mixed[..., 1, 0]
        y = torch.einsum("bpmi,kmi->bkp", torch.stack([real, imaginary], dim=-1), mix_out)
        if bias is not None:
            y = y + bias[:, None]
    return y.unflatten(2, window_size(window, size)).to(x.image.dtype)
