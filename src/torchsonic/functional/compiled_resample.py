"""Resizing as a ``torch.library`` custom operator, for compilers.

Where the two signs of a Nyquist frequency meet depends on whether sizes are odd or even; traced, that would make a
graph for each combination. The operator is linear, so its gradient is its adjoint.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from torchsonic.functional.frequency import Band
from torchsonic.functional.spectrum import analyse, analyse_adjoint, synthesise, synthesise_adjoint

__all__: list[str] = []


@torch.library.custom_op("torchsonic::resample", mutates_args=())
def _resample(x: Tensor, size: Sequence[int]) -> Tensor:
    band = Band(tuple(x.shape[2:]), tuple(size))
    return synthesise(analyse(x, band), band, tuple(size))


@_resample.register_fake
def _(x, size):
    return x.new_empty(*x.shape[:2], *size)


@torch.library.custom_op("torchsonic::resample_adjoint", mutates_args=())
def _resample_adjoint(grad: Tensor, size: Sequence[int]) -> Tensor:
    band = Band(tuple(size), tuple(grad.shape[2:]))
    return analyse_adjoint(synthesise_adjoint(grad, band), band, tuple(size)) / math.prod(size)


@_resample_adjoint.register_fake
def _(grad, size):
    return grad.new_empty(*grad.shape[:2], *size)


def _keep_size(ctx, inputs, output) -> None:
    ctx.size = list(inputs[0].shape[2:])


_resample.register_autograd(
    lambda ctx, grad: (torch.ops.torchsonic.resample_adjoint(grad, ctx.size), None), setup_context=_keep_size
)
_resample_adjoint.register_autograd(
    lambda ctx, grad: (torch.ops.torchsonic.resample(grad, ctx.size), None), setup_context=_keep_size
)
