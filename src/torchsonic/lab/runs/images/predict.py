"""The likeliest classes of images in files."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from torchsonic.lab.data.images.changes import View, centre_box, view_image
from torchsonic.lab.data.images.files import ImageError, read_image
from torchsonic.lab.data.images.folder import find_files
from torchsonic.lab.metrics.classification import normalise
from torchsonic.lab.runs.images.config import ImagesConfig
from torchsonic.lab.runs.images.network import told_spacing
from torchsonic.models import Classifier

__all__ = ["list_files", "predict_files"]

BATCH = 32


def list_files(sources: Sequence[Path]) -> list[Path]:
    """Files as they are named, and the images in folders."""
    files: list[Path] = []
    for source in sources:
        if source.is_dir():
            found = find_files(source)
            if not found:
                raise ValueError(f"{source} holds no image")
            files += found
        elif source.is_file():
            files.append(source)
        else:
            raise ValueError(f"{source} is no file and no folder")
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
    spacing = told_spacing(model, (config.pixel_width or 1.0) * config.image_size / size)
    told = {} if spacing is None else {"spacing": spacing}
    device = next(model.parameters()).device
    model.eval()
    rows: list[dict[str, Any]] = []
    for start in range(0, len(files), BATCH):
        read = _read_views(files[start : start + BATCH], size, config.test_crop, strict=strict, advance=advance)
        if read:
            with torch.no_grad():
                batch = torch.from_numpy(np.stack([view for _, view in read])).to(device)
                values, places = model(normalise(batch), **told).float().softmax(1).topk(min(top, len(classes)))
            for (path, _), shares, numbers in zip(read, values.tolist(), places.tolist(), strict=True):
                answers = [{"class": classes[k], "probability": p} for k, p in zip(numbers, shares, strict=True)]
                rows.append({"file": str(path), "top": answers})
    return rows


def _read_views(
    files: Sequence[Path], size: int, crop: float, *, strict: bool, advance: Callable[[], None]
) -> list[tuple[Path, NDArray[np.uint8]]]:
    """The middles of images ``(3, size, size)``, read on all cores, each with its file."""

    def look(path: Path) -> NDArray[np.uint8] | ImageError:
        try:
            image = read_image(path)
        except ImageError as error:
            return error
        return view_image(image, size, View(centre_box(image.shape[1], image.shape[0], crop)))

    views = []
    with ThreadPoolExecutor(os.cpu_count() or 1) as threads:
        for path, found in zip(files, threads.map(look, files), strict=True):
            advance()
            if not isinstance(found, ImageError):
                views.append((path, found))
            elif strict:
                raise found
            else:
                warnings.warn(f"left out: {found}", stacklevel=3)
    return views
