"""How responses act on the coefficients of modes, and the gradient of that.

On the full spectrum, modes are complex signals with coefficients ``Z (b, m, *band)``, and ``W = T Z``. On the half
spectrum they are pairs of real signals ``P, Q`` with coefficients ``(b, m, 2, *band)``. With the responses ``T_a`` of
the pole and ``T_abar`` of its conjugate,

    Re w = T1 P - T2 Q,     Im w = T1 Q + T2 P,     T1 = (T_a + T_abar) / 2,  T2 = (T_a - T_abar) / 2i.

The paper's notes use the half spectrum as it is: ``T1 = T_a`` and ``T2 = -i T_a``.

Kernels only use the interface :class:`Coupling`. Another implementation may evaluate responses on the fly.
"""

from __future__ import annotations

import math
from typing import Protocol

import torch
from torch import Tensor

from torchsonic.engine.response_gradient import response_gradient
from torchsonic.spectral.band import Band
from torchsonic.spectral.limits import UNLIMITED, ResponseLimits, limit_backward, limit_response
from torchsonic.spectral.nyquist import average_signs, average_signs_backward
from torchsonic.spectral.response import ModeShape, Symmetry, grid_omega, respond
from torchsonic.spectral.transform import zero_imaginary

__all__ = ["Coupling", "TorchCoupling"]


class Coupling(Protocol):
    """The responses of some modes on a band, shared by the batch or one set per sample."""

    def forward(self, z: Tensor) -> Tensor:
        """Coupled coefficients ``W``."""
        ...

    def backward(self, grad: Tensor, z: Tensor) -> Tensor:
        """The gradient of ``Z`` from that of ``W``, which may be overwritten; gradients of the responses are summed up.

        On the full spectrum both are conjugates. On the half spectrum the result is divided by the number of samples of
        the input grid, so that the inverse transform need not be scaled.
        """
        ...

    def gradients(self) -> ModeShape:
        """Gradients of the modes' parameters, from all backward calls so far."""
        ...


class TorchCoupling:
    """Responses that PyTorch evaluates once and stores.

    Parameters
    ----------
    shape
        Parameters of the modes, with one row for all samples or one per sample.
    spacing
        ``(1, D)``, or one row per sample.
    differentiable
        Whether :meth:`gradients` will be called.
    """

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
        self._band, self._symmetry, self._limits = band, symmetry, limits
        self._paired = band.half and symmetry == "real"
        # The conjugate poles are evaluated as further modes.
        self._shape = _with_conjugate_poles(shape) if self._paired else shape
        self._spacing, self._omega = spacing, grid_omega(spacing, band, symmetry, shape.scale.dtype)
        raw = respond(self._omega, self._shape)
        self._raw = raw if differentiable else None
        response = limit_response(raw, self._omega, self._shape.cutoff, limits)
        if symmetry == "real":
            response = average_signs(response.clone() if response is self._raw else response, band).contiguous()
        self._responses: tuple[Tensor, ...]
        if not band.half:
            self._responses = (response,)
        elif self._paired:
            a, abar = response.chunk(2, dim=1)
            self._responses = ((a + abar).mul_(0.5), (a - abar).mul_(-0.5j))
        else:
            self._responses = (response, response * -1j)
        self._grads: list[Tensor] = []

    @property
    def num_bytes(self) -> int:
        return sum(t.nbytes for t in self._responses)

    def forward(self, z: Tensor) -> Tensor:
        if not self._band.half:
            return z * self._responses[0]
        return self._zeroed(_couple_pair(z, *self._responses))

    def backward(self, grad: Tensor, z: Tensor) -> Tensor:
        shared = self._responses[0].shape[0] == 1
        if not self._band.half:
            if self._raw is not None:
                self._add(_summed_product(grad, z) if shared else grad * z)
            return grad.mul_(self._responses[0])
        t1, t2 = self._responses
        grad = self._zeroed(grad)
        per_sample = 1 / math.prod(self._band.size_in)
        found = _couple_pair(grad, t1.conj() * per_sample, t2.conj() * -per_sample)
        if self._raw is not None:
            p, q = z.unbind(2)
            g, h = grad.conj_physical_().unbind(2)
            self._add(
                _summed((g * p).addcmul_(h, q), shared),
                _summed((h * p).addcmul_(g, q, value=-1), shared),
            )
        return found

    def gradients(self) -> ModeShape:
        assert self._raw is not None
        exact, cutoff, grad = self._symmetry == "real", None, self._take_response_gradient()
        if exact:
            grad = average_signs_backward(grad, self._band)
        if self._limits.active:
            grad, cutoff = limit_backward(grad, self._raw, self._omega, self._shape.cutoff, self._limits)
        found = response_gradient(grad, self._raw, self._shape, self._spacing, self._band, both_signs=exact)
        found = found._replace(cutoff=cutoff)
        return _fold_conjugate_poles(found) if self._paired else found

    def _take_response_gradient(self) -> Tensor:
        """The conjugate gradient of the responses, of both poles if they are paired; the sums are freed."""
        grads, self._grads = self._grads, []
        if not self._band.half:
            return grads[0]
        multiplicity = self._band.multiplicity(device=grads[0].device, dtype=grads[0].dtype.to_real())
        first, second = (g.mul_(multiplicity) for g in grads)
        second = 1j * second
        return torch.cat([first - second, first + second], dim=1).mul_(0.5) if self._paired else first - second

    def _zeroed(self, w: Tensor) -> Tensor:
        return zero_imaginary(w, self._band) if self._symmetry == "half" else w

    def _add(self, *grads: Tensor) -> None:
        self._grads = [a.add_(b) for a, b in zip(self._grads, grads, strict=True)] if self._grads else list(grads)


def _couple_pair(z: Tensor, t1: Tensor, t2: Tensor) -> Tensor:
    w = z * t1[:, :, None]
    w[:, :, 0].addcmul_(z[:, :, 1], t2, value=-1)
    w[:, :, 1].addcmul_(z[:, :, 0], t2)
    return w


def _summed_product(a: Tensor, b: Tensor) -> Tensor:
    """The sum over samples of ``a b``; on a CPU sample by sample, so that the sum stays in the cache."""
    if a.device.type != "cpu":
        return (a * b).sum(0, keepdim=True)
    total = a[:1] * b[:1]
    for left, right in zip(a[1:], b[1:], strict=True):
        total.addcmul_(left[None], right[None])
    return total


def _summed(grads: Tensor, shared: bool) -> Tensor:
    """Sum over samples if they share their responses."""
    return grads.sum(0, keepdim=True) if shared and grads.shape[0] > 1 else grads


def _with_conjugate_poles(shape: ModeShape) -> ModeShape:
    twice = shape.each(lambda t: torch.cat([t, t], dim=1))
    return twice._replace(oscillation=torch.cat([shape.oscillation, -shape.oscillation], dim=1))


def _fold_conjugate_poles(grads: ModeShape) -> ModeShape:
    first, second = grads.oscillation.chunk(2, dim=1)
    return grads.each(lambda t: sum(t.chunk(2, dim=1)))._replace(oscillation=first - second)  # type: ignore[arg-type]
