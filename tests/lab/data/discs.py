"""Folders of pictures with discs on them, and their masks."""

from pathlib import Path

import numpy as np
from PIL import Image


def draw_discs(size, discs) -> np.ndarray:
    """Numbers of discs ``(H, W)``, each ``(row, column, radius)``; where two overlap, a pixel belongs to the nearer."""
    rows, columns = np.ogrid[: size[0], : size[1]]
    depth = np.stack([r - np.hypot(rows - y, columns - x) for y, x, r in discs])
    return np.where(depth.max(0) > 0, 1 + depth.argmax(0), 0).astype(np.int32)


def make_scene(number: int, size=(48, 56)) -> tuple[np.ndarray, np.ndarray]:
    """A noisy grey picture of some discs, two of which touch, and their numbers."""
    generator = np.random.default_rng(number)
    y, x = generator.uniform(14, 24), generator.uniform(12, 20)
    discs = [(y, x, 7.5), (y + 2, x + 14, 7.5), (size[0] - 9, size[1] - generator.uniform(9, 14), 5.5)]
    label = draw_discs(size, discs)
    picture = 60 + 120 * (label > 0) + generator.normal(0, 8, size)
    return picture.clip(0, 255).astype(np.uint8), label


def write_discs(root: Path, count: int = 6, *, classes: bool = False) -> Path:
    """``images/`` and ``masks/``: of objects, or of two classes by the size of a disc; sizes differ."""
    for part in ("images", "masks"):
        (root / part).mkdir(parents=True, exist_ok=True)
    for number in range(count):
        picture, label = make_scene(number, (48 + 4 * (number % 3), 56 + 6 * (number % 2)))
        colours = np.stack([picture] * 3, axis=-1)
        Image.fromarray(colours if number % 2 else picture).save(root / "images" / f"scene{number}.png")
        mask = np.where(label == 3, 2, label > 0) if classes else label
        Image.fromarray(mask.astype(np.uint8)).save(root / "masks" / f"scene{number}.png")
    return root
