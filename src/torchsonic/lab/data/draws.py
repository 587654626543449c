"""Random numbers that belong to one sample: the same for any order, batch or number of workers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


def number_generator(seed: int, number: int, *, purpose: int) -> np.random.Generator:
    """Random numbers of a sample of a training; ``purpose`` keeps their uses apart."""
    return np.random.Generator(np.random.Philox(key=[seed, number + (purpose << 40)]))


def sample_uniforms(seed: int, indices: Sequence[int], count: int) -> NDArray[np.float64]:
    """``count`` uniform numbers for each sample of a data set, ``(len(indices), count)``."""
    numbers = np.empty((len(indices), count))
    for row, index in enumerate(indices):
        np.random.Generator(np.random.Philox(key=[seed, int(index)])).random(out=numbers[row])
    return numbers
