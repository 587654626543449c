"""Who couples modes, the couplings of one call, made chunk by chunk, and their gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch

from torchsonic.arguments import choice
from torchsonic.engine.call import Operands, Options
from torchsonic.engine.coupling import Coupling, TorchCoupling
from torchsonic.engine.plan import Plan
from torchsonic.spectral.response import ModeShape
from torchsonic.spectral.tracing import just_numbers

__all__ = ["CouplingOf", "Couplings", "set_coupling"]

CouplingName = Literal["torch", "triton"]
_chosen: CouplingName = "torch"


def set_coupling(name: CouplingName) -> None:
    """Choose what couples modes in training on GPUs from now on.

    Parameters
    ----------
    name
        ``"torch"``, the default, or ``"triton"``: kernels that evaluate responses where they are used and never store
        them, on CUDA, ROCm and XPU devices. Other devices keep PyTorch's operations. The kernels were verified by
        Triton's interpreter and compiled for NVIDIA and AMD targets, but have not run on a GPU yet.

    Examples
    --------
    >>> torchsonic.set_coupling("torch")
    """
    global _chosen
    choice(name, ("torch", "triton"), "name")
    if name == "triton":
        _triton()
    _chosen = name


def _triton():
    from torchsonic.engine import triton_coupling

    return triton_coupling


def _coupling_class(device: torch.device) -> Callable[..., Coupling]:
    if _chosen == "triton" and just_numbers() and (device.type in ("cuda", "xpu") or _triton().INTERPRETED):
        return _triton().TritonCoupling
    return TorchCoupling


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
