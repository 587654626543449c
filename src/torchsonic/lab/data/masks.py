"""Pictures and masks in files: pairs of a folder, read with every check that spares a wasted run, and masks written.

A picture is a volume of one slice, so that patches, random changes and the loop are those of volumes. Pixels lie as the
file stores them; colours are red, green and blue, and grey is all three.
"""

from __future__ import annotations

import csv
import io
import math
import re
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from torchsonic.io import write_whole
from torchsonic.lab.data.images.files import ImageError, import_pillow, opened_image
from torchsonic.lab.data.images.folder import find_files
from torchsonic.lab.data.volumes import Case, CaseError, Volume
from torchsonic.lab.data.volumes.preparation import import_ndimage

if TYPE_CHECKING:
    from PIL.Image import Image as Picture

__all__ = ["PixelSize", "find_pairs", "find_pictures", "read_mask", "read_pair", "read_sizes", "tag_size", "write_mask"]

PixelSize = tuple[float, float] | Mapping[str, tuple[float, float]] | Literal["tags", "pixels"]
"""Height and width of all pixels, of those of each picture by name, what TIFF tags say (micrometres), or 1."""
COLOURS, GREYS = ("RGB", "RGBA", "P", "LA"), ("L", "1", "I", "I;16", "I;16B", "I;16L", "F")
NUMBERS = ("P", *GREYS[:-1])
APART = 1000.0
"""Spacing across the slice in pixels: so far apart that nothing is turned or scaled out of the picture."""
MICROMETRES = {"inch": 25400.0, "cm": 1e4, "mm": 1e3, "um": 1.0, "micron": 1.0, "µm": 1.0, "nm": 1e-3}


def find_pictures(source: Path) -> dict[str, Path]:
    """A picture, or those of a folder and of the folders in it, by name: the path in the folder without its ending."""
    if not source.exists():
        raise ValueError(f"there is no folder {source}; a data folder has images/ and masks/ with PNG, TIFF or JPEG")
    root, found = source if source.is_dir() else source.parent, {}
    for path in find_files(source) if source.is_dir() else [source]:
        name = path.relative_to(root).with_suffix("").as_posix()
        if name in found:
            raise ValueError(f"{found[name]} and {path} have the same name; remove one of them")
        found[name] = path
    if not found:
        raise ValueError(f"{source} contains no image; add PNG, TIFF or JPEG files")
    return found


def find_pairs(folder: Path) -> list[Case]:
    """The pictures in ``images/`` with their masks in ``masks/`` or ``labels/``; a missing mask is found when read."""
    pictures = find_pictures(folder / "images")
    inner = folder / ("labels" if (folder / "labels").is_dir() and not (folder / "masks").is_dir() else "masks")
    masks = find_pictures(inner)
    lonely = sorted(masks.keys() - pictures.keys())
    if lonely:
        warnings.warn(f"{len(lonely)} masks have no image and are left out: {', '.join(lonely[:5])}", stacklevel=2)
    return [Case(name, (path,), masks.get(name, inner / f"{name}.png")) for name, path in sorted(pictures.items())]


def read_pair(
    case: Case, *, num_classes: int | None = None, instances: bool = False, size: PixelSize = "pixels"
) -> Volume:
    """Read a picture and its mask, if it has one, and check them; a bad one raises :class:`CaseError`."""
    path = case.images[0]
    try:
        with opened_image(path) as picture:
            values, (height, width) = _pixels(picture, path), _find_size(picture, case.name, path, size)
        label = None
        if case.label is not None:
            if not case.label.exists():
                raise ImageError(case.label, f"is missing, the mask of {path.name}; add it, or pass --keep-going")
            label = read_mask(case.label, num_classes=num_classes, instances=instances)[None]
        if label is not None and label.shape != values.shape[1:]:
            sizes = " but the image ".join(f"{shape[-1]} x {shape[-2]}" for shape in (label.shape, values.shape))
            raise ImageError(case.label or path, f"the mask has {sizes} pixels; both must have the same size")
    except ImageError as error:
        raise CaseError(case.name, error.path, str(error).removeprefix(f"{error.path}: ")) from error
    steps = (APART * max(height, width), height, width)
    return Volume(case.name, values, label, steps, np.eye(4))  # type: ignore[arg-type]  # objects may be many


def _pixels(picture: Picture, path: Path) -> NDArray[np.float32]:
    """Values ``(3, 1, H, W)``."""
    _check(picture, path, (*COLOURS, *GREYS))
    values = np.asarray(picture.convert("RGB") if picture.mode in COLOURS else picture, dtype=np.float32)
    if not np.isfinite(values).all():
        raise ImageError(path, "has pixels that are NaN or infinite; replace them by numbers")
    colours = np.moveaxis(values, -1, 0) if values.ndim == 3 else np.broadcast_to(values, (3, *values.shape))
    return np.ascontiguousarray(colours[:, None])


