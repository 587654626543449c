"""Classification of photographs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from torchsonic.lab.data.draws import number_generator
from torchsonic.lab.data.images.changes import mix_area, view_image, view_middle
from torchsonic.lab.data.images.folder import ImageFolder
from torchsonic.lab.data.images.store import ImageStore
from torchsonic.lab.metrics.classification import classify, normalise
from torchsonic.lab.runs.images.config import ImagesConfig
from torchsonic.lab.training.task import place_in_epoch

CHANGE, MIX = 1, 2
TEST_BATCH = 64


class ImageBatch(NamedTuple):
    """Bytes ``(B, 3, S, S)``, their classes ``(B,)``, and the classes mixed into them with one minus the share."""

    image: Tensor
    label: Tensor
    other: Tensor
    share: Tensor


class ClassificationTask:
    """Cross-entropy with smoothed labels on changed images; scored by the accuracy on test images.

    A training image is a function of the seed, the step and its place in the batch. Training goes through the images
    again and again, shuffled anew each time. With mixing, the images at places 0 and 1, 2 and 3 and so on of a batch
    are mixed with each other.

    Parameters
    ----------
    images
        By path.
    train, test
        To learn from and to be scored on.
    spacing
        What the network is told of the images; ``None`` tells it nothing.
    """

    def __init__(
        self,
        images: ImageStore,
        train: ImageFolder,
        test: ImageFolder,
        config: ImagesConfig,
        *,
        spacing: float | tuple[float, ...] | None = None,
    ) -> None:
        self.images, self.train, self.test, self.config, self.spacing = images, train, test, config, spacing
        self.number, self.seed, self.changes = config.training.batch, config.training.seed, config.changes
        # Written by whichever process meets them: a flag, unlike a count, can be set twice.
        self._replaced = torch.zeros(len(train), dtype=torch.uint8).share_memory_()

    @property
    def replaced(self) -> Tensor:
        """Which training images could not be read any more and were replaced by the next, ``(N,)`` booleans."""
        return self._replaced.bool()

    def batch(self, step: int, samples: range) -> ImageBatch:
        """Images of some samples of a step."""
        made: dict[int, tuple[NDArray[np.uint8], int]] = {}

        def make(place: int) -> tuple[NDArray[np.uint8], int]:
            if place not in made:
                made[place] = self._sample(step * self.number + place)
            return made[place]

        images, labels, others, shares = [], [], [], []
        for place in samples:
            image, label = make(place)
            partner, other, share = place ^ 1, label, 1.0
            if (self.changes.mixup or self.changes.cutmix) and partner < self.number:
                second, other = make(partner)
                image, share = self._mix(image, second, step * self.number + min(place, partner))
            images.append(image)
            labels.append(label)
            others.append(other)
            shares.append(share)
        return ImageBatch(
            torch.from_numpy(np.stack(images)),
            torch.tensor(labels),
            torch.tensor(others),
            torch.tensor(shares, dtype=torch.float32),
        )

    def _sample(self, number: int) -> tuple[NDArray[np.uint8], int]:
        chosen = place_in_epoch(len(self.train), self.seed, number)
        place, image = self.images.first_good(self.train.files, chosen)
        for turn in range((place - chosen) % len(self.train)):
            self._replaced[(chosen + turn) % len(self.train)] = 1
        generator = number_generator(self.seed, number, purpose=CHANGE)
        view = self.changes.draw(image.shape[1], image.shape[0], generator)
        return view_image(image, self.config.image_size, view), self.train.labels[place]

    def _mix(self, image: NDArray[np.uint8], other: NDArray[np.uint8], pair: int) -> tuple[NDArray[np.uint8], float]:
        generator = number_generator(self.seed, pair, purpose=MIX)
        share, cut = self.changes.draw_mixing(generator)
        if not cut:
            return np.rint(share * image + (1 - share) * other.astype(np.float64)).astype(np.uint8), share
        rows, columns = mix_area(len(image[0]), share, generator)
        mixed = image.copy()
        mixed[:, rows, columns] = other[:, rows, columns]
        covered = (rows.stop - rows.start) * (columns.stop - columns.start) / image[0].size
        return mixed, 1 - covered

    def loss(self, model: nn.Module, batch: ImageBatch) -> Tensor:
        """Loss of a batch."""
        told = {} if self.spacing is None else {"spacing": self.spacing}
        logits = model(normalise(batch.image), **told).float()
        entropy = partial(F.cross_entropy, logits, reduction="none", label_smoothing=self.config.label_smoothing)
        losses = entropy(batch.label)
        if self.changes.mixup or self.changes.cutmix:
            losses = batch.share * losses + (1 - batch.share) * entropy(batch.other)
        return losses.mean()

    def evaluate(self, model: nn.Module) -> dict[str, float]:
        """Accuracy on the test images at the training size."""
        if len(self.test) == 0:
            return {"score": 0.0}
        views = batches_of_views(self.images, self.test, self.config.image_size, crop=self.config.test_crop)
        hits = classify(model, views, spacing=self.spacing)
        top1, top5 = float(hits[1].mean()), float(hits[5].mean())
        return {"score": top1, "top1": top1, "top5": top5}


def batches_of_views(
    images: ImageStore, folder: ImageFolder, size: int | tuple[int, int], *, crop: float = 1.0, batch: int = TEST_BATCH
) -> Iterator[tuple[Tensor, Tensor]]:
    """The middle of each image at a size, ``(B, 3, *size)`` bytes, with its class; made on all cores."""
    with ThreadPoolExecutor(os.cpu_count() or 1) as threads:
        for start in range(0, len(folder), batch):
            files, labels = folder.files[start : start + batch], folder.labels[start : start + batch]
            views = threads.map(lambda path: view_middle(images[path], size, crop), files)
            yield torch.from_numpy(np.stack(list(views))), torch.tensor(labels)
