"""Random numbers that belong to one sample of a training, whoever makes it."""

from __future__ import annotations

import numpy as np

__all__ = ["number_generator"]


def number_generator(seed: int, number: int, *, purpose: int) -> np.random.Generator:
    """Random numbers that belong to a sample and to nothing else; ``purpose`` keeps their uses apart."""
    return np.random.Generator(np.random.Philox(key=[seed, number + (purpose << 40)]))
