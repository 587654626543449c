"""Stored pictures, and how far a new one may be from them.

``python -m tests.viz.golden`` writes them anew: look at each before it is kept.
"""

import io
from pathlib import Path

import numpy as np
import torch
from PIL import Image

import torchsonic
from torchsonic import viz

FOLDER = Path(__file__).parents[1] / "golden"
DPI = 50
BLOCK = 6
MEAN, WORST = 1.0, 40.0
"""Of 255: fonts and edges that move by a fraction of a pixel stay below, see the test that other pictures do not."""


def make_layer(num_axes, **options):
    torch.manual_seed(0)
    layer = {1: torchsonic.SonicConv1d, 2: torchsonic.SonicConv2d, 3: torchsonic.SonicConv3d}[num_axes]
    return layer(2, 3, num_modes=6, **options)


def sweep(**mode):
    return viz.draw_sweep(viz.PlaneMode(**mode), values={"angle": [0, 60], "oscillation": [0.3, 1.2]}, size=33)


def modes(num_axes=2):
    return viz.draw_modes(make_layer(num_axes), count=4, samples={1: 65, 2: 33, 3: 15}[num_axes])


def stages(count=2):
    torch.manual_seed(0)
    return viz.draw_stages(
        torch.nn.Sequential(*[torchsonic.SonicConv2d(3, 3, num_modes=6) for _ in range(count)]), samples=33
    )


def field(reach=3):
    x = torch.arange(17) - 8
    values = (-((x[:, None] ** 2 + x**2) / reach**2)).exp()
    return viz.draw_receptive_fields({"a Gaussian": viz.ReceptiveField(values, (8, 8), (1.0, 1.0))}, unit="mm")


FIGURES = {
    "sweep": sweep,
    "modes_1d": lambda: modes(1),
    "modes_2d": modes,
    "modes_3d": lambda: modes(3),
    "stages": stages,
    "rose": lambda: viz.draw_rose(make_layer(2), bins=12),
    "field": field,
}


def render(figure):
    """The figure's pixels, ``(H, W, 3)``."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=DPI)
    return np.asarray(Image.open(buffer).convert("RGB"), dtype=float)


def stored(name):
    return np.asarray(Image.open(FOLDER / f"{name}.png").convert("RGB"), dtype=float)


def differences(first, second):
    """Mean and largest difference of two pictures seen from afar: of the means of their blocks."""
    if first.shape != second.shape:
        return float("inf"), float("inf")
    height, width = (n // BLOCK * BLOCK for n in first.shape[:2])
    apart = (first - second)[:height, :width].reshape(height // BLOCK, BLOCK, width // BLOCK, BLOCK, 3).mean((1, 3))
    return float(np.abs(apart).mean()), float(np.abs(apart).max())


def is_like(first, second):
    mean, worst = differences(first, second)
    return mean <= MEAN and worst <= WORST


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name, draw in FIGURES.items():
        Image.fromarray(render(draw()).astype(np.uint8)).save(FOLDER / f"{name}.png", optimize=True)
        print("written:", name)
