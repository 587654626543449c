"""Accuracy of classifiers, and what it loses at other image sizes."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
"""Of ImageNet's red, green and blue, as networks for photographs are usually given them."""
RESAMPLES, LEVEL, Z = 2000, 0.95, 1.96
Hits = dict[int, NDArray[np.bool_]]
"""For each k, which images have their class among the k likeliest, ``(N,)``."""


def normalise(image: Tensor) -> Tensor:
    """Bytes ``(B, 3, H, W)`` as floats of about mean 0 and deviation 1."""
    mean, std = (torch.tensor(values, device=image.device).view(1, 3, 1, 1) for values in (MEAN, STD))
    return (image.float() / 255 - mean) / std


def top_hits(logits: Tensor, labels: Tensor, k: int) -> Tensor:
    """Whether the true class is among the ``k`` likeliest: ``(B, K)`` and ``(B,)`` to ``(B,)``.

    Examples
    --------
    >>> top_hits(torch.tensor([[3.0, 2.0, 1.0]]), torch.tensor([1]), 2)
    tensor([True])
    """
    found = logits.topk(min(k, logits.shape[1]), dim=1).indices
    return (found == labels[:, None]).any(1)


def classify(
    model: nn.Module,
    batches: Iterable[tuple[Tensor, Tensor]],
    *,
    spacing: float | tuple[float, ...] | None = None,
) -> Hits:
    """Classify bytes ``(B, 3, H, W)`` with labels ``(B,)``; the model is given the ``spacing`` if there is one."""
    device = next(model.parameters()).device
    told = {} if spacing is None else {"spacing": spacing}
    found: dict[int, list[NDArray[np.bool_]]] = {k: [np.zeros(0, bool)] for k in (1, 5)}
    with torch.no_grad():
        for image, label in batches:
            logits = model(normalise(image.to(device)), **told).cpu()
            for k, parts in found.items():
                parts.append(top_hits(logits, label, k).numpy())
    return {k: np.concatenate(parts) for k, parts in found.items()}


def degradation(there: float, here: float) -> float:
    """Accuracy lost from the training size to another, as a percentage of the former; NaN if that is 0.

    Examples
    --------
    >>> degradation(0.8, 0.6)
    25.0
    """
    return math.nan if there == 0 else round(100 * (there - here) / there, 10)


def degradation_interval(there: NDArray[np.bool_], here: NDArray[np.bool_]) -> tuple[float, float]:
    """Bootstrap interval of 95 % of :func:`degradation` over images, each with its hits at both sizes.

    Hits are ``(N,)``, or ``(S, N)`` for ``S`` runs on the same images: those of one image are drawn together, since
    what is hard for one run is hard for the others.
    """
    if there.shape != here.shape:
        raise ValueError(f"hits at both sizes must be for the same images, got {there.shape} and {here.shape}")
    counts = np.stack([np.atleast_2d(hits).sum(0) for hits in (there, here)], axis=1)
    # Only the numbers of images of each kind matter, and these are multinomial.
    kinds, members = np.unique(counts, axis=0, return_counts=True)
    if not counts[:, 0].any():
        return math.nan, math.nan
    draws = np.random.default_rng(0).multinomial(len(counts), members / len(counts), RESAMPLES)
    before, after = (draws @ kinds).T
    known = before > 0
    losses = 100 * (before[known] - after[known]) / before[known]
    low, high = np.quantile(losses, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)


def accuracy_interval(hits: NDArray[np.bool_]) -> tuple[float, float]:
    """Wilson's interval of 95 % of a share of hits, ``(N,)`` or ``(S, N)``.

    Several runs on the same images count as more images to the extent that their hits are independent.
    """
    each = np.atleast_2d(hits).mean(0)
    p = float(each.mean()) if len(each) else 0.0
    variance = float(each.var()) if len(each) else 0.0
    n = max(1, len(each)) * (p * (1 - p) / variance if variance > 0 else 1.0)
    middle = (p + Z * Z / (2 * n)) / (1 + Z * Z / n)
    half = Z / (1 + Z * Z / n) * math.sqrt(p * (1 - p) / n + Z * Z / (4 * n * n))
    return max(0.0, middle - half), min(1.0, middle + half)
