"""The paper's six perturbations, applied at inference to images and labels alike.

Each takes images ``(B, C, H, W)``, labels ``(B, H, W)``, a level and a generator, and returns both on the same grid.
Images are interpolated bilinearly and continued with the colour at their border, labels take the nearest sample and
become background (or stay ignored) outside. Lengths are in pixels of a 64-pixel field, so that a finer image is
perturbed alike.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

FIELD = 64
COARSE = 3
"""Points per axis of the field that a distortion interpolates: bends, as the paper's mild losses suggest."""


def sample_at(
    image: Tensor, label: Tensor, grid: Tensor, outside: int, *, beyond: str = "border"
) -> tuple[Tensor, Tensor]:
    """Read both at the places ``grid (B, H, W, 2)``, x before y, the field being [-1, 1].

    ``beyond`` its edge an image goes on with the colour there, ``"border"``, or with ``"zeros"``.
    """
    grid = grid.to(image.device)
    image = F.grid_sample(image, grid, mode="bilinear", padding_mode=beyond, align_corners=False)
    # Shifted to begin at one, ignored labels included, so that zeros outside mean "not there".
    first = min(0, int(label.min())) - 1
    dtype = torch.float32 if image.device.type == "mps" else torch.float64
    moved = F.grid_sample((label - first)[:, None].to(dtype), grid.to(dtype), mode="nearest", align_corners=False)
    moved = moved[:, 0].round().long()
    return image, torch.where(moved == 0, outside, moved + first)


def move_affinely(
    image: Tensor, label: Tensor, matrix: Tensor, outside: int, *, beyond: str = "border"
) -> tuple[Tensor, Tensor]:
    """Read both where matrices ``(B, 2, 3)`` send the places of the grid."""
    grid = F.affine_grid(matrix, list(image.shape), align_corners=False)
    return sample_at(image, label, grid, outside, beyond=beyond)


def similarity(batch: int, *, scale: float = 1.0, degrees: Tensor | float = 0.0, shift: Tensor | None = None) -> Tensor:
    """Matrices ``(B, 2, 3)`` that read an image which is enlarged, turned and shifted (x, y, in half fields)."""
    angle = torch.as_tensor(degrees, dtype=torch.float32).expand(batch) * math.pi / 180
    cos, sin = angle.cos() / scale, angle.sin() / scale
    turn = torch.stack([torch.stack([cos, sin], -1), torch.stack([-sin, cos], -1)], -2)
    offset = torch.zeros(batch, 2) if shift is None else shift
    return torch.cat([turn, -(turn @ offset[..., None])], -1)


def _signs(*shape: int, generator: torch.Generator) -> Tensor:
    return 2.0 * torch.randint(2, shape, generator=generator) - 1


def distort(image: Tensor, label: Tensor, level: float, generator: torch.Generator, outside: int):
    """Displace by a smooth random field of at most about ``level`` pixels."""
    batch, size = image.shape[0], list(image.shape[2:])
    coarse = (2 * torch.rand(batch, 2, COARSE, COARSE, generator=generator) - 1) * level * 2 / FIELD
    shift = F.interpolate(coarse, size, mode="bicubic", align_corners=True).movedim(1, -1)
    grid = F.affine_grid(similarity(batch), list(image.shape), align_corners=False)
    return sample_at(image, label, grid + shift, outside)


def add_noise(image: Tensor, label: Tensor, level: float, generator: torch.Generator, outside: int):
    """Add Gaussian noise of standard deviation ``level`` to each pixel and channel."""
    # Drawn on the CPU, so that all devices see the same noise.
    return image + level * torch.randn(image.shape, generator=generator).to(image), label


def rescale(image: Tensor, label: Tensor, level: float, generator: torch.Generator, outside: int):
    """Enlarge by ``level`` about the centre and crop, or shrink and continue, to the same grid."""
    return move_affinely(image, label, similarity(image.shape[0], scale=level), outside)


def rotate(image: Tensor, label: Tensor, level: float, generator: torch.Generator, outside: int):
    """Turn by ``level`` degrees about the centre, either way."""
    degrees = level * _signs(image.shape[0], generator=generator)
    return move_affinely(image, label, similarity(image.shape[0], degrees=degrees), outside)


def translate(image: Tensor, label: Tensor, level: float, generator: torch.Generator, outside: int):
    """Shift by ``level`` per cent of the field on both axes, either way; what leaves the frame is lost."""
    shift = 2 * level / 100 * _signs(image.shape[0], 2, generator=generator)
    return move_affinely(image, label, similarity(image.shape[0], shift=shift), outside)


def combine(image: Tensor, label: Tensor, level: float, generator: torch.Generator, outside: int):
    """Do all five at a share of their strength.

    At level 10: turn by 5 degrees, shift by 5 %, enlarge by 1.1, distort by 1 pixel and add noise of 0.03;
    proportionally more at 20 and 30.
    """
    batch = image.shape[0]
    matrix = similarity(
        batch,
        scale=1 + level / 100,
        degrees=level / 2 * _signs(batch, generator=generator),
        shift=level / 100 * _signs(batch, 2, generator=generator),
    )
    image, label = move_affinely(image, label, matrix, outside)
    image, label = distort(image, label, level / 10, generator, outside)
    return add_noise(image, label, 0.003 * level, generator, outside)


Change = Callable[[Tensor, Tensor, float, torch.Generator, int], tuple[Tensor, Tensor]]


@dataclass(frozen=True)
class Perturbation:
    """A perturbation and the levels at which the paper tests it."""

    apply: Change
    levels: tuple[float, ...]
    told: Change | None = None
    """If the level enlarges images: what gives those that come with their spacing, ``1 / level``."""


PERTURBATIONS = {
    "distortion": Perturbation(distort, (2, 4, 6)),
    "noise": Perturbation(add_noise, (0.1, 0.2, 0.3)),
    "rescaling": Perturbation(rescale, (0.75, 1.0, 1.5), told=rescale),
    "rotation": Perturbation(rotate, (15, 30, 45)),
    "translation": Perturbation(translate, (10, 20, 30)),
    "combined": Perturbation(combine, (10, 20, 30)),
}


def perturb(
    image: Tensor, label: Tensor, kind: str, level: float, *, seed: int = 0, outside: int = 0
) -> tuple[Tensor, Tensor]:
    """Perturb a batch.

    Parameters
    ----------
    kind, level
        One of ``PERTURBATIONS`` and its strength.
    seed
        Of everything random in it.
    outside
        Label of what comes from outside the frame.

    Examples
    --------
    >>> image, label = torchsonic.lab.data.SynthShape().samples([0])
    >>> image, label = torchsonic.lab.data.perturb(image, label, "rotation", 30)
    """
    if kind not in PERTURBATIONS:
        raise ValueError(f"kind must be one of {', '.join(PERTURBATIONS)}, got {kind!r}")
    generator = torch.Generator().manual_seed(seed)
    return PERTURBATIONS[kind].apply(image, label, level, generator, outside)
