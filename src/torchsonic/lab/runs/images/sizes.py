"""Accuracy at other image sizes than that of training.

A test at ``size`` pixels shows the square that the test at the training size shows, resized without aliasing from the
file itself. A model that is told the spacing hears ``training size / size`` times its own: the scene stays as wide.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from torchsonic.lab.data.images.folder import ImageFolder
from torchsonic.lab.data.images.store import ImageStore
from torchsonic.lab.metrics.classification import Hits, classify
from torchsonic.lab.runs.images.network import told_spacing
from torchsonic.lab.training.classification import batches_of_views
from torchsonic.models import Classifier

__all__ = ["SizeScore", "score_size", "score_sizes"]

PIXELS = 64 * 128 * 128
"""Of a batch, whatever the size of its images."""


@dataclass(frozen=True)
class SizeScore:
    """Hits of a model at one size, ``(N,)`` each."""

    size: int
    told: bool
    width: float
    """Of a pixel as the model takes it, in those of training."""
    top1: NDArray[np.bool_]
    top5: NDArray[np.bool_]


def score_size(
    model: Classifier,
    images: ImageFolder,
    size: int,
    *,
    crop: float = 1.0,
    spacing: float | tuple[float, ...] | None = None,
    back_to: int | None = None,
    store: ImageStore | None = None,
    advance: Callable[[], None] = lambda: None,
) -> Hits:
    """Which images a model gets right at a size; images are read from their files, or from a ``store`` of these.

    Parameters
    ----------
    back_to
        Size to which the images are resized once more, in pixels, before the model sees them.
    """
    model.eval()
    batch = max(1, PIXELS // size**2)

    def counted() -> Iterator[tuple[Tensor, Tensor]]:
        for image, label in batches_of_views(store or ImageStore(limit=0), images, size, crop=crop, batch=batch):
            yield image if back_to in (None, size) else _resize(image, back_to), label
            for _ in label:
                advance()

    return classify(model, counted(), spacing=spacing)


def score_sizes(
    model: Classifier,
    images: ImageFolder,
    sizes: Sequence[int],
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
    for size in sorted({*sizes, train_size}):
        width = train_size / size
        hits = score_size(model, images, size, crop=crop, spacing=trained, store=store, advance=advance)
        scores.append(SizeScore(size, False, 1.0, hits[1], hits[5]))
        if model.takes_spacing:
            if size != train_size:
                told = told_spacing(model, pixel_width * width)
                hits = score_size(model, images, size, crop=crop, spacing=told, store=store)
            scores.append(SizeScore(size, True, width, hits[1], hits[5]))
        elif control:
            if size != train_size:
                hits = score_size(model, images, size, crop=crop, back_to=train_size, store=store)
            scores.append(SizeScore(size, True, width, hits[1], hits[5]))
    return scores


def _resize(image: Tensor, size: int) -> Tensor:
    """Bytes ``(B, 3, H, W)`` as ``(B, 3, size, size)``, without aliasing."""
    found = F.interpolate(image.float(), (size, size), mode="bicubic", antialias=True, align_corners=False)
    return found.round().clamp(0, 255).to(torch.uint8)
