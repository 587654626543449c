"""Images as continuous fields: a band-limited square of 256 mm; uploads become such fields.

A field is kept as samples on the reference grid of 256 x 256 pixels of 1 mm and band-limited: it has nothing at or
above ``DETAIL / 2`` waves per side, so that each grid of more than ``DETAIL`` pixels per side holds it exactly.
Images of the user are checked before they are decoded, and kept in memory, few and small.
"""

from __future__ import annotations

import io
import math
import secrets
import threading
import warnings
from collections import OrderedDict
from collections.abc import Callable
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from torchsonic.explorer.knobs import RefusedError
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


MAX_BYTES = 20 << 20
MAX_MEGAPIXELS = 25
MAX_KEPT = 8
FEWEST_PIXELS = 16
LONGEST_RATIO = 20
FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF")

_warnings = threading.Lock()


def read_image(data: bytes) -> Tensor:
    """The brightness of an uploaded image's central square, ``(256, 256)`` in [0, 1].

    What is no image, broken or too large is refused; its size is read from the header before anything is decoded.
    """
    try:
        from PIL import Image, ImageOps
    except ImportError as error:
        raise RefusedError('uploads need Pillow; run: pip install "torchsonic[app]"', 501) from error
    if not data:
        raise RefusedError("the file is empty")
    try:
        # Filters of warnings belong to the whole process, hence the lock. The limit that matters is ours, below.
        with _warnings, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            image = Image.open(io.BytesIO(data), formats=FORMATS)
    except Image.DecompressionBombError as error:
        words = f"the image has far too many pixels; at most {MAX_MEGAPIXELS} megapixels are accepted"
        raise RefusedError(words, 413) from error
    except Exception as error:  # decoders raise whatever they meet
        raise RefusedError(f"this image cannot be read; accepted formats: {', '.join(FORMATS)}", 415) from error
    _check_size(*image.size)
    try:
        if image.format == "JPEG":
            image.draft("L", (2 * REFERENCE[0], 2 * REFERENCE[0]))  # decodes at a fraction of the size
        with _warnings, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            image.load()
            upright = ImageOps.exif_transpose(image)
        square = ImageOps.fit(_brightness(upright), REFERENCE, Image.Resampling.LANCZOS)
    except Exception as error:
        raise RefusedError("the image is damaged or truncated and cannot be decoded", 415) from error
    values = torch.from_numpy(np.array(square, dtype=np.float32)) / (255 if square.mode == "L" else 1)
    if not bool(torch.isfinite(values).all()):
        raise RefusedError("the image contains NaN or infinite values", 415)
    return values.clamp(0, 1)


def _check_size(width: int, height: int) -> None:
    pixels = width * height
    if pixels > MAX_MEGAPIXELS * 1_000_000:
        raise RefusedError(
            f"the image has {width:,} x {height:,} pixels, {pixels / 1e6:.0f} megapixels; at most {MAX_MEGAPIXELS} are "
            "accepted, so please make it smaller first",
            413,
        )
    if min(width, height) < FEWEST_PIXELS or max(width, height) > LONGEST_RATIO * min(width, height):
        raise RefusedError(
            f"the image has {width:,} x {height:,} pixels; each side needs at least {FEWEST_PIXELS}, and the longer "
            f"side may be at most {LONGEST_RATIO} times the shorter"
        )


def _brightness(image):
    """A grey image of 8 bits, transparent parts on white; one of floats in [0, 1] where there were more bits."""
    from PIL import Image

    if image.mode in ("F", "I") or image.mode.startswith("I;16"):
        values = np.asarray(image, dtype=np.float32)
        low, high = float(values.min()), float(values.max())  # scanners and microscopes use part of the range
        return Image.fromarray((values - low) / (high - low) if high > low else values * 0)
    if "A" in image.getbands() or "transparency" in image.info:
        image = image.convert("RGBA")
        ground = Image.new("RGBA", image.size, "white")
        image = Image.alpha_composite(ground, image)
    return image.convert("L")


class Uploads:
    """The last few uploads by a name that cannot be guessed; the oldest is forgotten."""

    def __init__(self) -> None:
        self._fields: OrderedDict[str, Tensor] = OrderedDict()
        self._lock = threading.Lock()
        self._decoding = threading.Lock()

    def __len__(self) -> int:
        return len(self._fields)

    def add(self, data: bytes) -> str:
        """Read an image and keep it; returns its name."""
        if len(data) > MAX_BYTES:
            raise RefusedError(f"the file is larger than {MAX_BYTES >> 20} MB; make it smaller first", 413)
        with self._decoding:  # one at a time: a large image takes a hundred megabytes for a moment
            field = as_field(read_image(data))
        name = f"upload-{secrets.token_urlsafe(12)}"
        with self._lock:
            self._fields[name] = field
            while len(self._fields) > MAX_KEPT:
                self._fields.popitem(last=False)
        return name

    def get(self, name: str) -> Tensor:
        """The field of an upload, ``(256, 256)``."""
        with self._lock:
            if name not in self._fields:
                raise RefusedError("this upload is no longer in memory; upload it again", 404)
            self._fields.move_to_end(name)
            return self._fields[name]
