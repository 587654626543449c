"""SynthShape: segment primitives by their shape, whatever their colour.

A scene holds two to six upright shapes of random kind, place, size and colour, none touching another; the colour says
nothing about the kind. The paper leaves counts, sizes and colours open; the choices are here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from torchsonic.lab.data.draws import sample_uniforms
from torchsonic.lab.data.synthetic.shapes import KINDS, REACH, Scenes, render

FEWEST, MOST = 2, 6
SMALLEST, LARGEST = 5.0 / 64, 11.0 / 64
GAP = 1.5 / 64
ATTEMPTS = 20
PER_SLOT = 5 + 2 * ATTEMPTS
COLOUR_SPREAD = 0.15


@dataclass(frozen=True)
class SynthShape:
    """Samples of the task by number.

    Parameters
    ----------
    seed
        Of the whole, endless set.
    size
        Pixels of an image; the scenes do not depend on it.

    Examples
    --------
    >>> from torchsonic.lab.data import SynthShape
    >>> image, label = SynthShape().samples([0, 1, 2])
    >>> image.shape, label.shape, int(label.max()) < SynthShape.num_classes
    (torch.Size([3, 3, 64, 64]), torch.Size([3, 64, 64]), True)
    """

    seed: int = 0
    size: tuple[int, int] = (64, 64)

    num_classes = len(KINDS)

    def scenes(self, indices: Sequence[int]) -> Scenes:
        """The continuous scenes of some samples."""
        numbers = sample_uniforms(self.seed, indices, 7 + MOST * PER_SLOT)
        head, slots = numbers[:, :7], numbers[:, 7:].reshape(len(indices), MOST, PER_SLOT)
        count = FEWEST + np.floor(head[:, 0] * (MOST - FEWEST + 1)).astype(np.int64)
        kind = 1 + np.floor(slots[..., 0] * (len(KINDS) - 1)).astype(np.int64)
        radius = SMALLEST + (LARGEST - SMALLEST) * slots[..., 1]
        centre, placed = _place(slots[..., 5:].reshape(len(indices), MOST, ATTEMPTS, 2), radius)
        kind = np.where(placed & (np.arange(MOST) < count[:, None]), kind, 0)
        base = 0.35 + 0.65 * head[:, 1:4]  # one base colour for a scene, perturbed for each shape
        colour = np.clip(base[:, None] + COLOUR_SPREAD * (2 * slots[..., 2:5] - 1), 0.2, 1.0)
        return Scenes(
            kind=kind,
            centre=centre.astype(np.float32),
            radius=radius.astype(np.float32),
            colour=colour.astype(np.float32),
            ground=(0.1 * head[:, 4:7]).astype(np.float32),
        )

    def samples(self, indices: Sequence[int], size: tuple[int, int] | None = None) -> tuple[Tensor, Tensor]:
        """Images ``(B, 3, H, W)`` in [0, 1] and labels ``(B, H, W)`` of some samples, on any grid."""
        image, label = render(self.scenes(indices), size or self.size)
        return torch.from_numpy(image), torch.from_numpy(label)


def _place(candidates: np.ndarray, radius: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The first of each shape's candidates that touches no earlier shape, ``(B, S, 2)``, and whether there is one."""
    batch, slots = radius.shape
    centre, placed = np.zeros((batch, slots, 2)), np.zeros((batch, slots), bool)
    rows = np.arange(batch)
    for slot in range(slots):
        margin = (REACH * radius[:, slot] + GAP / 2)[:, None, None]
        options = margin + (1 - 2 * margin) * candidates[:, slot]
        free = np.ones(options.shape[:2], bool)
        for earlier in range(slot):
            apart = np.linalg.norm(options - centre[:, None, earlier], axis=-1)
            least = REACH * (radius[:, slot] + radius[:, earlier]) + GAP
            free &= (apart >= least[:, None]) | ~placed[:, None, earlier]
        choice = free.argmax(1)
        centre[:, slot], placed[:, slot] = options[rows, choice], free[rows, choice]
    return centre, placed
