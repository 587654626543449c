"""The same continuous image on another grid, through three operators that agree as well as they can on the first.

All three are set on the reference grid and then left alone: SONIC by its parameters, GFNet by a mask that equals
SONIC's spectrum bin by bin, and a 3x3 convolution by the nine taps that bring it closest to SONIC's output for this
image. On another grid SONIC is told the spacing, GFNet interpolates its mask as its authors do, and the taps stay taps.
Each output is then resampled exactly to the reference grid and compared with the operator's own output there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from torchsonic.baselines import GFNet
from torchsonic.explorer.filters import kernel_of
from torchsonic.explorer.images import FIELD_MM, REFERENCE
from torchsonic.functional import Modes, resample, sonic_conv

__all__ = ["Comparison", "Outcome", "compare_operators", "fit_taps", "relative_difference"]

RIDGE = 1e-3


@dataclass(frozen=True)
class Outcome:
    """One operator's output on both grids, and how far the second is from the first."""

    reference: Tensor
    sampled: Tensor
    difference: float


@dataclass(frozen=True)
class Comparison:
    """All three, and SONIC's kernel on the reference grid, ``(256, 256)``.

    ``fit`` says how far the best 3x3 convolution is from SONIC on the reference grid, ``lost`` how much of SONIC's
    output there the other grid cannot hold, whoever computes it.
    """

    kernel: Tensor
    sonic: Outcome
    conv: Outcome
    gfnet: Outcome
    fit: float
    lost: float


def relative_difference(values: Tensor, reference: Tensor) -> float:
    """``|values - reference| / |reference|``."""
    return float((values - reference).norm() / reference.norm().clamp_min(1e-20))


def compare_operators(field: Tensor, modes: Modes, size: tuple[int, int]) -> Comparison:
    """Filter ``field (256, 256)``, whose mean is 0, and its sampling on ``size`` with SONIC, GFNet and 3x3 taps."""
    fine = field[None, None]
    coarse = resample(fine, size)
    spacing = (FIELD_MM / size[0], FIELD_MM / size[1])
    unit = FIELD_MM / REFERENCE[0]

    target = sonic_conv(fine, modes, spacing=unit)
    kernel = kernel_of(modes, REFERENCE, unit)[0]
    mask = _mask_layer(kernel)
    taps = fit_taps(field, target[0, 0])
    sonic = _outcome(target, sonic_conv(coarse, modes, spacing=spacing))
    gfnet = _outcome(*_both(mask, fine, coarse))
    conv = _outcome(*_both(lambda x: _convolve(x, taps), fine, coarse))
    held = resample(resample(target, size), REFERENCE)
    return Comparison(
        kernel,
        sonic,
        conv,
        gfnet,
        fit=relative_difference(conv.reference, target[0, 0]),
        lost=relative_difference(held, target),
    )


def _both(operator: Callable[[Tensor], Tensor], fine: Tensor, coarse: Tensor) -> tuple[Tensor, Tensor]:
    return operator(fine), operator(coarse)


def _outcome(reference: Tensor, sampled: Tensor) -> Outcome:
    back = resample(sampled, REFERENCE)
    return Outcome(reference[0, 0], sampled[0, 0], relative_difference(back, reference))


def _mask_layer(kernel: Tensor) -> GFNet:
    """GFNet with the mask that makes it SONIC on the reference grid."""
    origin_first = torch.fft.ifftshift(kernel)
    layer = GFNet(1, 1, grid=REFERENCE).eval()
    with torch.no_grad():
        layer.mask.copy_(torch.view_as_real(torch.fft.rfft2(origin_first))[None])
    return layer


def fit_taps(image: Tensor, target: Tensor) -> Tensor:
    """The 3x3 taps that, slid over ``image (H, W)`` in a circle, come closest to ``target``.

    Least squares from correlations; a little ridge keeps taps small, as weight decay does, where neighbouring pixels
    are nearly equal.
    """
    spectrum = torch.fft.rfft2(image.double())
    auto = torch.fft.irfft2(spectrum.abs().square(), s=image.shape)
    cross = torch.fft.irfft2(torch.fft.rfft2(target.double()).conj() * spectrum, s=image.shape)
    offsets = [(i, j) for i in (-1, 0, 1) for j in (-1, 0, 1)]
    matrix = torch.stack([torch.stack([auto[a[0] - b[0], a[1] - b[1]] for b in offsets]) for a in offsets])
    right = torch.stack([cross[o] for o in offsets])
    matrix += RIDGE * auto[0, 0] * torch.eye(9, dtype=torch.float64)
    return torch.linalg.solve(matrix, right).reshape(3, 3).to(image.dtype)


def _convolve(x: Tensor, taps: Tensor) -> Tensor:
    return F.conv2d(F.pad(x, (1, 1, 1, 1), mode="circular"), taps[None, None])
