"""The couplings of one call, made chunk by chunk, and their gradients."""

from __future__ import annotations

from collections.abc import Callable

import torch

from torchsonic.engine.accelerator import coupling_on
from torchsonic.engine.call import Operands, Options
from torchsonic.engine.coupling import Coupling, TorchCoupling
from torchsonic.engine.plan import Plan
from torchsonic.spectral.response import ModeShape

__all__ = ["CouplingOf", "Couplings"]


def _coupling_class(device: torch.device) -> Callable[..., Coupling]:
    if coupling_on(device.type) == "torch":
        return TorchCoupling
    from torchsonic.engine.triton_coupling import TritonCoupling

    return TritonCoupling


CouplingOf = Callable[[slice, slice], Coupling]
"""The coupling of some samples and modes."""


class Couplings:
    """Makes the coupling of each chunk; a single one if samples share their responses and modes are not chunked."""

    def __init__(self, operands: Operands, options: Options, plan: Plan, *, differentiable: bool = False) -> None:
        self._operands, self._options, self._plan = operands, options, plan
        self._differentiable = differentiable
        self._lasting = operands.shared and plan.mode_chunk >= operands.mix_in.shape[0]
        self._last: Coupling | None = None
        self._part = slice(None), slice(None)
        self._total: ModeShape | None = None

    def __call__(self, samples: slice, modes: slice) -> Coupling:
        if self._last is None or not self._lasting:
            self._collect()  # first, so that two couplings never exist at once
            if not self._lasting:
                self._part = samples, modes
            spacing, options = self._operands.spacing, self._options
            self._last = _coupling_class(spacing.device)(
                self._operands.shape.select(*self._part),
                spacing if spacing.shape[0] == 1 else spacing[samples],
                self._plan.band,
                options.symmetry,
                options.limits,
                differentiable=self._differentiable,
            )
        return self._last

    def gradients(self) -> ModeShape:
        """Gradients of all modes' parameters, from all couplings so far."""
        self._collect()
        return self._total or self._zeros()

    def _zeros(self) -> ModeShape:
        return self._operands.shape.each(lambda t: t.new_zeros(t.shape))

    def _collect(self) -> None:
        """Add the gradients of the last coupling, summed over samples for parameters that the batch shares."""
        last, self._last = self._last, None
        if last is None or not self._differentiable:
            return
        if self._lasting:
            self._total = last.gradients()
            return
        self._total, (samples, modes) = self._total or self._zeros(), self._part
        for target, value in zip(self._total, last.gradients(), strict=True):
            if target is None or value is None:
                continue
            if target.shape[0] == 1:
                target[:, modes] += value.sum(0, keepdim=True)
            else:
                target[samples, modes] += value
