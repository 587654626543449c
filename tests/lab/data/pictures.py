"""Small folders of pictures that tests write themselves."""

from pathlib import Path

import numpy as np
from PIL import Image

CLASSES = ("blue", "green", "red")


def make_picture(label: int, number: int, size=(40, 48)) -> np.ndarray:
    """A coloured square on noise; the class is the colour."""
    generator = np.random.default_rng([label, number])
    pixels = generator.integers(0, 90, (*size, 3), dtype=np.uint8)
    top, left = generator.integers(4, 14, 2)
    pixels[top : top + 20, left : left + 20, 2 - label] = 220
    return pixels


def write_pictures(root: Path, *, train: int = 6, val: int = 3) -> Path:
    """``train/CLASS/`` and ``val/CLASS/`` as PNG files, so that nothing is lost."""
    for part, count in (("train", train), ("val", val)):
        for label, name in enumerate(CLASSES):
            folder = root / part / name
            folder.mkdir(parents=True)
            for number in range(count):
                offset = 100 if part == "val" else 0
                Image.fromarray(make_picture(label, number + offset)).save(folder / f"{number:03d}.png")
    return root
