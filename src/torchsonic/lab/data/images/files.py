"""Photographs in files: three channels of eight bits, whatever the file holds.

Pillow is imported where it is used; ``pip install "torchsonic[images]"`` brings it.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from PIL.Image import Image as Picture

K = TypeVar("K")
T = TypeVar("T")

SUFFIXES = frozenset({".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".ppm", ".pgm", ".pbm"})
# What the content may be, whatever the name says: Pillow hands PostScript to another program, which executes it.
FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "GIF", "TIFF", "PPM")
# Troubles of the machine, not of a file: leaving images out for these would change the data of a run.
SCARCE = {errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN, errno.ESTALE}
BEHIND = (255, 255, 255)
"""What shows through transparent pixels."""


class ImageError(ValueError):
    """An image that cannot be used; the message names the file and says why."""

    def __init__(self, path: Path, problem: str) -> None:
        super().__init__(f"{path}: {problem}")
        self.path = path

    def __reduce__(self) -> Any:  # processes that prepare data send it to the one that trains
        return _rebuild, (self.path, str(self))


def _rebuild(path: Path, message: str) -> ImageError:
    return ImageError(path, message.removeprefix(f"{path}: "))


def import_pillow() -> Any:
    """The module ``PIL.Image``."""
    try:
        from PIL import Image
    except ImportError as error:
        raise ImportError('images need Pillow; run: pip install "torchsonic[images]"') from error
    return Image


def read_image(path: Path, *, side: int | None = None) -> NDArray[np.uint8]:
    """Read an image: upright, in red, green and blue, at most as fine as asked for.

    Greyscale, palette, CMYK and 16-bit images are converted; transparent ones are laid on white; the orientation that a
    camera wrote into the file is carried out.

    Parameters
    ----------
    side
        Pixels that the shorter side has at most; a larger image is reduced, which JPEG does while it decodes.

    Returns
    -------
    ndarray
        ``(H, W, 3)``, uint8.

    Raises
    ------
    ImageError
        If the file is missing, damaged, cut short or of a kind that has no colours.
    MemoryError, OSError
        If the machine has no memory or no open files left; then nothing is said about the image.
    """
    pillow = import_pillow()
    from PIL import ImageOps

    with opened_image(path) as opened:
        if side is not None:
            opened.draft(None, (side, side))  # decodes at 1/2, 1/4 or 1/8, never below what is asked for
        opened.load()
        picture = _to_colours(ImageOps.exif_transpose(opened), pillow)
        if side is not None and min(picture.size) > side:
            short = min(picture.size)
            width, height = (max(side, round(n * side / short)) for n in picture.size)
            picture = picture.resize((width, height), pillow.Resampling.BICUBIC, reducing_gap=3.0)
        return np.asarray(picture)


@contextmanager
def opened_image(path: Path) -> Iterator[Picture]:
    """A file as Pillow opens it; whatever is wrong with it, then or while it is decoded, is an :class:`ImageError`."""
    pillow = import_pillow()
    try:
        with pillow.open(path, formats=FORMATS) as opened:
            yield opened
    except (ImageError, MemoryError):
        raise
    except FileNotFoundError as error:
        raise ImageError(path, "there is no such file") from error
    except Exception as error:  # damaged files make decoders fail in many ways
        if isinstance(error, OSError) and error.errno in SCARCE:
            raise
        raise ImageError(path, f"cannot be read ({_reason(error)})") from error


def check_header(path: Path) -> None:
    """Refuse a file that is no image by its first bytes; much faster than reading it."""
    with opened_image(path) as opened:
        if min(opened.size) < 1:
            raise ImageError(path, "has no pixels")


def _reason(error: Exception) -> str:
    if type(error).__name__ == "UnidentifiedImageError":
        return "not an image, or damaged at its start"
    return (os.strerror(error.errno) if isinstance(error, OSError) and error.errno else str(error)) or repr(error)


def _to_colours(picture: Picture, pillow: Any) -> Picture:
    if picture.mode == "RGB" and "transparency" not in picture.info:
        return picture
    if picture.mode == "F":
        raise ValueError("its pixels are floating-point numbers, whose value for white is unknown")
    if picture.mode.startswith("I"):  # 16 bits, however dark; Pillow's own conversion would clip them
        values = np.asarray(picture).astype(np.int64).clip(0, 0xFFFF) >> 8
        return pillow.fromarray(values.astype(np.uint8)).convert("RGB")
    if picture.mode in ("LA", "PA", "RGBA", "La", "RGBa") or "transparency" in picture.info:
        layer = picture.convert("RGBA")
        ground = pillow.new("RGBA", layer.size, BEHIND)
        return pillow.alpha_composite(ground, layer).convert("RGB")
    return picture.convert("RGB")


def map_images(act: Callable[[K], T], images: Sequence[K], *, together: int = 1024) -> Iterator[T | ImageError]:
    """What a function makes of each image, on all cores, some images at a time; the error of one that is bad."""

    def try_it(image: K) -> T | ImageError:
        try:
            return act(image)
        except ImageError as error:
            return error

    with ThreadPoolExecutor(os.cpu_count() or 1) as threads:  # Pillow decodes without Python's lock
        for start in range(0, len(images), together):
            yield from threads.map(try_it, images[start : start + together])
