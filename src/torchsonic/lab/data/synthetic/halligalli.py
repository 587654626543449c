"""HalliGalli: does exactly one pair of the four corner shapes match? To be answered at the empty centre.

A shape sits in each corner; the central patch is labelled 1 if exactly two of the four match (one pair, the other two
different from it and from each other) and 0 otherwise, both equally often. All other pixels are ignored. With shapes of
one intensity at fixed places there are 625 scenes. If training sees them all, the question is whether a network can
bring the corners together at all; ``unseen`` leaves some out for testing. ``jitter``, ``size_spread`` and ``colours``
make harder levels.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from torchsonic.lab.data.draws import number_generator, sample_uniforms
from torchsonic.lab.data.labels import IGNORE
from torchsonic.lab.data.synthetic.shapes import KINDS, Scenes, render

FIELD = 64
CORNER = 8.0
RADIUS = 6.0
INTENSITY, GROUND = 1.0, 0.0
_NEAR, _FAR = CORNER / FIELD, 1 - CORNER / FIELD
CORNERS = np.array([[_NEAR, _NEAR], [_NEAR, _FAR], [_FAR, _NEAR], [_FAR, _FAR]])


@cache
def _arrangements(unseen: float, split: int, left_out: bool) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Fillings of four corners, those without and with exactly one pair, ``(.., 4)`` each: seen or left out."""
    every = np.array(list(itertools.product(range(1, len(KINDS)), repeat=4)))
    shuffled = number_generator(split, 0, purpose=0).permutation(every).tolist()
    found = []
    for is_pair in (False, True):
        orders: dict[tuple[int, ...], list[list[int]]] = defaultdict(list)
        for corners in shuffled:
            if (len(set(corners)) == 3) == is_pair:
                orders[tuple(sorted(corners))].append(corners)
        # One order of each four shapes after another, so that all are left out about as often; the first is kept.
        rounds = itertools.zip_longest(*(each[1:] for each in orders.values()))
        candidates = [corners for each in rounds for corners in each if corners is not None]
        count = max(round(unseen * sum(map(len, orders.values()))), unseen > 0)
        chosen = sorted(candidates[:count])
        found.append(chosen if left_out else sorted(c for each in orders.values() for c in each if c not in chosen))
    return np.array(found[0]), np.array(found[1])


def _make_scenes(kind: NDArray[np.int64], centre: NDArray[Any], radius: NDArray[Any], colour: NDArray[Any]) -> Scenes:
    return Scenes(
        kind=kind,
        centre=centre.astype(np.float32),
        radius=radius.astype(np.float32),
        colour=colour.astype(np.float32),
        ground=np.full((len(kind), 3), GROUND, np.float32),
    )


@lru_cache(maxsize=4)
def _plain_images(size: tuple[int, int]) -> NDArray[np.float32]:
    """All scenes of one intensity at fixed places by their four shapes, ``(5, 5, 5, 5, 3, H, W)``: 31 MB at 64 x 64."""
    kinds = len(KINDS) - 1
    kind = np.array(list(itertools.product(range(1, len(KINDS)), repeat=4)))
    centre = np.broadcast_to(CORNERS, (len(kind), 4, 2))
    radius = np.full((len(kind), 4), RADIUS / FIELD)
    image, _ = render(_make_scenes(kind, centre, radius, np.full((len(kind), 4, 3), INTENSITY)), size)
    return image.reshape(*[kinds] * 4, *image.shape[1:])


@dataclass(frozen=True)
class HalliGalli:
    """Samples of the task by number.

    Parameters
    ----------
    seed
        Of the whole, endless set.
    size
        Pixels of an image; the scenes do not depend on it.
    patch
        Side of the labelled patch in pixels of a 64-pixel field.
    jitter, size_spread
        Largest shift of a shape in such pixels, and relative change of its radius.
    colours
        Random colours instead of one intensity.
    unseen
        Share, at most 0.5, of the arrangements of either class that are never drawn, but at least one of each. The same
        four shapes are always drawn in some other order.
    split
        Seed of the choice of these.
    left_out
        Draw only these instead.

    Examples
    --------
    >>> from torchsonic.lab.data import HalliGalli
    >>> image, label = HalliGalli().samples(range(4))
    >>> label[:, 31:33, 31:33].flatten(1).amax(1)
    tensor([1, 0, 0, 1])
    """

    seed: int = 0
    size: tuple[int, int] = (64, 64)
    patch: int = 2
    jitter: float = 0.0
    size_spread: float = 0.0
    colours: bool = False
    unseen: float = 0.0
    split: int = 0
    left_out: bool = False

    num_classes = 2

    @property
    def _varies(self) -> bool:
        return self.jitter != 0 or self.size_spread != 0 or self.colours

    def scenes(self, indices: Sequence[int]) -> tuple[Scenes, NDArray[np.int64]]:
        """The continuous scenes of some samples and their classes."""
        numbers = sample_uniforms(self.seed, indices, 2 + 4 * 6)
        slots = numbers[:, 2:].reshape(len(indices), 4, 6)
        answer = (numbers[:, 0] < 0.5).astype(np.int64)
        others, pairs = _arrangements(self.unseen, self.split, self.left_out)
        kind = np.where(
            answer[:, None] == 1,
            pairs[np.floor(numbers[:, 1] * len(pairs)).astype(np.int64)],
            others[np.floor(numbers[:, 1] * len(others)).astype(np.int64)],
        )
        centre = CORNERS + self.jitter / FIELD * (2 * slots[..., :2] - 1)
        radius = RADIUS / FIELD * (1 + self.size_spread * (2 * slots[..., 2] - 1))
        colour = 0.35 + 0.65 * slots[..., 3:] if self.colours else np.full((len(indices), 4, 3), INTENSITY)
        return _make_scenes(kind, centre, radius, colour), answer

    def window(self, size: tuple[int, int] | None = None) -> tuple[slice, slice]:
        """Rows and columns of the labelled patch on a grid."""
        rows, columns = (self._within(count) for count in size or self.size)
        return slice(rows[0], rows[-1] + 1), slice(columns[0], columns[-1] + 1)

    def _within(self, count: int) -> list[int]:
        """The pixels of an axis whose centres lie in the patch; on too coarse a grid, those nearest its middle."""
        distance = np.abs((np.arange(count) + 0.5) / count - 0.5)
        inside = np.flatnonzero(distance < self.patch / 2 / FIELD)
        return (inside if inside.size else np.flatnonzero(distance <= distance.min() + 1e-9)).tolist()

    def samples(self, indices: Sequence[int], size: tuple[int, int] | None = None) -> tuple[Tensor, Tensor]:
        """Images ``(B, 3, H, W)`` in [0, 1] and labels ``(B, H, W)``, on any grid; all but the patch is ignored."""
        size = size or self.size
        scenes, answer = self.scenes(indices)
        image = render(scenes, size)[0] if self._varies else _plain_images(size)[tuple((scenes.kind - 1).T)]
        label = np.full((len(indices), *size), IGNORE, np.int64)
        label[(slice(None), *self.window(size))] = answer[:, None, None]
        return torch.from_numpy(image), torch.from_numpy(label)
