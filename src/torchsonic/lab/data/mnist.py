"""Handwritten digits as arrays: turned by any angle, upright for training alone, and read row by row as a signal."""

from __future__ import annotations

import gzip
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from torchsonic.lab.data.arrays import Arrays, move_images

FILES = {"train": "train", "test": "t10k"}
TRAIN, TEST = 12_000, 50_000
"""Digits of the published benchmark of turned ones, 10,000 + 2,000 to learn from and choose by."""
CHUNK = 5000


def read_digits(folder: Path, part: str) -> Arrays:
    """The digits of ``train-*`` or ``t10k-*``, ``(N, 1, 28, 28)`` bytes, from the files as they are published."""
    images = _read_idx(folder / f"{FILES[part]}-images-idx3-ubyte.gz", 3)
    labels = _read_idx(folder / f"{FILES[part]}-labels-idx1-ubyte.gz", 1)
    return Arrays(images[:, None], labels.long())


def _read_idx(path: Path, num_axes: int) -> Tensor:
    """An IDX file of bytes: two zeros, the type, the number of axes, big-endian sizes, values."""
    try:
        data = gzip.decompress(path.read_bytes())
    except FileNotFoundError:
        raise ValueError(f"there is no {path}; the folder must contain the four .gz files of MNIST") from None
    except (gzip.BadGzipFile, EOFError) as error:
        raise ValueError(f"{path} is no whole gzip file: {error}") from error
    if data[:4] != bytes([0, 0, 8, num_axes]):
        raise ValueError(f"{path} is no IDX file of bytes with {num_axes} axes; it begins with {data[:4].hex()}")
    size = np.frombuffer(data, ">i4", num_axes, 4).tolist()
    return torch.from_numpy(np.frombuffer(data, np.uint8, -1, 4 + 4 * num_axes).reshape(size).copy())


def make_sets(folder: Path, *, seed: int = 0) -> Mapping[str, Mapping[str, Arrays]]:
    """Data sets by name, each with ``train`` and ``test``.

    ``rotated``: 12,000 and 50,000 digits drawn from all 70,000, each turned by its own angle. ``upright``: the same,
    but training digits as they were written. ``sequence``: MNIST's own 60,000 and 10,000, read row by row,
    ``(N, 1, 784)``.
    """
    whole = {part: read_digits(folder, part) for part in FILES}
    both = Arrays(torch.cat([whole[part].x for part in FILES]), torch.cat([whole[part].y for part in FILES]))
    generator = np.random.Generator(np.random.Philox(key=[seed, 0]))
    order = torch.from_numpy(generator.permutation(len(both)))
    angles = torch.from_numpy(generator.uniform(0, 360, len(both)))
    train, test = (both.take(places) for places in (order[:TRAIN], order[TRAIN : TRAIN + TEST]))
    turned = _turned(test, angles[TRAIN : TRAIN + TEST])
    return {
        "rotated": {"train": _turned(train, angles[:TRAIN]), "test": turned},
        "upright": {"train": train, "test": turned},
        "sequence": {part: Arrays(digits.x.flatten(2), digits.y) for part, digits in whole.items()},
    }


def _turned(digits: Arrays, angles: Tensor) -> Arrays:
    parts = [
        (255 * move_images(digits.values(slice(start, start + CHUNK)), angles[start : start + CHUNK])).round()
        for start in range(0, len(digits), CHUNK)
    ]
    return Arrays(torch.cat(parts).clamp(0, 255).to(torch.uint8), digits.y)
