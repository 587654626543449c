"""Losses of segmentation. Each is a mean over samples, so that splitting a batch over processes changes nothing."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from torchsonic.lab.metrics.overlap import IGNORE


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
