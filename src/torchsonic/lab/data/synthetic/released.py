"""SynthShape as in the authors' released script: scenes on a grid of pixels, and perturbations; from facts about it.

The script is ``examples/synthshape.py`` of GijsMoens/Sonic. A scene has one object of each kind, placed one after the
other in random order where it covers none placed before; noise is in every image. Perturbations see whole batches.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from torchsonic.lab.data.synthetic.perturbations import (
    PERTURBATIONS,
    Perturbation,
    add_noise,
    move_affinely,
    sample_at,
    similarity,
)
from torchsonic.lab.data.synthetic.shapes import KINDS

ATTEMPTS, NOISE = 100, 0.2
COLOURS = np.array(
    [(1, 0, 0), (0, 0, 1), (0, 1, 0), (0, 1, 1), (1, 0.5, 0), (1, 1, 0), (1, 0, 1), (0.5, 0.5, 0.5)], np.float32
)


@dataclass(frozen=True)
class ReleasedShapes:
    """Samples by number; see :class:`torchsonic.lab.data.SynthShape`.

    Examples
    --------
    >>> image, label = ReleasedShapes().samples([0, 1])
    >>> image.shape, float(image.min()), float(image.max())
    (torch.Size([2, 3, 64, 64]), 0.0, 1.0)
    """

    seed: int = 0
    size: tuple[int, int] = (64, 64)

    num_classes = len(KINDS)

    def samples(self, indices: Sequence[int]) -> tuple[Tensor, Tensor]:
        """Images ``(B, 3, H, W)`` in [0, 1] and labels ``(B, H, W)`` of some samples."""
        images, labels = zip(*[self._scene(int(index)) for index in indices], strict=True)
        return torch.from_numpy(np.stack(images)), torch.from_numpy(np.stack(labels))

    def _scene(self, index: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        draw = np.random.Generator(np.random.Philox(key=[self.seed, index]))
        image, label = np.zeros((3, *self.size), np.float32), np.zeros(self.size, np.int64)
        for kind in draw.permutation(np.arange(1, len(KINDS))):
            for covered in _candidates(KINDS[kind], self.size, draw):
                if not label[covered].any():
                    colour = COLOURS[draw.integers(len(COLOURS))] * draw.uniform(0.7, 1.2) + draw.uniform(-0.1, 0.1, 3)
                    image[:, covered], label[covered] = colour[:, None], kind
                    break
        image += NOISE * draw.standard_normal(image.shape, dtype=np.float32)
        return image.clip(0, 1), label


def _candidates(kind: str, size: tuple[int, int], draw: np.random.Generator) -> Iterator[NDArray[np.bool_]]:
    """Pixels that an object of random size and place would cover, again and again; lengths are in pixels."""
    height, width = size
    shorter = min(size)
    y, x = np.ogrid[:height, :width]

    def place(margin: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Offsets of all pixels from a centre that is so far from the edges."""
        return y - draw.integers(margin, height - margin), x - draw.integers(margin, width - margin)

    for _ in range(ATTEMPTS):
        if kind == "circle":
            radius = int(draw.integers(shorter // 10, shorter // 2))
            down, right = place(radius)
            yield down**2 + right**2 <= radius**2
        elif kind == "square":
            side = int(draw.integers(3, shorter // 6 + 1))
            top, left = draw.integers(0, height - side), draw.integers(0, width - side)
            yield (y >= top) & (y < top + side) & (x >= left) & (x < left + side)
        elif kind == "triangle":  # its base is its first row
            base = int(draw.integers(5, shorter // 5 + 1))
            tall = int(base * math.sqrt(3) / 2)
            down = y - draw.integers(0, height - tall)
            right = np.abs(x - draw.integers(base // 2, width - base // 2))
            yield (down >= 0) & (down < tall) & (right <= base / 2 * (1 - down / tall))
        elif kind == "cross":
            arm = int(draw.integers(5, shorter // 5 + 1))
            bar = int(draw.integers(max(1, arm // 4), arm // 2 + 1))
            down, right = place(arm)
            thin = [(t >= -(bar // 2)) & (t < bar // 2 + bar % 2) for t in (down, right)]
            long = [(t >= -arm) & (t < arm) for t in (down, right)]
            yield (thin[0] & long[1]) | (long[0] & thin[1])
        else:
            radius = int(draw.integers(5, shorter // 5 + 1))
            down, right = place(radius)
            edge = 0.4 + 0.6 * (np.cos(5 * np.arctan2(down, right)) + 1) / 2
            yield np.hypot(down, right) <= radius * edge


def _distort(image: Tensor, label: Tensor, level: float, generator: torch.Generator, outside: int):
    """Displace each pixel by noise of its own. The grid's outermost places are the edges of the image, not centres."""
    height, width = image.shape[2:]
    y, x = torch.meshgrid(torch.linspace(-1, 1, height), torch.linspace(-1, 1, width), indexing="ij")
    shift = level / 20 * torch.randn(len(image), height, width, 2, generator=generator)
    grid = torch.stack([x, y], -1) + shift / torch.tensor([width, height])
    return sample_at(image, label, grid, outside, beyond="zeros")


def _add_noise(image: Tensor, label: Tensor, level: float, generator: torch.Generator, outside: int):
    image, label = add_noise(image, label, level, generator, outside)
    return image.clamp(0, 1), label


def _resize(image: Tensor, label: Tensor, level: float, generator: torch.Generator, outside: int):
    size = [max(4, round(level * n)) for n in image.shape[2:]]
    resized = F.interpolate(image, size, mode="bilinear", align_corners=False)
    return resized, F.interpolate(label[:, None].double(), size, mode="nearest")[:, 0].long()


def _rescale(image: Tensor, label: Tensor, level: float, generator: torch.Generator, outside: int):
    """Resize, then cut out the middle or surround it with zeros, to the same grid."""
    resized, moved = _resize(image, label, level, generator, outside)
    # Of the last axis first; negative ones crop.
    margins = [image.shape[axis] - resized.shape[axis] for axis in (3, 2)]
    edges = [part for margin in margins for part in (int(margin / 2), margin - int(margin / 2))]
    return F.pad(resized, edges), F.pad(moved, edges, value=outside)


def _rotate(image: Tensor, label: Tensor, level: float, generator: torch.Generator, outside: int):
    return move_affinely(image, label, similarity(len(image), degrees=-level), outside, beyond="zeros")


def _translate(image: Tensor, label: Tensor, level: float, generator: torch.Generator, outside: int):
    """Shift the whole batch by so many per cent of the size, times the mean of random signs, one of each image."""
    signs = 2.0 * torch.randint(2, (len(image), 2), generator=generator) - 1
    size = torch.tensor([image.shape[3], image.shape[2]])
    shift = -2 * level / 100 * size * signs.mean(0) / (size - 1)
    return move_affinely(
        image, label, similarity(len(image), shift=shift.expand(len(image), 2)), outside, beyond="zeros"
    )


def _combine(image: Tensor, label: Tensor, level: float, generator: torch.Generator, outside: int):
    for change, strength in (
        (_distort, level / 5),
        (_rescale, 1 + 0.1 * (level / 10 - 1)),
        (_rotate, level / 2),
        (_translate, level / 2),
        (_add_noise, 0.005 * level),
    ):
        image, label = change(image, label, strength, generator, outside)
    return image, label


_CHANGES = {"distortion": _distort, "noise": _add_noise, "rotation": _rotate, "translation": _translate}
_CHANGES |= {"rescaling": _rescale, "combined": _combine}
# A model that is told the spacing of a rescaled image gets it as it was resized.
RELEASED_PERTURBATIONS = {
    name: Perturbation(_CHANGES[name], own.levels, told=_resize if name == "rescaling" else None)
    for name, own in PERTURBATIONS.items()
}
