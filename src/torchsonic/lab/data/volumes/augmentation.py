r"""Random changes to patches: mirroring, turning, scaling, shifting, and changes of intensity.

Turning and scaling happen in millimetres. A patch is turned in a plane whose two axes have about the same spacing, for
slices of 10 mm therefore within the slices, where interpolation costs little; or, if asked for, about any direction.

**Scaling** means that the anatomy is larger or smaller, and there are two ways to say so. *By image*: the patch is
stretched by a factor ``s`` and its spacing stays, the only way for a network that is told no spacing. *By spacing*: the
voxels stay and the network is told a spacing ``s`` times as large. To a network whose kernels live in millimetres, both
are the same anatomy, sampled differently. The second way interpolates nothing, costs nothing and scales all three axes,
also across thick slices. It is the one for networks that are told the spacing.

**Shifting** keeps networks from learning where volumes end. A kernel that spans the whole patch sees its border, and in
tightly cropped volumes the border tells where the anatomy is: without shifts, the same volume in a larger frame scores
much worse.

By hand: MONAI's transforms do not scale by spacing, and their random numbers would change stored scores.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from torchsonic.lab.data.ranges import check_ranges
from torchsonic.lab.data.volumes.turning import random_axis, rotation_about

SAME = 2.0
"""Spacings that differ by less than this factor may be mixed by interpolation."""


@dataclass(frozen=True, kw_only=True)
class Augmentation:
    """Strengths of random changes; each change that is on is made with probability ``chance``."""

    mirror: tuple[int, ...] = (0, 1, 2)
    """Axes to flip, each with probability 1/2: 0 (depth), 1 (height), 2 (width)."""
    rotation: float = 30.0
    """Largest rotation, in degrees; 0 turns it off."""
    rotation_axes: Literal["array", "any"] = "array"
    """Rotate within planes of the array whose axes are about as fine, or about any direction in space."""
    scale: float = 1.25
    """Largest scale factor; the smallest is its inverse. 1 turns it off."""
    gamma: float = 1.4
    """Largest gamma exponent of a patch's intensities; the smallest is its inverse. 1 turns it off."""
    contrast: float = 1.3
    """Largest contrast factor; the smallest is its inverse. 1 turns it off."""
    brightness: float = 0.2
    """Largest shift of all intensities, relative to the patch's standard deviation."""
    noise: float = 0.1
    """Largest standard deviation of Gaussian noise, relative to the patch's."""
    shift: float = 0.25
    """Largest shift of a patch along each axis, relative to its size, also beyond the border of the volume."""
    chance: float = 0.3
    """Probability of each change except flips."""

    def __post_init__(self) -> None:
        if any(axis not in (0, 1, 2) for axis in self.mirror) or len(set(self.mirror)) < len(self.mirror):
            raise ValueError(f"mirror must name axes 0, 1 and 2, each at most once, got {self.mirror}")
        check_ranges(self, "[1, inf)", "scale", "gamma", "contrast")
        check_ranges(self, "[0, inf)", "rotation", "brightness", "noise")
        check_ranges(self, "[0, 1]", "chance")
        check_ranges(self, "[0, 0.5]", "shift")

    def draw(self, generator: np.random.Generator) -> Change:
        """Decide what happens to one patch. The same random numbers are used up whatever the strengths are."""
        flips = generator.random(3) < 0.5
        happens = generator.random(6) < self.chance
        angle, scale, gamma, contrast, brightness, noise = generator.random(6)
        turn = generator.random()
        shifts = generator.random() < self.chance
        shift = self.shift * (2 * generator.random(3) - 1) * shifts
        direction = random_axis(generator).tolist() if self.rotation_axes == "any" else ()
        return Change(
            flips=tuple(axis for axis in self.mirror if flips[axis]),
            turn=turn,
            axis=tuple(direction),
            angle=math.radians(self.rotation) * (2 * angle - 1) * happens[0],
            scale=float(self.scale ** ((2 * scale - 1) * happens[1])),
            gamma=float(self.gamma ** ((2 * gamma - 1) * happens[2])),
            contrast=float(self.contrast ** ((2 * contrast - 1) * happens[3])),
            brightness=self.brightness * (2 * brightness - 1) * happens[4],
            noise=self.noise * noise * happens[5],
            shift=tuple(shift.tolist()),
        )


