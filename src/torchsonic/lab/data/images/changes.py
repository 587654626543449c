"""Random changes to photographs, and the fixed view that tests have.

Crops are boxes in the pixels of the source and are cut, smoothed and resized in one step, so that a test at any size
sees the same piece of the scene.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from torchsonic.lab.data.images.files import import_pillow
from torchsonic.lab.data.ranges import check_ranges

GREY = np.array([0.299, 0.587, 0.114])
# From red, green, blue to luminance and two axes of colour, in which a hue is an angle.
TO_YIQ = np.array([[0.299, 0.587, 0.114], [0.5959, -0.2746, -0.3213], [0.2115, -0.5227, 0.3112]])
CROP_TRIES = 10


class Box(NamedTuple):
    """Edges of a crop, in pixels of the source; fractions are allowed."""

    left: float
    top: float
    right: float
    bottom: float


class View(NamedTuple):
    """What is done to one image."""

    box: Box
    flip: bool = False
    brightness: float = 1.0
    contrast: float = 1.0
    saturation: float = 1.0
    hue: float = 0.0
    """Largest change of hue, as a fraction of a full turn."""


@dataclass(frozen=True, kw_only=True)
class ImageChanges:
    """Strengths of random changes to training images."""

    crop: tuple[float, float] = (0.25, 1.0)
    """Smallest and largest share of an image's area that a crop shows."""
    ratio: tuple[float, float] = (0.75, 4 / 3)
    """Smallest and largest aspect ratio of a crop, width over height."""
    flip: float = 0.5
    """Probability of a horizontal flip."""
    brightness: float = 0.4
    """Largest relative change of brightness."""
    contrast: float = 0.4
    """Largest relative change of contrast."""
    saturation: float = 0.4
    """Largest relative change of saturation."""
    hue: float = 0.0
    """Largest change of hue, as a fraction of a full turn of the colour wheel."""
    mixup: float = 0.0
    """Blend pairs of images with weights from Beta(mixup, mixup); 0 turns it off."""
    cutmix: float = 0.0
    """Paste a patch of one image into another, with areas from Beta(cutmix, cutmix); 0 turns it off."""

    def __post_init__(self) -> None:
        check_ranges(self, "(0, 1]", "crop")
        check_ranges(self, "(0, inf)", "ratio")
        for name in ("crop", "ratio"):
            if getattr(self, name)[0] > getattr(self, name)[1]:
                raise ValueError(f"{name} must be two increasing numbers, got {getattr(self, name)}")
        check_ranges(self, "[0, 1]", "flip", "brightness", "contrast", "saturation")
        check_ranges(self, "[0, 0.5]", "hue")
        check_ranges(self, "[0, inf)", "mixup", "cutmix")

    def draw(self, width: int, height: int, generator: np.random.Generator) -> View:
        """A random view of an image of the given size."""
        box = crop_box(width, height, self.crop, self.ratio, generator)
        flip = bool(generator.random() < self.flip)
        change = generator.uniform(-1, 1, 4).tolist()
        return View(
            box,
            flip,
            brightness=1 + self.brightness * change[0],
            contrast=1 + self.contrast * change[1],
            saturation=1 + self.saturation * change[2],
            hue=self.hue * change[3],
        )

    def draw_mixing(self, generator: np.random.Generator) -> tuple[float, bool]:
        """Share that each of a pair keeps of itself, and whether the other's part is a piece rather than a blend."""
        kinds = [(strength, cut) for strength, cut in ((self.mixup, False), (self.cutmix, True)) if strength > 0]
        if not kinds:
            return 1.0, False
        strength, cut = kinds[int(generator.integers(len(kinds)))]
        return float(generator.beta(strength, strength)), cut


