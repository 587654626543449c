"""A synthetic scene, upright and rotated, and the answers of two pretrained networks to both.

Both networks were trained on upright shapes only. One applies every mode in many directions, so its answer rotates with
the image; the other consists of 3x3 convolutions, which are tied to rows and columns.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor, nn

from torchsonic.lab.data.synthetic import SynthShape
from torchsonic.lab.data.synthetic.perturbations import move_affinely, similarity
from torchsonic.models import from_pretrained

__all__ = ["NETWORKS", "SCENES", "Answer", "turn_scene"]

NETWORKS = {"orbit": "shapes_orbit", "conv": "shapes_conv"}
SCENES = 100
FIRST = 10_000  # of the drawn scenes that no network was trained on
OUTSIDE = -1


class Answer(NamedTuple):
    """Classes ``(H, W)`` of the upright and of the turned scene."""

    upright: Tensor
    turned: Tensor
    agreement: float
    """Of the pixels that belong to a shape in the turned answer or in the answer to the turned scene, the share that
    has the same class in both; what comes from outside the frame is left out."""


@cache
def _network(name: str) -> nn.Module:
    return from_pretrained(NETWORKS[name]).eval()


def turn_scene(scene: int, degrees: float) -> tuple[Tensor, Tensor, dict[str, Answer]]:
    """A scene ``(H, W)`` in brightness, the same turned counterclockwise, and the answer of each network."""
    image, label = SynthShape().samples([FIRST + scene])
    matrix = similarity(1, degrees=-degrees)  # rows run downwards
    turned, _ = move_affinely(image, label, matrix, OUTSIDE)
    answers = {}
    for name in NETWORKS:
        first, second = _network(name)(torch.cat([image, turned])).argmax(1)
        expected = move_affinely(image, first[None], matrix, OUTSIDE)[1][0]
        shapes = (expected != OUTSIDE) & ((expected > 0) | (second > 0))
        agreement = float((expected == second)[shapes].float().mean()) if shapes.any() else 1.0
        answers[name] = Answer(first, second, agreement)
    return image[0].mean(0), turned[0].mean(0), answers
