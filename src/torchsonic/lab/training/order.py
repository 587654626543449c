"""The order in which training meets its samples: a function of the seed and the place."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

__all__ = ["epoch_order", "place_in_epoch"]


def epoch_order(pool: Sequence[int] | NDArray[np.int64], seed: int, start: int, count: int) -> NDArray[np.int64]:
    """Samples number ``start`` to ``start + count`` of an endless run through a pool, shuffled anew each time."""
    places = [place_in_epoch(len(pool), seed, number) for number in range(start, start + count)]
    return np.asarray(pool, dtype=np.int64)[places]


def place_in_epoch(count: int, seed: int, number: int) -> int:
    """Sample ``number`` of an endless run through ``count`` samples."""
    epoch, place = divmod(number, count)
    return int(_shuffled(count, seed, epoch)[place])


@lru_cache(maxsize=2)
def _shuffled(count: int, seed: int, epoch: int) -> NDArray[np.int64]:
    return np.random.Generator(np.random.Philox(key=[seed, epoch])).permutation(count)
