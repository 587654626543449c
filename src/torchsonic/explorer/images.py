"""Images as continuous fields: a square of 256 mm whose detail every finer grid holds.

A field is kept as samples on the reference grid of 256 x 256 pixels of 1 mm and band-limited: it has nothing at or
above ``DETAIL / 2`` waves per side, so that each grid of more than ``DETAIL`` pixels per side holds it exactly.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

import torch
from torch import Tensor

from torchsonic.functional import resample
from torchsonic.lab.data import HalliGalli, SynthShape

FIELD_MM = 256.0
REFERENCE = (256, 256)
DETAIL = 96
_RENDERED = 512
_FULL, _NONE = 36.0, DETAIL / 2  # waves per side: kept wholly below the first, gone from the second on


def as_field(brightness: Tensor) -> Tensor:
    """Band-limit a square image, ``(N, N)`` in [0, 1] with N >= 256, and sample it on the reference grid."""
    spectrum = torch.fft.rfft2(resample(brightness[None, None].double(), REFERENCE)[0, 0])
    waves = [torch.fft.fftfreq(REFERENCE[0], 1 / REFERENCE[0]), torch.fft.rfftfreq(REFERENCE[1], 1 / REFERENCE[1])]
    kept = [0.5 + 0.5 * torch.cos(math.pi * ((w.abs() - _FULL) / (_NONE - _FULL)).clamp(0, 1)) for w in waves]
    return torch.fft.irfft2(spectrum * kept[0][:, None] * kept[1], s=REFERENCE).float()


def _grid() -> tuple[Tensor, Tensor]:
    """Down and right in [-1, 1), ``(N, N)`` each."""
    axis = torch.arange(_RENDERED) * (2 / _RENDERED) - 1
    down, right = torch.meshgrid(axis, axis, indexing="ij")
    return down, right


def _shapes() -> Tensor:
    return SynthShape(seed=3).samples([27], (_RENDERED, _RENDERED))[0][0].mean(0)


def _corners() -> Tensor:
    return HalliGalli(size_spread=0.2).samples([1], (_RENDERED, _RENDERED))[0][0].mean(0)


def _rings() -> Tensor:
    """Every orientation and frequency once: what a filter lets through can be read off."""
    down, right = _grid()
    radius = torch.hypot(down, right)
    waves = 0.5 + 0.5 * torch.cos(34 * math.pi * radius.square() / 2)
    return 0.5 + (waves - 0.5) * (0.5 + 0.5 * torch.cos(math.pi * radius.clamp(0, 1)))


def _fibres() -> Tensor:
    """Ridges like those of a fingerprint: waves that bend, with noise in their phase."""
    down, right = _grid()
    generator = torch.Generator().manual_seed(7)
    bend = torch.zeros_like(down)
    for _ in range(6):
        waves = torch.randint(-2, 3, (2,), generator=generator)
        phase = 2 * math.pi * torch.rand((), generator=generator)
        bend += torch.sin(math.pi * (waves[0] * down + waves[1] * right) + phase)
    return 0.5 + 0.5 * torch.sin(2 * math.pi * (7 * right + 5 * down) + 1.6 * bend)


def _dots() -> Tensor:
    """A few points: each shows the kernel itself."""
    down, right = _grid()
    image = torch.full_like(down, 0.1)
    for place in ((-0.5, -0.45), (0.05, 0.1), (0.55, -0.6), (-0.35, 0.6), (0.6, 0.55)):
        image += 0.9 * torch.exp(-((down - place[0]).square() + (right - place[1]).square()) / (2 * 0.016**2))
    return image.clamp(0, 1)


SAMPLES: dict[str, tuple[str, Callable[[], Tensor]]] = {
    "shapes": ("Shapes", _shapes),
    "fibres": ("Fibres", _fibres),
    "rings": ("Rings", _rings),
    "corners": ("Four corners", _corners),
    "dots": ("Dots", _dots),
}


@lru_cache(maxsize=len(SAMPLES))
def sample_field(name: str) -> Tensor:
    """The field of an included image, ``(256, 256)``."""
    return as_field(SAMPLES[name][1]())
