"""Random numbers that belong to a sample: the same for any order, batch or number of workers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

__all__ = ["sample_uniforms"]


def sample_uniforms(seed: int, indices: Sequence[int], count: int) -> NDArray[np.float64]:
    """``count`` uniform numbers for each sample, ``(len(indices), count)``, from a generator of its own."""
    numbers = np.empty((len(indices), count))
    for row, index in enumerate(indices):
        np.random.Generator(np.random.Philox(key=[seed, int(index)])).random(out=numbers[row])
    return numbers
