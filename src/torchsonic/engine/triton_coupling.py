"""The coupling of :mod:`torchsonic.engine.triton_kernels`, as the engine calls it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from torchsonic.engine.response_gradient import inverse_gain, with_gain
from torchsonic.engine.triton_kernels import BLOCK, INTERPRETED, NUM_SUMS, couple
from torchsonic.spectral.band import Band
from torchsonic.spectral.constants import made_once
from torchsonic.spectral.limits import UNLIMITED, ResponseLimits
from torchsonic.spectral.response import ModeShape, Symmetry

__all__ = ["INTERPRETED", "TritonCoupling"]


@torch.library.triton_op("torchsonic::couple", mutates_args={"out", "sums"})
def _couple_op(
    z: Tensor, grad: Tensor, out: Tensor, sums: Tensor, omega: Tensor, modes: Tensor, sizes: Sequence[int],
    reach: Sequence[int], num_unsigned: int, pair: bool, paper: bool, order: int, limit: float, soft: bool, back: bool,
) -> None:  # fmt: skip
    """The kernel as an operator, so that tensors without numbers, counters and compilers know it."""
    batch, num_modes = z.shape[:2]
    steps = [t.stride(0) if t.shape[0] > 1 else 0 for t in (omega, modes)]
    grid = (math.ceil(math.prod(sizes[:3]) / BLOCK), num_modes, batch)
    kernel: Any = couple if INTERPRETED else torch.library.wrap_triton(couple)
    kernel[grid](
        z, grad, out, sums, omega, modes, *steps, num_modes, *sizes,
        R0=reach[0], R1=reach[1], R2=reach[2], SIGNED=2**num_unsigned, PAIR=pair, PAPER=paper,
        ORDER=order, LIMIT=limit, SOFT=soft, BACK=back, BLOCK=BLOCK,
    )  # fmt: skip


@made_once
def _unit_frequencies(band: Band, device: torch.device, dtype: torch.dtype) -> Tensor:
    """Of three axes at unit spacing, one after the other; axes that are not there have the frequency zero."""
    ones = torch.ones(1, band.num_axes, device=device, dtype=dtype)
    missing = torch.zeros(3 - band.num_axes, device=device, dtype=dtype)
    return torch.cat([missing, *[axis[0] for axis in band.omega(ones, dtype=dtype)]])


@made_once
def _axis_of(band: Band, device: torch.device) -> Tensor:
    """The axis of each of these frequencies."""
    lengths = torch.tensor([1] * (3 - band.num_axes) + list(band.shape))
    return torch.arange(3).sub(3 - band.num_axes).clamp_min(0).repeat_interleave(lengths).to(device)


class TritonCoupling:
    """Responses evaluated by two kernels; arguments as for :class:`torchsonic.engine.coupling.TorchCoupling`."""

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
        self._shape, self._band, self._paper = shape, band, symmetry == "half"
        self._differentiable = differentiable
        dtype, num_axes = shape.scale.dtype, band.num_axes
        unit = _unit_frequencies(band, spacing.device, spacing.dtype)
        self._omega = (unit / spacing[:, _axis_of(band, spacing.device)]).to(dtype)
        rows = max(t.shape[0] for t in shape if t is not None)
        numbers = [shape.scale, shape.damping, shape.oscillation, shape.transverse, shape.gain]
        numbers.append(shape.scale if shape.cutoff is None else shape.cutoff)
        none = [torch.zeros_like(shape.scale)] * (3 - num_axes)
        columns = [*none, *shape.direction.unbind(-1), *numbers]
        self._modes = torch.stack([t.expand(rows, -1) for t in columns], -1)
        unsigned = () if self._paper else band.unsigned_axes
        reach = [band.reach[axis] if axis in unsigned else -1 for axis in range(num_axes)]
        if self._paper and num_axes - 1 in band.unsigned_axes:
            reach[-1] = band.reach[-1]  # the bin without imaginary part
        reach = [-1] * (3 - num_axes) + reach
        self._settings = (reach, len(unsigned), band.half, self._paper, *limits)
        self._sums: Tensor | None = None

    def forward(self, z: Tensor) -> Tensor:
        out = torch.empty_like(z, memory_format=torch.contiguous_format)
        self._launch(z, z, out, self._omega, back=False)
        return out

    def backward(self, grad: Tensor, z: Tensor) -> Tensor:
        grad, blocks = grad.contiguous(), math.ceil(math.prod(self._band.shape) / BLOCK)
        sums = self._omega.new_empty(z.shape[0], z.shape[1], blocks, NUM_SUMS)
        self._launch(z, grad, grad, sums, back=True)
        if self._differentiable:
            shared = self._modes.shape[0] == self._omega.shape[0] == 1
            sums = sums.sum((0, 2))[None] if shared else sums.sum(2)
            self._sums = sums if self._sums is None else self._sums + sums
        return grad

    def _launch(self, z: Tensor, grad: Tensor, out: Tensor, sums: Tensor, *, back: bool) -> None:
        samples = math.prod(self._band.size_in) if self._band.half else 1
        lengths = [1] * (3 - self._band.num_axes) + list(self._band.shape)
        views = [torch.view_as_real(t) for t in (z.contiguous(), grad, out)]
        tensors = (*views, sums, self._omega, self._modes)
        torch.ops.torchsonic.couple(*tensors, [*lengths, samples], *self._settings, back)

    def gradients(self) -> ModeShape:
        assert self._sums is not None
        shape, num_axes = self._shape, self._band.num_axes
        inverse = inverse_gain(shape)
        found = self._sums * inverse[..., None]
        cutoff = None if shape.cutoff is None else self._sums[..., 4] / shape.cutoff
        return with_gain(found[..., :4], found[..., 8 - num_axes :], shape, inverse)._replace(cutoff=cutoff)
