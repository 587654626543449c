"""Operators with swapped axes, or rotated by any angle, if their parameters allow it."""

from __future__ import annotations

from copy import deepcopy
from functools import singledispatch

import torch
from torch import Tensor, nn

from torchsonic import baselines
from torchsonic.baselines.backbones import VitBackbone
from torchsonic.baselines.circular_filter import make_real
from torchsonic.lab.report.operators.fields import SWAP
from torchsonic.nn import SonicConvNd
from torchsonic.nn.hybrid import HybridConv


def turned(layer: nn.Module, matrix: Tensor) -> nn.Module | None:
    """A copy that does to a rotated image what ``layer`` does to the image; ``None`` if its parameters do not allow it.

    ``matrix`` is orthogonal, ``(2, 2)``, and acts on coordinates in the order of the array's axes.
    """
    copy = deepcopy(layer)
    with torch.no_grad():
        return copy if _turn(copy, matrix) else None


@singledispatch
def _turn(layer: nn.Module, matrix: Tensor) -> bool:
    """Operators on a grid can be swapped, by ``_swap``, and nothing else."""
    if not torch.equal(matrix, SWAP):
        return False
    _swap(layer)
    return True


@_turn.register(baselines.NonLocal)
@_turn.register(baselines.DoubleAttention)
def _(layer: nn.Module, matrix: Tensor) -> bool:
    return True  # they know no direction


@_turn.register
def _(layer: SonicConvNd, matrix: Tensor) -> bool:
    layer.raw_direction.copy_(layer.raw_direction @ matrix.to(layer.raw_direction).T)
    return True


@_turn.register(baselines.NIFF)
@_turn.register(baselines.ContinuousFNO)
def _(layer: baselines.NIFF | baselines.ContinuousFNO, matrix: Tensor) -> bool:
    for network in (layer.real, layer.imaginary):
        weight = network[0].weight
        assert isinstance(weight, Tensor)
        weight.copy_(weight @ matrix.to(weight).T)
    return True


@singledispatch
def _swap(layer: nn.Module) -> None:
    raise TypeError(f"no rule for how to swap the axes of {type(layer).__name__}")


def _transpose(*weights: Tensor) -> None:
    for weight in weights:
        weight.copy_(weight.mT.clone())


@_swap.register(nn.Conv2d)
def _(layer: nn.Conv2d) -> None:
    _transpose(layer.weight)


@_swap.register
def _(layer: baselines.Dilated) -> None:
    _transpose(layer.conv.weight)


@_swap.register
def _(layer: baselines.RepLK) -> None:
    assert layer.large is not None
    assert layer.small is not None
    _transpose(layer.large.conv.weight, layer.small.conv.weight)


@_swap.register
def _(layer: baselines.SNO) -> None:
    _transpose(layer.coefficients)


@_swap.register
def _(layer: HybridConv) -> None:
    layer.sonic.raw_direction.copy_(layer.sonic.raw_direction.flip(1))
    _transpose(layer.local.weight)


@_swap.register
def _(layer: VitBackbone) -> None:
    _transpose(layer.tokens.embed.weight, layer.tokens.positions)


@_swap.register
def _(layer: baselines.S4ND) -> None:
    for parameter in (layer.log_decay, layer.frequency, layer.drive, layer.readout, layer.log_step):
        parameter.copy_(parameter.flip(0))


@_swap.register
def _(layer: baselines.GFNet) -> None:
    response = make_real(torch.view_as_complex(layer.mask), layer.grid)
    kernel = torch.fft.irfft2(response, s=layer.grid)
    layer.mask.copy_(torch.view_as_real(torch.fft.rfft2(kernel.mT)))


@_swap.register
def _(layer: baselines.SpectralCNN) -> None:
    kernel = torch.fft.ifftshift(layer.kernel(dtype=layer.spectrum.dtype), dim=(-2, -1))
    layer.spectrum.copy_(torch.view_as_real(torch.fft.rfft2(kernel.mT)))


@_swap.register
def _(layer: baselines.FNO) -> None:
    kept = max(layer.num_wavenumbers)
    half = layer.matrices((2 * kept + 1,) * 2, dtype=layer.weight.dtype)
    whole = torch.cat([half[..., 1:].conj().flip((-2, -1)), half], dim=-1)
    layer.weight.copy_(torch.view_as_real(whole.mT[..., kept - 1 :].contiguous()))
