"""A trained classifier at work: the likeliest classes of images in files, and its accuracy at other image sizes.

A test at ``size`` pixels shows the square that the test at the training size shows, resized without aliasing from the
file itself. A model that is told the spacing hears ``training size / size`` times its own along each axis: the scene
stays as wide and as high.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from torchsonic.lab.data.images.changes import view_middle
from torchsonic.lab.data.images.files import ImageError, map_images, read_image
from torchsonic.lab.data.images.folder import ImageFolder, find_files
from torchsonic.lab.data.images.store import ImageStore
from torchsonic.lab.metrics.classification import Hits, classify, normalise
from torchsonic.lab.runs.images.config import MIXED, ImagesConfig, Size, rows_and_columns
from torchsonic.lab.runs.images.network import told_spacing
from torchsonic.lab.runs.images.task import batches_of_views
from torchsonic.models import Classifier

BATCH = 32
PIXELS = 64 * 128 * 128
"""Of a batch of a test, whatever the size of its images."""


def list_files(sources: Sequence[Path]) -> list[Path]:
    """Files as they are named, and the images in folders."""
    files: list[Path] = []
    for source in sources:
        if source.is_dir():
            found = find_files(source)
            if not found:
                raise ValueError(f"{source} contains no image")
            files += found
        elif source.is_file():
            files.append(source)
        else:
            raise ValueError(f"{source} is neither a file nor a folder")
    return files


def predict_files(
    model: Classifier,
    config: ImagesConfig,
    classes: Sequence[str],
    files: Sequence[Path],
    *,
    top: int = 5,
    size: int | None = None,
    strict: bool = False,
    advance: Callable[[], None] = lambda: None,
) -> list[dict[str, Any]]:
    """The likeliest classes of each file with their probabilities, the likeliest first.

    Parameters
    ----------
    model, config, classes
        Of a run or a saved model, see :func:`load_run`.
    top
        How many; all if there are fewer.
    size
        Pixels on a side; those of training by default. A model that takes the spacing is told it.
    strict
        An unreadable file raises; otherwise it is left out with a warning.
    """
    if top < 1:
        raise ValueError(f"top must be at least 1, got {top}")
    if size is not None and size < 1:
        raise ValueError(f"size must be at least 1, got {size}")
    size = size or config.image_size
    views = map_images(lambda path: view_middle(read_image(path), size, config.test_crop), files, together=BATCH)
    spacing = told_spacing(model, (config.pixel_width or 1.0) * config.image_size / size)
    told = {} if spacing is None else {"spacing": spacing}
    device = next(model.parameters()).device
    model.eval()
    rows: list[dict[str, Any]] = []
    good: list[tuple[Path, NDArray[np.uint8]]] = []
    for number, (path, view) in enumerate(zip(files, views, strict=True), start=1):
        advance()
        if not isinstance(view, ImageError):
            good.append((path, view))
        elif strict:
            raise view
        else:
            warnings.warn(f"left out: {view}", stacklevel=2)
        if good and (len(good) == BATCH or number == len(files)):
            with torch.no_grad():
                batch = torch.from_numpy(np.stack([view for _, view in good])).to(device)
                values, places = model(normalise(batch), **told).float().softmax(1).topk(min(top, len(classes)))
            for (path, _), shares, numbers in zip(good, values.tolist(), places.tolist(), strict=True):
                answers = [{"class": classes[k], "probability": p} for k, p in zip(numbers, shares, strict=True)]
                rows.append({"file": str(path), "top": answers})
            good.clear()
    return rows


@dataclass(frozen=True)
class SizeScore:
    """Hits of a model at one size, ``(N,)`` each."""

    size: Size
    told: bool
    width: float | tuple[float, ...]
    """Of a pixel as the model takes it, in those of training; rows first if the axes differ."""
    top1: NDArray[np.bool_]
    top5: NDArray[np.bool_]


def score_size(
    model: Classifier,
    images: ImageFolder,
    size: Size,
    *,
    crop: float = 1.0,
    spacing: float | tuple[float, ...] | None = None,
    back_to: int | None = None,
    store: ImageStore | None = None,
    advance: Callable[[], None] = lambda: None,
) -> Hits:
    """Which images a model gets right at a size; images are read from their files, or from a ``store`` of these.

    They may be resized once more, ``back_to`` so many pixels, before the model sees them.
    """
    model.eval()
    shape = rows_and_columns(size)
    batch = max(1, PIXELS // math.prod(shape))

    def counted() -> Iterator[tuple[Tensor, Tensor]]:
        for image, label in batches_of_views(store or ImageStore(limit=0), images, shape, crop=crop, batch=batch):
            yield image if back_to in (None, size) else _resize(image, back_to), label
            for _ in label:
                advance()

    return classify(model, counted(), spacing=spacing)


def score_sizes(
    model: Classifier,
    images: ImageFolder,
    sizes: Sequence[Size],
    *,
    train_size: int,
    crop: float = 1.0,
    pixel_width: float = 1.0,
    control: bool = False,
    store: ImageStore | None = None,
    advance: Callable[[], None] = lambda: None,
) -> list[SizeScore]:
    """Hits at each size, the training size among them; twice for models that can be told the spacing.

    Parameters
    ----------
    pixel_width
        Of training pixels, in those the model was made for.
    control
        Test models that cannot be told the spacing a second time, on images resized back to the training size: what
        anybody could do who knows the spacing. These scores count as told.
    advance
        Called after each image, once whether it is classified once or twice.
    """
    scores = []
    trained = told_spacing(model, pixel_width)
    for size in sorted({*sizes, train_size}, key=rows_and_columns):
        width = _width(train_size, size)
        hits = score_size(model, images, size, crop=crop, spacing=trained, store=store, advance=advance)
        scores.append(SizeScore(size, False, 1.0, hits[1], hits[5]))
        if model.takes_spacing or control:
            if size != train_size:
                told = told_spacing(model, _width(pixel_width * train_size, size))
                back_to = None if model.takes_spacing else train_size
                hits = score_size(model, images, size, crop=crop, spacing=told, back_to=back_to, store=store)
            scores.append(SizeScore(size, True, width, hits[1], hits[5]))
    return scores


def score_rows(
    model: Classifier,
    images: ImageFolder,
    sizes: Sequence[Size],
    *,
    train_size: int,
    crop: float = 1.0,
    pixel_width: float = 1.0,
    advance: Callable[[], None] = lambda: None,
) -> list[dict[str, Any]]:
    """Top-1 accuracy of a model at each size, in every way in which anybody may show it the images.

    ``accuracy``: not told; ``told`` the spacing, for models that take it; ``back``: resized to the training size.
    What a model makes of an image does not depend on the rest of a batch, so the mixed test takes it from the others.
    """
    trained = told_spacing(model, pixel_width)
    hits: dict[Size, dict[str, NDArray[np.bool_]]] = {}
    for size in sizes:
        if size == MIXED:
            continue
        ways: dict[str, dict[str, Any]] = {"accuracy": {"spacing": trained}}
        if model.takes_spacing:
            ways["told"] = {"spacing": told_spacing(model, _width(pixel_width * train_size, size))}
        ways["back"] = {"spacing": trained, "back_to": train_size}
        hits[size] = {way: score_size(model, images, size, crop=crop, **options)[1] for way, options in ways.items()}
        advance()
    if MIXED in sizes:
        hits[MIXED] = _mix(list(hits.values()))
        advance()
    return [{"size": size, **{way: float(np.mean(hits[size][way])) for way in hits[size]}} for size in sizes]


def _mix(tests: Sequence[Mapping[str, NDArray[np.bool_]]]) -> dict[str, NDArray[np.bool_]]:
    """Hits of a test that shows the images in turn as each of the given ones does."""
    mixed = {way: found.copy() for way, found in tests[0].items()}
    for place, test in enumerate(tests):
        for way, found in test.items():
            mixed[way][place :: len(tests)] = found[place :: len(tests)]
    return mixed


def _width(side: float, size: Size) -> float | tuple[float, ...]:
    """Of a pixel, where so many of them cover a square of the given side; one number if both axes have the same."""
    rows, columns = rows_and_columns(size)
    return side / rows if rows == columns else (side / rows, side / columns)


def _resize(image: Tensor, size: int) -> Tensor:
    """Bytes ``(B, 3, H, W)`` as ``(B, 3, size, size)``, without aliasing."""
    found = F.interpolate(image.float(), (size, size), mode="bicubic", antialias=True, align_corners=False)
    return found.round().clamp(0, 255).to(torch.uint8)
