"""Filters with one input and one output, and what becomes of them on another grid.

A filter is a mode, a small bank, or one entry of a trained layer. The same continuous image is filtered on two grids by
three operators that agree as well as they can on the first. All are set there and then left alone: SONIC by its
parameters, GFNet by a mask that equals SONIC's spectrum bin by bin, and a 3x3 convolution by the nine taps that bring
it closest to SONIC's output for this image. On another grid SONIC is given the spacing, GFNet interpolates its mask as
its authors do, and the taps stay taps. Each output is then resampled exactly to the reference grid and compared with
the operator's own output there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor

from torchsonic.baselines import GFNet
from torchsonic.explorer.images import DETAIL, FIELD_MM, REFERENCE
from torchsonic.explorer.knobs import ModeValues
from torchsonic.functional import ModeOperator, Modes, mode_response, reference_gain, resample, sonic_conv

BANK_SIZE = 8
MODE_CHUNK = 8
RIDGE = 1e-3
_UNIT = FIELD_MM / REFERENCE[0]
_OFFSETS = [(down, right) for down in (-1, 0, 1) for right in (-1, 0, 1)]


def mode_of(values: ModeValues) -> ModeOperator:
    """One mode alone, with unit mean power on the reference grid of 1 mm."""
    return _modes([values], [1.0])


def bank_of(values: ModeValues) -> ModeOperator:
    """The mean of the mode rotated to eight directions."""
    step = 360 / BANK_SIZE
    turned = [replace(values, orientation=values.orientation + step * i) for i in range(BANK_SIZE)]
    return _modes(turned, [1 / BANK_SIZE] * BANK_SIZE)


def _modes(values: Sequence[ModeValues], weights: Sequence[float]) -> ModeOperator:
    direction = torch.tensor([v.direction for v in values])
    scale = torch.tensor([v.scale for v in values])
    pole = torch.tensor([complex(-v.damping, v.oscillation) for v in values])
    transverse = torch.tensor([v.transverse for v in values])
    gain = reference_gain(direction, scale, pole, transverse, 1.0)
    mix_in = torch.ones(len(values), 1, dtype=pole.dtype)
    mix_out = torch.tensor([weights], dtype=pole.dtype)
    return ModeOperator(Modes(direction, scale, pole, transverse, gain, mix_in, mix_out))


def apply_filter(x: Tensor, operator: ModeOperator, spacing: float | tuple[float, float]) -> Tensor:
    """Apply an operator, few modes at a time: small tensors stay in the cache and are quickly allocated."""
    return sonic_conv(x, operator, spacing=spacing, execution={"mode_chunk": MODE_CHUNK})


def kernel_of(operator: ModeOperator, size: tuple[int, int], spacing: float | tuple[float, float]) -> Tensor:
    """The spatial kernels on a periodic grid, ``(K, H, W)``, the origin at ``size // 2``: answers to one impulse."""
    impulse = torch.zeros(1, 1, *size)
    impulse[0, 0, size[0] // 2, size[1] // 2] = 1.0
    return apply_filter(impulse, operator, spacing)[0]


def mode_magnitude(operator: ModeOperator, highest: float, count: int) -> Tensor:
    """``|T|`` of the first mode, without gain, at the frequencies of :func:`symbol_magnitude`."""
    return mode_response(_frequencies(highest, count), *operator.modes[:4])[0].abs()


def symbol_magnitude(operator: ModeOperator, highest: float, count: int) -> Tensor:
    """``|H|`` from the first input to the first output at ``count x count`` frequencies up to ``highest`` rad/mm.

    Frequencies are the centres of cells; the first axis runs from top (positive, up) to bottom, as pictures are drawn.
    """
    return operator.symbol(_frequencies(highest, count))[..., 0, 0].abs()


def _frequencies(highest: float, count: int) -> Tensor:
    axis = (torch.arange(count) + 0.5) * (2 * highest / count) - highest
    return torch.stack(torch.meshgrid(axis, axis, indexing="ij"), dim=-1)


class Subject:
    """A field, ``(256, 256)`` as ``as_field`` gives it, and what does not change while a filter is turned."""

    def __init__(self, field: Tensor) -> None:
        self.field = field
        self.centred = field - field.mean()
        self.spectrum = torch.fft.rfft2(self.centred)
        # The image as each of the nine taps meets it, (9, 65536), and how alike those nine are.
        # In float64, since neighbouring pixels are nearly the same.
        exact = self.centred.double()
        self._seen = torch.stack([exact.roll((-down, -right), (0, 1)).flatten() for down, right in _OFFSETS])
        self._alike = self._seen @ self._seen.mT

    def fit_taps(self, target: Tensor) -> tuple[Tensor, Tensor]:
        """The 3x3 taps that, slid over the image in a circle, come closest to ``target (256, 256)``; and their output.

        Least squares; where neighbouring pixels are nearly equal a little ridge keeps taps small, as weight decay does.
        """
        ridge = RIDGE * self._alike[0, 0].clamp_min(1e-20) * torch.eye(9, dtype=torch.float64)
        taps = torch.linalg.solve(self._alike + ridge, self._seen @ target.flatten().double())
        return taps.reshape(3, 3).to(target), (taps @ self._seen).reshape(REFERENCE).to(target)


@dataclass(frozen=True)
class Outcome:
    """One operator's output on both grids, and how far the second is from the first."""

    reference: Tensor
    sampled: Tensor
    difference: float


@dataclass(frozen=True)
class Comparison:
    """All three.

    ``fit`` says how far the best 3x3 convolution is from SONIC on the reference grid, ``lost`` how much of SONIC's
    output there the other grid cannot hold, whichever filter computes it.
    """

    sonic: Outcome
    conv: Outcome
    gfnet: Outcome
    fit: float
    lost: float


def relative_difference(values: Tensor, reference: Tensor) -> float:
    """``|values - reference| / |reference|``."""
    return float((values - reference).norm() / reference.norm().clamp_min(1e-20))


def reference_kernel(operator: ModeOperator) -> Tensor:
    """SONIC's kernel on the reference grid, ``(256, 256)``, its origin in the middle."""
    return kernel_of(operator, REFERENCE, _UNIT)[0]


@torch.no_grad()
def compare_operators(
    subject: Subject, operator: ModeOperator, size: tuple[int, int], kernel: Tensor | None = None
) -> Comparison:
    """Filter an image, less its mean, and its sampling on ``size`` with SONIC, GFNet and 3x3 taps.

    ``kernel`` is :func:`reference_kernel` of the operator, if it is known already.
    """
    kernel = reference_kernel(operator) if kernel is None else kernel
    mask = torch.fft.rfft2(torch.fft.ifftshift(kernel))
    target = torch.fft.irfft2(subject.spectrum * mask, s=REFERENCE)  # SONIC and GFNet are one on this grid
    taps, fitted = subject.fit_taps(target)

    sampled = resample(subject.centred[None, None], size)
    spacing = (FIELD_MM / size[0], FIELD_MM / size[1])
    return Comparison(
        sonic=_outcome(target, apply_filter(sampled, operator, spacing)),
        conv=_outcome(fitted, F.conv2d(F.pad(sampled, (1, 1, 1, 1), mode="circular"), taps[None, None])),
        gfnet=_outcome(target, _mask_layer(mask)(sampled)),
        fit=relative_difference(fitted, target),
        lost=0.0 if min(size) > DETAIL else _lost(target, size),
    )


def _lost(target: Tensor, size: tuple[int, int]) -> float:
    """What a grid that is too coarse for the image's band cannot hold."""
    held = resample(resample(target[None, None], size), REFERENCE)
    return relative_difference(held[0, 0], target)


def _outcome(reference: Tensor, sampled: Tensor) -> Outcome:
    back = resample(sampled, REFERENCE)[0, 0]
    return Outcome(reference, sampled[0, 0], relative_difference(back, reference))


def _mask_layer(mask: Tensor) -> GFNet:
    """GFNet with the mask that makes it SONIC on the reference grid, ``(256, 129)``."""
    layer = GFNet(1, 1, grid=REFERENCE).eval()
    layer.mask.copy_(torch.view_as_real(mask)[None])
    return layer