@dataclass(frozen=True)
class Change:
    """What happens to one patch."""

    flips: tuple[int, ...] = ()
    turn: float = 0.0
    """In [0, 1): chooses among the planes to turn in."""
    axis: tuple[float, ...] = ()
    """Direction to turn about, instead of a plane."""
    angle: float = 0.0
    """In radians."""
    scale: float = 1.0
    """How much larger the anatomy becomes."""
    gamma: float = 1.0
    contrast: float = 1.0
    brightness: float = 0.0
    noise: float = 0.0
    shift: tuple[float, ...] = (0.0, 0.0, 0.0)
    """Along each axis, relative to the patch's size."""


def motion(change: Change, spacing: tuple[float, float, float], *, scale: bool) -> NDArray[np.float64] | None:
    """Matrix ``(3, 3)`` from voxels of the patch to voxels of the volume, both from the middle; ``None`` for no motion.

    Both have one spacing, in millimetres. With ``scale`` the image is scaled, along axes about as fine as the finest.
    """
    factor = change.scale if scale else 1.0
    if change.angle == 0.0 and factor == 1.0:
        return None
    steps = np.asarray(spacing)
    matrix = _rotation(change, steps)
    matrix[:, steps < SAME * steps.min()] /= factor
    return matrix * steps[None, :] / steps[:, None]


def _rotation(change: Change, steps: NDArray[np.float64]) -> NDArray[np.float64]:
    """Matrix ``(3, 3)`` in millimetres."""
    if change.axis:
        return rotation_about(np.array(change.axis), change.angle)
    matrix = np.eye(3)
    alike = [(a, b) for a in range(3) for b in range(a + 1, 3) if max(steps[[a, b]]) < SAME * min(steps[[a, b]])]
    if alike:
        first, second = alike[int(change.turn * len(alike))]
        cos, sin = math.cos(change.angle), math.sin(change.angle)
        matrix[first, first], matrix[first, second] = cos, -sin
        matrix[second, first], matrix[second, second] = sin, cos
    return matrix


def mirror(image: NDArray, label: NDArray, axes: tuple[int, ...]) -> tuple[NDArray, NDArray]:
    """Mirror ``(C, D, H, W)`` and ``(D, H, W)`` along some of the three axes."""
    if not axes:
        return image, label
    return np.ascontiguousarray(np.flip(image, tuple(a + 1 for a in axes))), np.ascontiguousarray(np.flip(label, axes))


def change_intensity(image: NDArray[np.float32], change: Change, generator: np.random.Generator) -> NDArray[np.float32]:
    """Apply gamma, contrast, brightness and noise to ``(C, D, H, W)``, each channel by its own mean and deviation.

    In NumPy, whose sums do not depend on the number of threads: every process makes the same bits.
    """
    if (change.gamma, change.contrast, change.brightness, change.noise) == (1.0, 1.0, 0.0, 0.0):
        return image
    mean, deviation = _moments(image)
    result = image
    if change.gamma != 1.0:
        low, high = (f(image, axis=(1, 2, 3), keepdims=True) for f in (np.min, np.max))
        bent = ((image - low) / np.maximum(high - low, 1e-8)) ** np.float32(change.gamma)
        own_mean, own_deviation = _moments(bent)
        # Gamma bends the histogram; mean and deviation are left to brightness and contrast.
        result = (bent - own_mean) / np.maximum(own_deviation, 1e-8) * deviation + mean
    result = (result - mean) * np.float32(change.contrast) + mean + np.float32(change.brightness) * deviation
    if change.noise:
        noise = generator.standard_normal(image.shape, dtype=np.float32)
        result = result + deviation * np.float32(change.noise) * noise
    return result.astype(np.float32)


def _moments(image: NDArray[np.float32]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    mean = image.mean(axis=(1, 2, 3), keepdims=True)
    return mean, image.std(axis=(1, 2, 3), keepdims=True)
