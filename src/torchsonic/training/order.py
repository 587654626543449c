"""The order in which training meets its samples: a function of the seed and the place."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

__all__ = ["epoch_order"]


def epoch_order(pool: Sequence[int] | NDArray[np.int64], seed: int, start: int, count: int) -> NDArray[np.int64]:
    """Samples number ``start`` to ``start + count`` of an endless run through a pool, shuffled anew each time."""
    pool = np.asarray(pool, dtype=np.int64)
    picked = []
    while count > 0:
        epoch, place = divmod(start, len(pool))
        shuffled = np.random.Generator(np.random.Philox(key=[seed, epoch])).permutation(pool)
        part = shuffled[place : place + count]
        picked.append(part)
        start, count = start + len(part), count - len(part)
    return np.concatenate(picked)
