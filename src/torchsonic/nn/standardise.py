"""The paper's note (i): input normalised to mean 0 and variance 1."""

from __future__ import annotations

from typing import Literal

from torch import Tensor

from torchsonic.spectral.constants import fixed
from torchsonic.spectral.nyquist import field_power

Standardise = bool | Literal["channel", "sample"]


@fixed
def _smallest_power() -> float:
    return 1e-5


def standardise(x: Tensor, over: Standardise, num_axes: int, *, exact: bool) -> Tensor:
    """Normalise each channel of a sample, or each sample, to mean 0 and variance 1.

    Parameters
    ----------
    x
        ``(B, C, N_1 .. N_D)``.
    over
        What to average over; see ``standardise`` of :class:`torchsonic.SonicConv2d`.
    exact
        Whether ``True`` means the variance of the field. The variance of the samples depends on the grid if there is
        power at the Nyquist frequency.
    """
    axes = tuple(range(1 if over == "sample" else 2, x.dim()))
    centred = x - x.mean(axes, keepdim=True)
    power = field_power(centred, num_axes) if over is True and exact else centred.square().mean(axes, keepdim=True)
    return centred * (power + _smallest_power()).rsqrt()
