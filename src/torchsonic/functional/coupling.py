"""How a mode's response acts on its two real signals, and the derivative of that.

Coefficients are ``(b, m, 2, *band)``, responses ``(1 or b, m, *band)``.
"""

from __future__ import annotations

from torch import Tensor

from torchsonic.functional.frequency import Band
from torchsonic.functional.pair import Symmetry

__all__ = ["couple", "couple_gradient", "zero_imaginary"]


def couple(z: Tensor, t1: Tensor, t2: Tensor) -> Tensor:
    """``[T1 P - T2 Q; T1 Q + T2 P]`` for coefficients ``(b, m, 2, *band)``."""
    w = z * t1[:, :, None]
    w[:, :, 0].addcmul_(z[:, :, 1], t2, value=-1)
    w[:, :, 1].addcmul_(z[:, :, 0], t2)
    return w


def couple_gradient(conj_g: Tensor, z: Tensor, *, shared: bool) -> tuple[Tensor, Tensor]:
    """Conjugate gradients of ``T1`` and ``T2``, summed over the samples that share them."""
    d1 = (conj_g[:, :, 0] * z[:, :, 0]).addcmul_(conj_g[:, :, 1], z[:, :, 1])
    d2 = (conj_g[:, :, 1] * z[:, :, 0]).addcmul_(conj_g[:, :, 0], z[:, :, 1], value=-1)
    if shared and d1.shape[0] > 1:
        return d1.sum(0, keepdim=True), d2.sum(0, keepdim=True)
    return d1, d2


def zero_imaginary(w: Tensor, band: Band, symmetry: Symmetry) -> Tensor:
    """The paper's way to a real output: no imaginary part on the self-conjugate planes of the last axis."""
    if symmetry == "half":
        w[..., 0].imag.zero_()
        if band.num_axes - 1 in band.unsigned_axes:
            w[..., band.reach[-1]].imag.zero_()
    return w
