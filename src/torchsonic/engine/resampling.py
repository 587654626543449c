"""Band-limited resampling with its adjoint: in eager mode, and as a custom operator for compilers and exporters.

Resampling is linear, so its gradient is its adjoint: two half spectra, where automatic differentiation of ``rfftn``
would transform full complex ones. Between centred grids, it is one matrix product per axis, which needs no adjoint.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from torchsonic.engine.lowering import number
from torchsonic.engine.transform import analyse, analyse_adjoint, synthesise, synthesise_adjoint
from torchsonic.spectral.band import Band
from torchsonic.spectral.constants import made_once, pi

__all__ = ["centred_matrix", "multiply_axes", "resample_signals"]


def resample_signals(x: Tensor, size: tuple[int, ...]) -> Tensor:
    """Sample the trigonometric interpolant of ``x (B, C, *)`` on another grid of the same extent."""
    if torch.compiler.is_compiling():
        # Nyquist bins depend on whether sizes are odd or even, so tracing would make one graph per combination.
        return torch.ops.torchsonic.resample(x, list(size))
    return _Resample.apply(x, size, False)  # type: ignore[return-value]


@made_once
def centred_matrix(size: int, out_size: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Trigonometric interpolation of one axis at samples about the same centre, ``(out_size, size)``.

    Sizes may be symbols.
    """
    reach = min(size, out_size) // 2
    wavenumbers = torch.arange(reach + 1, device=device)

    def angles(samples: int) -> Tensor:  # turns are counted in integers and whole ones dropped, which loses no digits
        places = 2 * torch.arange(samples, device=device) - (samples - 1)
        turns = torch.remainder(wavenumbers * places[:, None], number(2 * samples, torch.int64, device))
        return turns.to(dtype) * pi() / number(samples, dtype, device)

    # Every wavenumber stands for both signs, but for 0 and the Nyquist frequency of the input.
    single = (wavenumbers == 0) | (2 * wavenumbers == size)
    weight = (2 - single.to(dtype)) / number(size, dtype, device)
    there, here = angles(out_size), angles(size)
    return there.cos() @ (here.cos() * weight).mT + there.sin() @ (here.sin() * weight).mT


def multiply_axes(
    x: Tensor, size: tuple[int, ...], make: Callable[[int, int, torch.dtype, torch.device], Tensor]
) -> Tensor:
    """Multiply each axis of ``x (B, C, *)`` whose size changes by the matrix ``make(old, new, ..)``."""
    for axis in reversed(range(2, x.dim())):  # last axis first: one large product, and less is left for the others
        old, new = x.shape[axis], size[axis - 2]
        if old == new:
            continue
        matrix = make(old, new, x.dtype, x.device)
        last = axis == x.dim() - 1
        x = x @ matrix.mT if last else (matrix @ x.movedim(axis, -2)).movedim(-2, axis)
    return x


def _forward(x: Tensor, size: Sequence[int]) -> Tensor:
    if x.numel() == 0:  # no library transforms nothing
        return _resized(x, size)
    band = Band(tuple(x.shape[2:]), tuple(size))
    return synthesise(analyse(x, band), band, tuple(size))


def _adjoint(grad: Tensor, size: Sequence[int]) -> Tensor:
    if grad.numel() == 0:
        return _resized(grad, size)
    band = Band(tuple(size), tuple(grad.shape[2:]))
    return analyse_adjoint(synthesise_adjoint(grad, band), band, tuple(size)) / math.prod(size)


def _resized(x: Tensor, size: Sequence[int]) -> Tensor:
    return x.new_empty(*x.shape[:2], *size)


class _Resample(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, size, adjoint):  # type: ignore[override]
        ctx.size, ctx.adjoint = tuple(x.shape[2:]), adjoint
        return (_adjoint if adjoint else _forward)(x, size)

    @staticmethod
    def backward(ctx, grad):  # type: ignore[override]
        return _Resample.apply(grad, ctx.size, not ctx.adjoint), None, None


def _keep_size(ctx, inputs, output) -> None:
    ctx.size = list(inputs[0].shape[2:])


_resample_op = torch.library.custom_op("torchsonic::resample", _forward, mutates_args=())
_adjoint_op = torch.library.custom_op("torchsonic::resample_adjoint", _adjoint, mutates_args=())
for _operator, _other in ((_resample_op, _adjoint_op), (_adjoint_op, _resample_op)):
    _operator.register_fake(_resized)
    _operator.register_autograd(lambda ctx, grad, other=_other: (other(grad, ctx.size), None), setup_context=_keep_size)
