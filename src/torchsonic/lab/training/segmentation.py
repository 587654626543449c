"""Segmentation of samples that a data set gives by number, and its losses.

Each loss is a mean over samples, so that splitting a batch over processes changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from torchsonic.lab.data.draws import number_generator
from torchsonic.lab.data.synthetic.perturbations import move_affinely, similarity
from torchsonic.lab.metrics.overlap import IGNORE
from torchsonic.lab.metrics.robustness import score_samples
from torchsonic.lab.training.task import epoch_order


def weighted_cross_entropy(logits: Tensor, labels: Tensor, weights: Tensor | None = None) -> Tensor:
    r"""Mean over samples of the class-weighted cross-entropy.

    .. math:: \ell_b = \frac{1}{N_b} \sum_{r} w_{t(r)} \left(-\log p_{t(r)}(r)\right)

    over the ``N_b`` pixels of a sample that are not ignored. PyTorch's own divides by the sum of the weights in the
    whole batch instead, which depends on how the batch is split.

    Shapes: ``logits (B, K, ...)``, ``labels (B, ...)``, ``weights (K,)`` to a scalar.
    """
    losses = F.cross_entropy(logits.float(), labels, weights, ignore_index=IGNORE, reduction="none").flatten(1)
    counts = (labels != IGNORE).flatten(1).sum(1).clamp_min(1)
    return (losses.sum(1) / counts).mean()


def soft_dice_loss(logits: Tensor, labels: Tensor, *, background: bool = True, smooth: float = 1.0) -> Tensor:
    r"""One minus the soft Dice score, a mean over samples and classes.

    .. math:: 1 - \frac{2\sum_r p_k(r)\,t_k(r) + \epsilon}{\sum_r p_k(r) + \sum_r t_k(r) + \epsilon}

    Shapes: ``logits (B, K, ...)``, ``labels (B, ...)`` to a scalar. ``background`` counts class 0.
    """
    heard = (labels != IGNORE).unsqueeze(1)
    probabilities = logits.float().softmax(1) * heard
    target = F.one_hot(labels.clamp_min(0), logits.shape[1]).movedim(-1, 1) * heard
    axes = tuple(range(2, logits.dim()))
    overlap = (probabilities * target).sum(axes)
    total = probabilities.sum(axes) + target.sum(axes)
    dice = (2 * overlap + smooth) / (total + smooth)
    return 1 - (dice if background else dice[:, 1:]).mean()


def cross_entropy_and_dice(
    logits: Tensor, labels: Tensor, weights: Tensor | None = None, *, dice: float = 0.5, background: bool = True
) -> Tensor:
    """Half of each, as in the paper, or another share ``dice`` of the Dice loss."""
    entropy = weighted_cross_entropy(logits, labels, weights)
    if dice == 0:
        return entropy
    return (1 - dice) * entropy + dice * soft_dice_loss(logits, labels, background=background)


def inverse_frequency_weights(counts: Tensor) -> Tensor:
    """Class weights from numbers of pixels ``(K,)``: inverse to the frequency, of mean 1 over pixels."""
    frequency = counts.double() / counts.sum()
    weights = 1 / frequency.clamp_min(1e-6)
    return (weights / (weights * frequency).sum()).to(torch.float32)


WEIGHT_SAMPLES = 512
Criterion = Callable[[Tensor, Tensor, Tensor], Tensor]


class NumberedSamples(Protocol):
    """An endless set of images and labels."""

    @property
    def num_classes(self) -> int: ...

    def samples(self, indices: Sequence[int]) -> tuple[Tensor, Tensor]: ...


class SegmentationTask:
    """Class-weighted cross-entropy and Dice loss, by default half of each; scored by the Dice of all test pixels.

    Parameters
    ----------
    data
        Samples by number.
    train, test
        Numbers to learn from and to be scored on. Training goes through its numbers again and again, shuffled anew.
    batch
        Samples of a step.
    noise
        Largest standard deviation of noise added to training images; each has its own, uniform from 0 on.
    turn
        Largest angle, in degrees, by which training images and labels are turned about their centre, either way.
    beyond
        What a turned image shows from outside its frame: the colour at its ``"border"``, or ``"zeros"``.
    background
        Whether class 0 counts in the score like the others; in the loss it always does.
    dice
        Share of the Dice loss; the rest is cross-entropy.
    window
        Rows and columns outside of which nothing is labelled; the model is asked for logits there alone.
    weigh
        Weights of the classes by the numbers of their pixels, in a few training samples.
    criterion
        Loss by logits, labels and these weights, instead of the two with their share.
    score_batch
        Samples of a batch that is scored by itself; by default all are scored together.
    """

    def __init__(
        self,
        data: NumberedSamples,
        train: Sequence[int],
        test: Sequence[int],
        *,
        batch: int,
        seed: int = 0,
        noise: float = 0.0,
        turn: float = 0.0,
        beyond: str = "border",
        background: bool = False,
        dice: float = 0.5,
        window: tuple[slice, slice] | None = None,
        weigh: Callable[[Tensor], Tensor] = inverse_frequency_weights,
        criterion: Criterion | None = None,
        score_batch: int | None = None,
    ) -> None:
        self.data, self.train, self.test = data, np.asarray(train), np.asarray(test)
        self.size, self.seed, self.noise, self.background = batch, seed, noise, background
        self.turn, self.beyond = turn, beyond
        self.dice, self.window, self.criterion, self.score_batch = dice, window, criterion, score_batch
        labels = data.samples(self.train[:WEIGHT_SAMPLES].tolist())[1]
        counts = torch.bincount(labels[labels >= 0], minlength=data.num_classes)
        self.weights = weigh(counts)

    def batch(self, step: int, samples: range) -> tuple[Tensor, Tensor]:
        """Images and labels of some samples of a step."""
        start = step * self.size + samples.start
        image, label = self.data.samples(epoch_order(self.train, self.seed, start, len(samples)).tolist())
        if self.turn:
            numbers = range(start, start + len(samples))
            draws = [number_generator(self.seed, number, purpose=1).uniform(-1, 1) for number in numbers]
            matrix = similarity(len(draws), degrees=self.turn * torch.tensor(draws))
            image, label = move_affinely(image, label, matrix, 0, beyond=self.beyond)
        if self.noise:
            for place, one in enumerate(image, start=start):
                generator = np.random.Generator(np.random.Philox(key=[self.seed, place + (1 << 32)]))
                level = self.noise * generator.random()
                one += level * torch.from_numpy(generator.standard_normal(one.shape, dtype=np.float32))
        return image, label

    def loss(self, model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
        """Loss of a batch."""
        image, label = batch
        if self.window is None:
            logits = model(image)
        else:
            logits, label = model(image, window=self.window), label[(slice(None), *self.window)]
        criterion = self.criterion or partial(cross_entropy_and_dice, dice=self.dice)
        return criterion(logits, label, self.weights.to(image.device))

    def evaluate(self, model: nn.Module) -> dict[str, float]:
        """Dice on the test samples."""
        score = score_samples(
            model,
            self.data.samples,
            self.test.tolist(),
            num_classes=self.data.num_classes,
            background=self.background,
            window=self.window,
            batch=self.score_batch,
        )
        return {"score": score}
