"""The coupling of :mod:`torchsonic.engine.triton_kernels`, as the engine calls it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from torchsonic.engine.response_gradient import LARGEST_GRADIENT
from torchsonic.engine.triton_kernels import BLOCK, INTERPRETED, NUM_SUMS, couple, couple_adjoint
from torchsonic.spectral.band import Band
from torchsonic.spectral.constants import constant, made_once
from torchsonic.spectral.limits import UNLIMITED, ResponseLimits
from torchsonic.spectral.response import ModeShape, Symmetry

__all__ = ["TritonCoupling"]

# The kernels are operators, so that compilers, counters and tensors without numbers know them. After the tensors come
# the lengths of three axes, the bins that stand for both signs, REAL, PAPER and the limits.


def _launch(kernel: Any, tensors: Sequence[Tensor], lengths: Sequence[int], bins: Sequence[int], **constants) -> None:
    z, omega, modes = tensors[0], *tensors[-2:]
    batch, num_modes = z.shape[:2]
    steps = [t.stride(0) if t.shape[0] > 1 else 0 for t in (omega, modes)]
    grid = (math.ceil(math.prod(lengths[:3]) / BLOCK), num_modes, batch)
    launched = kernel if INTERPRETED else torch.library.wrap_triton(kernel)
    nyquist = {f"NYQUIST{axis}": bin for axis, bin in enumerate(bins[:3])}
    launched[grid](*tensors, *steps, num_modes, *lengths, **nyquist, REAL=bins[3], **constants, BLOCK=BLOCK)


@torch.library.triton_op("torchsonic::couple", mutates_args={"out"})
def _couple(
    z: Tensor, out: Tensor, omega: Tensor, modes: Tensor, lengths: Sequence[int], bins: Sequence[int], paper: bool,
    order: int, limit: float, soft: bool,
) -> None:  # fmt: skip
    _launch(couple, (z, out, omega, modes), lengths, bins, PAPER=paper, ORDER=order, LIMIT=limit, SOFT=soft)


@torch.library.triton_op("torchsonic::couple_adjoint", mutates_args={"grad", "sums"})
def _couple_adjoint(
    z: Tensor, grad: Tensor, sums: Tensor, omega: Tensor, modes: Tensor, lengths: Sequence[int], bins: Sequence[int],
    paper: bool, order: int, limit: float, soft: bool,
) -> None:  # fmt: skip
    limits = {"PAPER": paper, "ORDER": order, "LIMIT": limit, "SOFT": soft}
    _launch(couple_adjoint, (z, grad, sums, omega, modes), lengths, bins, **limits)


@made_once
def _unit_frequencies(band: Band, device: torch.device, dtype: torch.dtype) -> Tensor:
    """Of three axes at unit spacing, one after the other; axes that are not there have the frequency zero."""
    ones = torch.ones(1, band.num_axes, device=device, dtype=dtype)
    missing = torch.zeros(3 - band.num_axes, device=device, dtype=dtype)
    return torch.cat([missing, *[axis[0] for axis in band.omega(ones, dtype=dtype)]])


@made_once
def _axis_of(band: Band, device: torch.device) -> Tensor:
    """The axis of each of these frequencies."""
    axes = [axis for axis, length in enumerate(band.shape) for _ in range(length)]
    return torch.tensor([0] * (3 - band.num_axes) + axes, device=device)


class TritonCoupling:
    """Responses evaluated by two kernels; arguments as for :class:`torchsonic.engine.coupling.TorchCoupling`.

    The band is that of half spectra.
    """

    num_bytes = 0  # of responses that are kept

    def __init__(
        self,
        shape: ModeShape,
        spacing: Tensor,
        band: Band,
        symmetry: Symmetry = "real",
        limits: ResponseLimits = UNLIMITED,
        *,
        differentiable: bool = False,
    ) -> None:
        assert band.half
        self._shape, self._band, self._differentiable = shape, band, differentiable
        dtype, missing, paper = shape.scale.dtype, 3 - band.num_axes, symmetry == "half"
        steps = spacing.index_select(1, _axis_of(band, spacing.device))
        self._omega = steps.new_empty(steps.shape, dtype=dtype)
        torch.div(_unit_frequencies(band, spacing.device, spacing.dtype), steps, out=self._omega)
        none = [constant(((0.0,) * shape.scale.shape[1],), spacing.device, dtype)] * missing
        cutoff = shape.scale if shape.cutoff is None else shape.cutoff
        columns = [*none, *shape.direction.unbind(-1), *shape[1:6], cutoff]
        rows = max(t.shape[0] for t in columns)
        self._modes = torch.stack([t.expand(rows, -1) for t in columns], -1)
        nyquist = [band.reach[axis] if axis in band.unsigned_axes else -1 for axis in range(band.num_axes)]
        bins = [-1] * 4 if paper else [*[-1] * missing, *nyquist, -1]
        self._settings = ([1] * missing + list(band.shape), [*bins[:3], nyquist[-1]], paper, *limits)
        self._sums: Tensor | None = None

    def forward(self, z: Tensor) -> Tensor:
        out = torch.empty_like(z, memory_format=torch.contiguous_format)
        views = torch.view_as_real(z.contiguous()), torch.view_as_real(out)
        torch.ops.torchsonic.couple(*views, self._omega, self._modes, *self._settings)
        return out

    def backward(self, grad: Tensor, z: Tensor) -> Tensor:
        grad, blocks = grad.contiguous(), math.ceil(math.prod(self._band.shape) / BLOCK)
        sums = self._omega.new_empty(z.shape[0], z.shape[1], blocks, NUM_SUMS)
        views = torch.view_as_real(z.contiguous()), torch.view_as_real(grad)
        (lengths, *settings), samples = self._settings, math.prod(self._band.size_in)
        tables = sums, self._omega, self._modes
        torch.ops.torchsonic.couple_adjoint(*views, *tables, [*lengths, samples], *settings)
        if self._differentiable:
            shared = self._modes.shape[0] == self._omega.shape[0] == 1
            sums = sums.sum((0, 2))[None] if shared else sums.sum(2)
            self._sums = sums if self._sums is None else self._sums + sums
        return grad

    def gradients(self) -> ModeShape:
        assert self._sums is not None
        found = self._sums.clamp_(-LARGEST_GRADIENT, LARGEST_GRADIENT)
        direction, numbers = found[..., 3 - self._band.num_axes : 3], found[..., 3:].unbind(-1)
        return ModeShape(direction, *numbers)._replace(cutoff=None if self._shape.cutoff is None else numbers[-1])
