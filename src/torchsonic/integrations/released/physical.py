"""What the numbers of a released layer mean.

Assumed, after the paper's Appendix A and the reference implementation:

* early: ``s = softplus(scale_raw)``, ``Re a = -softplus(alpha)``, ``Im a = rho tanh(beta_raw)``,
  ``tau = softplus(tau_raw)``, ``v = (vx, vy[, vz])`` brought to length one;
* late: ``s = exp(log_scale)``, ``Re a = -softplus(alpha_raw)``, ``Im a = beta``, ``tau = exp(log_tau)``,
  ``g = exp(log_dc_gain)`` but at least 1e-8, ``w_c = sigmoid(log_bandwidth)`` of the Nyquist frequency of the coarsest
  axis, ``v = (cos theta, sin theta)`` or ``(sin theta cos phi, sin theta sin phi, cos theta)``;
* before that, ``log_alpha``: ``-Re a = g = exp(log_alpha)``;
* x is the last array axis, y the one before, z the first: ``v`` is turned round into array-axis order;
* ``Bmask`` multiplies ``B``.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from torchsonic.integrations.released.generations import ReleasedLayer

SMALLEST_GAIN = 1e-8


class Physical(NamedTuple):
    """Parameters with units; ``(M,)`` but ``direction (M, D)``, ``mix_in (M, C)``, ``mix_out (K, M)`` complex.

    ``gain`` and ``cutoff`` (a part of the Nyquist frequency) are ``None`` where a generation has none of its own.
    """

    direction: Tensor
    scale: Tensor
    damping: Tensor
    oscillation: Tensor
    transverse: Tensor
    gain: Tensor | None
    cutoff: Tensor | None
    mix_in: Tensor
    mix_out: Tensor


def physical(layer: ReleasedLayer) -> Physical:
    """Undo the reparameterisation of a layer, in float64."""
    t = layer.tensors
    mix_in, mix_out = torch.complex(t["B_re"], t["B_im"]), torch.complex(t["C_re"], t["C_im"])
    if "Bmask" in t:
        mix_in = mix_in * t["Bmask"]
    gain = cutoff = None
    if layer.family == "early":
        axes = [t[name] for name in ("vx", "vy", "vz") if name in t]
        scale, transverse = F.softplus(t["scale_raw"]), F.softplus(t["tau_raw"])
        damping, oscillation = F.softplus(t["alpha"]), t["rho"].reshape(()) * torch.tanh(t["beta_raw"])
    else:
        axes = _from_angles(t["theta_v"], t.get("phi_v"))
        scale, transverse, oscillation = t["log_scale"].exp(), t["log_tau"].exp(), t["beta"]
        damping = t["log_alpha"].exp() if "log_alpha" in t else F.softplus(t["alpha_raw"])
        gain = t["log_alpha" if "log_alpha" in t else "log_dc_gain"].exp().clamp_min(SMALLEST_GAIN)
        cutoff = torch.sigmoid(t["log_bandwidth"]) if "log_bandwidth" in t else None
    direction = torch.stack(axes[::-1], dim=-1)
    return Physical(direction, scale, damping, oscillation, transverse, gain, cutoff, mix_in, mix_out)


def _from_angles(theta: Tensor, phi: Tensor | None) -> list[Tensor]:
    """Components x, y[, z]."""
    if phi is None:
        return [theta.cos(), theta.sin()]
    return [theta.sin() * phi.cos(), theta.sin() * phi.sin(), theta.cos()]