def crop_box(
    width: int,
    height: int,
    area: tuple[float, float],
    ratio: tuple[float, float],
    generator: np.random.Generator,
) -> Box:
    """A box of random area, shape and place inside an image; the largest in its middle where none is found."""
    for _ in range(CROP_TRIES):
        part = generator.uniform(*area) * width * height
        shape = math.exp(generator.uniform(math.log(ratio[0]), math.log(ratio[1])))
        w, h = math.sqrt(part * shape), math.sqrt(part / shape)
        if w <= width and h <= height:
            left, top = generator.uniform(0, width - w), generator.uniform(0, height - h)
            return Box(left, top, left + w, top + h)
    shape = min(max(width / height, ratio[0]), ratio[1])
    w, h = min(width, height * shape), min(height, width / shape)
    return Box((width - w) / 2, (height - h) / 2, (width + w) / 2, (height + h) / 2)


def centre_box(width: int, height: int, part: float = 1.0) -> Box:
    """The square in the middle whose side is a part of the image's shorter one.

    Examples
    --------
    >>> centre_box(500, 400, 0.5)
    Box(left=150.0, top=100.0, right=350.0, bottom=300.0)
    """
    half = part * min(width, height) / 2
    return Box(width / 2 - half, height / 2 - half, width / 2 + half, height / 2 + half)


def colour_map(view: View, mean_grey: float) -> NDArray[np.float64] | None:
    """The colour changes of a view as one affine map ``(3, 4)`` of red, green and blue; ``None`` changes nothing.

    Saturation and hue come first, then contrast about the mean grey, then brightness.
    """
    if view[2:] == (1.0, 1.0, 1.0, 0.0):
        return None
    angle = 2 * math.pi * view.hue
    turn = np.array(
        [[1, 0, 0], [0, math.cos(angle), -math.sin(angle)], [0, math.sin(angle), math.cos(angle)]], dtype=float
    )
    matrix = view.saturation * np.eye(3) + (1 - view.saturation) * np.tile(GREY, (3, 1))
    if view.hue:
        matrix = np.linalg.inv(TO_YIQ) @ turn @ TO_YIQ @ matrix
    matrix = view.brightness * view.contrast * matrix
    offset = view.brightness * (1 - view.contrast) * mean_grey
    return np.concatenate([matrix, np.full((3, 1), offset)], axis=1)


def view_image(image: NDArray[np.uint8], size: int | tuple[int, int], view: View) -> NDArray[np.uint8]:
    """An image ``(H, W, 3)`` as ``(3, *size)``: cropped, resized without aliasing, mirrored, recoloured."""
    pillow = import_pillow()
    rows, columns = (size, size) if isinstance(size, int) else size
    picture = pillow.fromarray(image)
    height, width = image.shape[:2]
    if tuple(view.box) != (0, 0, width, height) or (width, height) != (columns, rows):
        picture = picture.resize((columns, rows), pillow.Resampling.BICUBIC, box=tuple(view.box))
    if view.flip:
        picture = picture.transpose(pillow.Transpose.FLIP_LEFT_RIGHT)
    mean = float(np.asarray(picture.convert("L")).mean()) if view.contrast != 1.0 else 0.0
    matrix = colour_map(view, mean)
    if matrix is not None:
        picture = picture.convert("RGB", tuple(matrix.ravel().tolist()))
    return np.ascontiguousarray(np.asarray(picture).transpose(2, 0, 1))


def view_middle(image: NDArray[np.uint8], size: int | tuple[int, int], crop: float = 1.0) -> NDArray[np.uint8]:
    """The square in the middle of an image, whose side is ``crop`` of the shorter one: the same scene at every size."""
    return view_image(image, size, View(centre_box(image.shape[1], image.shape[0], crop)))


def mix_area(size: int, share: float, generator: np.random.Generator) -> tuple[slice, slice]:
    """Rows and columns of a random square that covers ``1 - share`` of an image, less where the border cuts it."""
    side = size * math.sqrt(1 - share)
    middle = generator.uniform(0, size, 2)
    low, high = (np.clip(np.rint(middle + s * side / 2), 0, size).astype(int) for s in (-1, 1))
    return slice(int(low[0]), int(high[0])), slice(int(low[1]), int(high[1]))
