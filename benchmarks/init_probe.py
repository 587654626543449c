"""What a freshly drawn bank of modes can see, without training it.

Far: the layer's features at the empty centre of 64 x 64 images with one of five shapes in each corner (all 625 of them)
are given to a small MLP, which is to tell whether exactly two corners match. Training and testing on all images makes
this a measure of capacity. The 16th singular value of the features relative to the first says how many independent
numbers about the corners arrive.

Near: a linear map is to read the 3 x 3 neighbourhood of a pixel from its features; the share of variance it explains.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from torchsonic import SonicConv2d

SIZE = 64
CORNER = 8
RADIUS = 6.0
NUM_FEATURES = 64
MLP_STEPS = 1200


@dataclass(frozen=True)
class Bank:
    """One way to draw the modes."""

    name: str
    field: float = 64.0
    options: tuple[tuple[str, float], ...] = ()
    half_circle: bool = False


BANKS = (
    Bank("default"),
    Bank("decay 2-16 px, still", 16, (("shortest_decay", 2.0), ("highest_frequency", 0.0))),
    Bank("decay 4-64 px, still", 64, (("shortest_decay", 4.0), ("highest_frequency", 0.0))),
    Bank("decay 2-64 px, up to pi/2", 64, (("shortest_decay", 2.0),)),
    Bank("decay 2-64 px, up to pi/2, half circle", 64, (("shortest_decay", 2.0),), half_circle=True),
    Bank("decay 16-128 px, up to pi/2", 128, (("shortest_decay", 16.0),)),
    Bank("default, modes as wide as long", options=(("width_to_length", 1.0),)),
    Bank("default, narrow modes", options=(("width_to_length", 0.1),)),
)


def draw_shapes() -> Tensor:
    """Disc, square, triangle, cross and star around the origin, ``(5, 15, 15)``."""
    reach = 7
    y, x = torch.meshgrid(*[torch.arange(-reach, reach + 1).float()] * 2, indexing="ij")
    radius, angle = torch.hypot(x, y), torch.atan2(y, x)
    corner = math.pi / 3
    triangle = RADIUS * math.cos(corner) / torch.cos((angle + math.pi / 2 + corner) % (2 * corner) - corner)
    star = RADIUS * (0.7 + 0.3 * torch.cos(5 * (angle + math.pi / 2)))
    return torch.stack(
        [
            radius <= RADIUS,
            torch.maximum(x.abs(), y.abs()) <= 0.8 * RADIUS,
            radius <= triangle,
            (torch.minimum(x.abs(), y.abs()) <= 0.3 * RADIUS) & (radius <= RADIUS),
            radius <= star,
        ]
    ).float()


def corner_scenes() -> tuple[Tensor, Tensor]:
    """All images ``(625, 1, 64, 64)`` and whether exactly two corners match."""
    shapes = draw_shapes()
    combinations = list(itertools.product(range(5), repeat=4))
    images = torch.zeros(len(combinations), 1, SIZE, SIZE)
    reach = shapes.shape[-1] // 2
    for i, kinds in enumerate(combinations):
        corners = itertools.product((CORNER, SIZE - CORNER), repeat=2)
        for kind, (row, column) in zip(kinds, corners, strict=True):
            images[i, 0, row - reach : row + reach + 1, column - reach : column + reach + 1] = shapes[kind]
    labels = torch.tensor([sorted(kinds.count(k) for k in set(kinds)) == [1, 1, 2] for kinds in combinations])
    return images, labels.long()


def build_layer(bank: Bank, num_modes: int, seed: int) -> SonicConv2d:
    torch.manual_seed(seed)
    layer = SonicConv2d(1, NUM_FEATURES, num_modes=num_modes, bias=False, field=bank.field)
    layer.reset_parameters(None, **dict(bank.options))
    if bank.half_circle:
        with torch.no_grad():
            layer.raw_direction[:, 1].abs_()
    return layer.eval()


def far_accuracy(features: Tensor, labels: Tensor, seed: int) -> float:
    """Balanced accuracy of an MLP on the standardised features."""
    torch.manual_seed(seed)
    features = (features - features.mean(0)) / features.std(0).clamp_min(1e-8)
    mlp = nn.Sequential(nn.Linear(features.shape[1], 128), nn.GELU(), nn.Linear(128, 2))
    optimiser = torch.optim.AdamW(mlp.parameters(), lr=3e-3, weight_decay=1e-4)
    for _ in range(MLP_STEPS):
        loss = nn.functional.cross_entropy(mlp(features), labels)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    predicted = mlp(features).argmax(1)
    return sum((predicted[labels == c] == c).float().mean().item() for c in (0, 1)) / 2


@torch.no_grad()
def near_explained(layer: SonicConv2d) -> float:
    """Share of variance of the 3 x 3 neighbourhood that a linear map reads from the features of a pixel."""
    x = torch.randn(8, 1, SIZE, SIZE, generator=torch.Generator().manual_seed(0))
    features = layer(x).movedim(1, -1).reshape(-1, NUM_FEATURES).double()
    patches = torch.stack([torch.roll(x[:, 0], (i, j), (1, 2)) for i in (-1, 0, 1) for j in (-1, 0, 1)], -1)
    target = patches.reshape(-1, 9).double()
    solution = torch.linalg.lstsq(features, target, driver="gelsd").solution
    residual = (target - features @ solution).var(0).mean() / target.var(0).mean()
    return 1 - residual.item()


def probe(bank: Bank, num_modes: int, seeds: int = 2) -> dict[str, Any]:
    """All measures of a bank: a list over seeds each."""
    images, labels = corner_scenes()
    result: dict[str, Any] = {"bank": bank.name, "modes": num_modes, "far": [], "rank": [], "near": []}
    for seed in range(seeds):
        layer = build_layer(bank, num_modes, seed)
        with torch.no_grad():
            features = torch.cat([layer(part)[:, :, SIZE // 2, SIZE // 2] for part in images.split(125)])
        values = torch.linalg.svdvals((features - features.mean(0)).double())
        result["far"].append(far_accuracy(features, labels, seed))
        result["rank"].append((values[15] / values[0]).item())
        result["near"].append(near_explained(layer))
    return result
