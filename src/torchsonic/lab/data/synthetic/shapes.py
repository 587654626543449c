"""Five primitives as continuous objects, rendered on any grid.

Places and lengths are fractions of the field, which is the unit square; the first coordinate runs down, the second to
the right. A pixel of an ``n x n`` image is a cell of side ``1 / n``; its colour is the shape's where it is covered,
mixed by an estimate of the covered part at the edge, and its label that of the cell's centre.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

KINDS = ("background", "circle", "square", "triangle", "cross", "star")
REACH = 1.15
"""No point of a shape lies further from its centre than this many radii."""

Array = NDArray[np.float32]

_STAR_INNER = 0.45


def signed_distance(kind: int, down: Array, right: Array) -> Array:
    """Distance to the edge of an upright shape of radius 1 at the origin, negative inside; inexact near corners."""
    if kind == 1:
        return np.hypot(down, right) - 1
    down_abs, right_abs = np.abs(down), np.abs(right)
    if kind == 2:
        return np.maximum(down_abs, right_abs) - np.float32(0.8)
    if kind == 3:
        slope = np.float32(math.cos(math.pi / 6)) * right_abs - np.float32(0.5) * down
        return np.maximum(slope, down) - np.float32(0.5)
    if kind == 4:
        upright = np.maximum(down_abs - 1, right_abs - np.float32(0.32))
        return np.minimum(upright, np.maximum(right_abs - 1, down_abs - np.float32(0.32)))
    # The star is its own mirror image in five sectors; one edge of one half sector remains.
    sector = np.float32(2 * math.pi / 5)
    radius, angle = np.hypot(down, right), np.arctan2(right, -down)
    folded = np.abs(np.mod(angle + sector / 2, sector) - sector / 2)
    inner = (_STAR_INNER * math.cos(math.pi / 5), _STAR_INNER * math.sin(math.pi / 5))
    edge = (inner[0] - 1, inner[1])
    length = math.hypot(*edge)
    normal = (np.float32(edge[1] / length), np.float32(-edge[0] / length))
    return (radius * np.cos(folded) - 1) * normal[0] + radius * np.sin(folded) * normal[1]


@dataclass(frozen=True)
class Scenes:
    """A batch of B scenes with up to S shapes each, none overlapping another."""

    kind: NDArray[np.int64]
    """``(B, S)``, index into ``KINDS``; 0 where there is none."""
    centre: Array
    """``(B, S, 2)``."""
    radius: Array
    """``(B, S)``."""
    colour: Array
    """``(B, S, 3)``."""
    ground: Array
    """``(B, 3)``."""


def render(scenes: Scenes, size: tuple[int, int]) -> tuple[Array, NDArray[np.int64]]:
    """Images ``(B, 3, H, W)`` and labels ``(B, H, W)`` of scenes on an ``H x W`` grid over the field."""
    batch, slots = scenes.kind.shape
    image = np.empty((batch, 3, *size), np.float32)
    image[:] = scenes.ground[:, :, None, None]
    label = np.zeros((batch, *size), np.int64)
    for slot in range(slots):
        present = np.flatnonzero(scenes.kind[:, slot])
        if present.size:
            _paint(image, label, scenes, slot, present, size)
    return image, label


def _paint(image: Array, label: NDArray, scenes: Scenes, slot: int, which: NDArray, size: tuple[int, int]) -> None:
    """Paint one shape into each of some images, all within windows of the same size."""
    kind, radius = scenes.kind[which, slot], scenes.radius[which, slot]
    centre, axes = scenes.centre[which, slot], []
    for axis, count in enumerate(size):
        window = min(count, math.ceil(2 * REACH * float(radius.max()) * count) + 2)
        start = np.floor((centre[:, axis] - REACH * radius) * count).astype(np.int64)
        axes.append(np.clip(start, 0, count - window)[:, None] + np.arange(window))
    down, right = (
        ((index.astype(np.float32) + 0.5) / count - centre[:, axis, None]) / radius[:, None]
        for axis, (index, count) in enumerate(zip(axes, size, strict=True))
    )
    distance = np.empty((which.size, axes[0].shape[1], axes[1].shape[1]), np.float32)
    for shape in np.unique(kind):
        chosen = kind == shape
        distance[chosen] = signed_distance(int(shape), down[chosen, :, None], right[chosen, None, :])
    distance *= radius[:, None, None]
    cover = np.clip(0.5 - distance * np.float32(math.sqrt(size[0] * size[1])), 0, 1)
    rows, columns = axes[0][:, :, None], axes[1][:, None, :]
    change = scenes.colour[which, slot] - scenes.ground[which]
    place = which[:, None, None]
    for channel in range(3):
        image[place, channel, rows, columns] += cover * change[:, channel, None, None]
    label[place, rows, columns] += np.where(distance <= 0, kind[:, None, None], 0)
