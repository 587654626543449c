"""Segmentation of volumes from patches, each with its own voxel spacing."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from torchsonic.lab.data.draws import number_generator
from torchsonic.lab.data.volumes.augmentation import Augmentation, Change, change_intensity, mirror, motion
from torchsonic.lab.data.volumes.collection import Collection, Prepared
from torchsonic.lab.data.volumes.patches import choose_start, cut, cut_moved, shows_foreground
from torchsonic.lab.metrics.overlap import confusion, dice_per_class
from torchsonic.lab.training.segmentation import cross_entropy_and_dice
from torchsonic.lab.training.task import epoch_order

ScaleBy = Literal["spacing", "image"]
TRAINING, TESTING = 1, 2


class PatchBatch(NamedTuple):
    """Images ``(B, C, *patch)``, labels ``(B, *patch)``, spacings ``(B, 3)`` in millimetres, and orientations."""

    image: Tensor
    label: Tensor
    spacing: Tensor
    orientation: Tensor = torch.eye(3)[None]
    """``(B, 3, 3)``, or one for all."""


class VolumeTask:
    """Cross-entropy and Dice loss on patches, half of each; scored by the Dice of fixed patches of the test cases.

    A patch is a function of the seed, the step and its place in the batch. Training goes through the cases again and
    again, shuffled anew each time.

    Parameters
    ----------
    volumes
        Prepared volumes by name, such as a :class:`torchsonic.lab.data.volumes.collection.Collection`.
    train, test
        Names of cases to learn from and to be scored on; without the latter, patches of the former are scored.
    num_classes
        Background counted, which the Dice loss and the score leave out.
    patch
        Voxels along each axis.
    foreground
        Share of the patches that have a voxel of some foreground class in their middle.
    augmentation
        Random changes; ``None`` makes none.
    tell_spacing
        Tell the model each sample's spacing; otherwise it assumes its own for all.
    scale_by
        How anatomy is scaled, see :mod:`torchsonic.lab.data.volumes.augmentation`; by default by spacing for a model
        that is told it.
    test_patches
        How many patches are scored.
    """

    def __init__(
        self,
        volumes: Mapping[str, Prepared] | Collection,
        train: Sequence[str],
        test: Sequence[str],
        *,
        num_classes: int,
        patch: Sequence[int],
        batch: int,
        seed: int = 0,
        foreground: float = 0.5,
        augmentation: Augmentation | None = None,
        tell_spacing: bool = True,
        scale_by: ScaleBy | None = None,
        test_patches: int = 16,
    ) -> None:
        if not 0.0 <= foreground <= 1.0:
            raise ValueError(f"foreground must be in [0, 1], got {foreground}")
        if not train:
            raise ValueError("train names no case to learn from")
        self.scale_by: ScaleBy = scale_by or ("spacing" if tell_spacing else "image")
        if self.scale_by == "spacing" and not tell_spacing:
            raise ValueError("scale_by='spacing' has no effect on a model that is not told the spacing; use 'image'")
        self.volumes, self.train, self.test = volumes, list(train), list(test)
        self.num_classes, self.patch, self.size, self.seed = num_classes, tuple(patch), batch, seed
        self.foreground, self.augmentation, self.tell_spacing = foreground, augmentation, tell_spacing
        self.test_patches = test_patches

    def batch(self, step: int, samples: range) -> PatchBatch:
        """Patches of some samples of a step."""
        start = step * self.size + samples.start
        order = epoch_order(range(len(self.train)), self.seed, start, len(samples))
        return _stack([self._patch(start + i, self.train[case], TRAINING) for i, case in enumerate(order)])

    def _patch(self, number: int, name: str, purpose: int) -> tuple[np.ndarray, ...]:
        volume = self.volumes[name]
        generator = number_generator(self.seed, number, purpose=purpose)
        change = self.augmentation.draw(generator) if self.augmentation and purpose == TRAINING else Change()
        places = volume.places if shows_foreground(number, self.foreground) else None
        start = choose_start(volume.label.shape, self.patch, generator, places=places)
        start = tuple(s + round(d * p) for s, d, p in zip(start, change.shift, self.patch, strict=True))
        matrix = motion(change, volume.spacing, scale=self.scale_by == "image")
        if matrix is None:
            image, label = cut(volume.image, volume.label, start, self.patch)
        else:
            image, label = cut_moved(volume.image, volume.label, start, self.patch, matrix)
        image, label = mirror(image, label, change.flips)
        image = change_intensity(image, change, generator)
        factor = change.scale if self.scale_by == "spacing" else 1.0
        turn = np.eye(3)
        if volume.orientation is not None:  # mirrored, too: the patch then shows a mirrored body that is not rotated
            signs = np.array([-1.0 if axis in change.flips else 1.0 for axis in range(3)])
            turn = signs[:, None] * volume.orientation * signs
        return image, label, factor * np.array(volume.spacing), turn

    def logits(self, model: nn.Module, batch: PatchBatch) -> Tensor:
        """Ask a model, telling it the spacings if it is to know them, and orientations if there are any."""
        # Mixed precision rounds every tensor that a model is given, but leaves arrays alone.
        told = {"spacing": batch.spacing.cpu().numpy()} if self.tell_spacing else {}
        turns = batch.orientation.cpu().numpy()
        if (turns != np.eye(3)).any():
            told["orientation"] = turns
        return model(batch.image, **told)

    def loss(self, model: nn.Module, batch: PatchBatch) -> Tensor:
        """Loss of a batch."""
        return cross_entropy_and_dice(self.logits(model, batch), batch.label, background=False)

    def evaluate(self, model: nn.Module) -> dict[str, float]:
        """Dice over all voxels of the test patches together: its mean over classes, and each class's."""
        device = next(model.parameters()).device
        names = self.test or self.train
        counts = torch.zeros(self.num_classes, self.num_classes, dtype=torch.long)
        with torch.no_grad():
            for number in range(self.test_patches):
                patch = _stack([self._patch(number, names[number % len(names)], TESTING)])
                found = self.logits(model, PatchBatch(*[part.to(device) for part in patch])).argmax(1).cpu()
                counts += confusion(found, patch.label, self.num_classes)
        scores = {f"dice_{k}": score for k, score in enumerate(dice_per_class(counts).tolist()) if k > 0}
        known = {name: score for name, score in scores.items() if not math.isnan(score)}
        return {"score": sum(known.values()) / max(1, len(known)), **known}


def _stack(patches: Sequence[tuple[np.ndarray, ...]]) -> PatchBatch:
    image, label, spacing, orientation = (torch.from_numpy(np.stack(parts)) for parts in zip(*patches, strict=True))
    return PatchBatch(image, label, spacing.float(), orientation.float())
