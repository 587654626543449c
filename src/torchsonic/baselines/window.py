"""Shortcuts to a few output pixels of the baselines' blocks; see :mod:`torchsonic.models.window`."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from torchsonic.baselines.backbones import FilterBlock, VitBackbone
from torchsonic.baselines.circular_filter import make_real
from torchsonic.baselines.gfnet import GFNet
from torchsonic.baselines.niff import NIFF
from torchsonic.baselines.s4nd import S4ND
from torchsonic.engine.call import without_autocast
from torchsonic.models.window import Projected, is_pointwise, run_in_window
from torchsonic.spectral.spacing import Spacing, as_spacing
from torchsonic.spectral.window import Window, crop, seen_from, window_size


@run_in_window.register
def _(part: FilterBlock, x: Projected, window: Window, spacing: Spacing | None = None) -> Tensor:
    if not (is_pointwise(part.norm1) and is_pointwise(part.norm2)):
        return crop(part(x.whole(), spacing), window)
    y = run_in_window(part.filter, x.normalised(part.norm1), window, spacing)
    return x.crop(window) + part.mlp(part.norm2(y))


@run_in_window.register(GFNet)
@run_in_window.register(NIFF)
def _(part: GFNet | NIFF, x: Projected, window: Window, spacing: Spacing | None = None) -> Tensor:
    size = tuple(x.image.shape[2:])
    if max(part.stride) > 1 or part.pointwise is not None:
        return crop(part(x.whole()), window)
    dtype = torch.promote_types(x.image.dtype, torch.float32)
    with without_autocast(x.image.device):
        kernels = torch.fft.irfftn(make_real(part.response(size, dtype=dtype), size), s=size)
        y = _depthwise(x, kernels.flatten(1), window)
    return y.unflatten(2, window_size(window, size)).to(x.image.dtype)


@run_in_window.register
def _(part: S4ND, x: Projected, window: Window, spacing: Spacing | None = None) -> Tensor:
    size = tuple(x.image.shape[2:])
    steps = as_spacing(part.spacing if spacing is None else spacing, part.num_axes, batch=len(x.image))
    if part.num_axes != 2 or max(part.stride) > 1 or part.pointwise is not None or len(steps) > 1:
        return crop(part(x.whole(), spacing), window)
    dtype = torch.promote_types(x.image.dtype, torch.float32)
    kernels = part.axis_kernels(size, spacing, dtype=dtype)
    rows, columns = (_weights(k, place, n) for k, place, n in zip(kernels, window, size, strict=True))
    with without_autocast(x.image.device):
        # Beyond the border are zeros, so the image cannot be rolled; the kernel is a product instead.
        image = x.image.to(dtype)
        if x.weight is None:
            y = torch.einsum("bkhw,kqw,kph->bkpq", image, columns, rows)
        else:
            seen = torch.einsum("bchw,kqw->bckhq", image, columns)
            y = torch.einsum("bckhq,kph,kc->bkpq", seen, rows, x.weight.to(dtype))
            if x.bias is not None:
                y = y + torch.einsum("k,kqw,kph->kpq", x.bias.to(dtype), columns, rows)
        y = torch.addcmul(y, part.skip[:, None, None].to(dtype), x.crop(window).to(dtype))
    return y.to(x.image.dtype)


@run_in_window.register
def _(part: VitBackbone, x: Projected, window: Window, spacing: Spacing | None = None) -> Tensor:
    patch, size = part.tokens.patch, x.image.shape[2:]
    if x.weight is None or x.bias is not None or any(n % patch for n in size):
        return crop(part(x.whole()), window)
    # The matrix before the patches goes into their weights.
    embed = part.tokens.embed
    joined = torch.einsum("ochw,ci->oihw", embed.weight, x.weight)
    tokens = part.encode(part.tokens.place(F.conv2d(x.image, joined, embed.bias, embed.stride)))
    rows, columns = (
        (2 * torch.arange(*place.indices(n), device=tokens.device, dtype=tokens.dtype) + 1) / n - 1
        for place, n in zip(window, size, strict=True)
    )
    points = torch.stack(torch.meshgrid(columns, rows, indexing="xy"), dim=-1)
    points = points.expand(len(tokens), *points.shape)
    return F.grid_sample(tokens, points, mode="bilinear", padding_mode="border", align_corners=False)


def _depthwise(x: Projected, kernels: Tensor, window: Window) -> Tensor:
    """A filter of its own for each widened channel, from the few: kernels ``(K, N)`` to ``(B, K, P)``."""
    image = seen_from(x.image.to(kernels.dtype), window)
    if x.weight is None:
        return torch.einsum("bkpn,kn->bkp", image, kernels)
    y = torch.einsum("bcpk,kc->bkp", image @ kernels.T, x.weight.to(kernels.dtype))
    return y if x.bias is None else y + (x.bias * kernels.sum(1))[:, None]


def _weights(kernel: Tensor, place: slice, size: int) -> Tensor:
    """A kernel of all lags ``(C, 2 N - 1)`` as weights of N samples for some places, ``(C, P, N)``."""
    places = torch.arange(*place.indices(size), device=kernel.device)
    lags = places[:, None] - torch.arange(size, device=kernel.device)
    return kernel[:, lags + size - 1]