def _check(picture: Picture, path: Path, modes: tuple[str, ...]) -> None:
    pages = getattr(picture, "n_frames", 1)
    if pages > 1:
        raise ImageError(path, f"has {pages} pages or frames; save each to its own file")
    if picture.mode in COLOURS and picture.mode not in modes:
        raise ImageError(path, "is in colour, but masks have one number per pixel; save it in grey or with a palette")
    if picture.mode not in modes:
        raise ImageError(path, f"has pixels of mode {picture.mode}, not {', '.join(modes)}; convert it")


def read_mask(path: Path, *, num_classes: int | None = None, instances: bool = False) -> NDArray[np.int32]:
    """Classes, or numbers of ``instances``, ``(H, W)``: grey values or places in the palette.

    White alone beside 0 is class 1; it numbers no objects, so these are then its connected parts.
    """
    with opened_image(path) as picture:
        if picture.format == "JPEG":
            raise ImageError(path, "is a JPEG file, which does not keep the numbers of a mask; save it as PNG")
        _check(picture, path, NUMBERS)
        label = np.asarray(picture).astype(np.int32)
        white = {"L": 0xFF, "P": 0, "1": 1}.get(picture.mode, 0xFFFF)
    is_white = bool(white and label.max() == white and np.isin(label, (0, white)).all())
    label = label // white if is_white else label
    num_classes = None if instances else num_classes
    if label.min() < 0 or (num_classes is not None and label.max() >= num_classes):
        wrong = label.min() if label.min() < 0 else label.max()
        last = "" if num_classes is None else f" to {num_classes - 1}"
        raise ImageError(path, f"contains the label {wrong}, but classes are 0{last}; relabel it or set --num-classes")
    return _numbered(label, is_white=is_white) if instances else label


def _numbered(label: NDArray[np.int32], *, is_white: bool) -> NDArray[np.int32]:
    """Numbers of objects; where there is one number, perhaps those of connected parts."""
    if label.max() > 1 or not label.any():
        return label
    parts, count = import_ndimage("masks").label(label)
    if is_white:
        warnings.warn("black-and-white masks do not number objects: each connected region counts as one", stacklevel=3)
        return parts
    if count > 1:
        text = "a mask with only the number 1 counts as one object, although it has several parts"
        warnings.warn(f"{text}; number the objects, or save them in white (255) to count its parts", stacklevel=3)
    return label


def write_mask(path: Path, mask: NDArray[np.integer]) -> None:
    """Write numbers ``(H, W)`` as a grey PNG of 8 bits, or of 16 where they need it."""
    if mask.max(initial=0) > 0xFFFF:
        raise ValueError(f"{path} would have {mask.max()} objects, but a PNG can number only {0xFFFF}")
    buffer = io.BytesIO()
    kind = np.uint8 if mask.max(initial=0) < 256 else np.uint16
    import_pillow().fromarray(mask.astype(kind)).save(buffer, format="PNG")
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, buffer.getvalue())


def _find_size(picture: Picture, name: str, path: Path, size: PixelSize) -> tuple[float, float]:
    found = size
    if size == "tags":
        found = tag_size(picture)
    elif isinstance(size, Mapping):
        found = size.get(name)
    if found is None:
        missing = "has no line in the table of pixel sizes" if isinstance(size, Mapping) else "has no TIFF pixel size"
        raise ImageError(path, f"{missing}, which other images have; add it, or give --spacing for all")
    return found if isinstance(found, tuple) else (1.0, 1.0)


def tag_size(picture: Picture) -> tuple[float, float] | None:
    """Height and width of a pixel in micrometres, if a TIFF file says them: resolution tags, ImageJ's unit, OME."""
    if picture.format != "TIFF":
        return None
    tags = picture.tag_v2  # type: ignore[attr-defined]
    text = str(tags.get(270, ""))
    ome = [re.search(rf'PhysicalSize{axis}="([0-9.eE+-]+)"', text) for axis in "YX"]
    if ome[0] and ome[1]:
        return float(ome[0][1]), float(ome[1][1])
    named = re.search(r"^unit=(\S+)", text, flags=re.MULTILINE)
    word = named[1].replace(r"\u00B5", "µ") if named else {2: "inch", 3: "cm"}.get(tags.get(296, 2), "")
    steps = [MICROMETRES.get(word, 0.0) / float(tags.get(tag) or math.inf) for tag in (283, 282)]
    return (steps[0], steps[1]) if min(steps) > 0 else None


def read_sizes(path: Path) -> dict[str, tuple[float, float]]:
    """Pixel sizes by picture from a CSV file: ``name,size`` or ``name,height,width``, with or without a heading."""
    sizes: dict[str, tuple[float, float]] = {}
    try:
        rows = list(csv.reader(path.read_text(encoding="utf-8-sig").splitlines()))
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"the table of pixel sizes {path} cannot be read: {error}") from error
    for number, (name, *cells) in enumerate((row for row in rows if row), start=1):
        try:
            steps = [float(cell) for cell in cells]
        except ValueError:
            steps = []
        if len(steps) in (1, 2) and all(0 < step < math.inf for step in steps):
            sizes[re.sub(r"\.(png|tiff?|jpe?g)$", "", name, flags=re.IGNORECASE)] = (steps[0], steps[-1])
        elif number > 1:
            raise ValueError(f"line {number} of {path} must be a name and one or two positive numbers, got {cells}")
    return sizes
