"""A Fourier transform of one axis in two steps, where its size has factors: fewer products than one whole matrix.

With ``N = a b``, samples ``n = a m + j`` and wavenumbers ``k = p + b q`` the transform is

    Z[p + b q] = sum_j exp(-2 pi i j (p + b q) / N)  sum_m exp(-2 pi i m p / b) x[a m + j]:

first one real matrix of size b for all ``j``, then for each ``p`` a matrix of size a with the twiddle factors in it.
Rows are ``[sample, part]`` before and ``[p, part, q]`` behind: nothing has to be moved. A synthesis is the transpose.
"""

from __future__ import annotations

import math
from functools import lru_cache

import torch
from torch import Tensor

# Small matrices are multiplied less efficiently: two steps must save this much.
WORTHWHILE = 0.5


@lru_cache(maxsize=256)
def factorise(size: int) -> tuple[int, int] | None:
    """``a`` and ``b`` that make the two steps cheapest; ``None`` if one whole matrix is as good."""
    pairs = [(a, size // a) for a in range(2, size // 2 + 1) if size % a == 0]
    best = min(pairs, key=lambda pair: 2 * pair[0] + pair[1], default=None)
    if best is None or 2 * best[0] + best[1] > WORTHWHILE * size:
        return None
    return best


def step_matrices(size: int, factors: tuple[int, int], dtype: torch.dtype, device=None) -> tuple[Tensor, Tensor]:
    """The first step, ``(2 b, b)``, and the second, ``(b, 2 a, 4 a)``; not divided by the samples."""
    a, b = factors

    def waves(turns: Tensor, period: int) -> tuple[Tensor, Tensor]:
        angles = (turns % period).to(torch.float64) * (2 * math.pi / period)
        return angles.cos(), angles.sin()

    p, q, j = (torch.arange(n, device=device) for n in (b, a, a))
    first = torch.stack(waves(p[:, None] * p, b), dim=1).flatten(0, 1)
    cosine, sine = waves((p[:, None, None] + b * q[:, None]) * j, size)  # (p, q, j)
    # Columns are the sums with cosines and with sines, which stand for 1 and -i, each [j, part]; rows are [part, q].
    blocks = {
        "real": [(cosine, sine), (-sine, cosine)],
        "imaginary": [(-sine, cosine), (-cosine, -sine)],
    }
    rows = [torch.cat([torch.stack(parts, dim=3).flatten(2) for parts in row], dim=2) for row in blocks.values()]
    return first.to(dtype), torch.cat(rows, dim=1).to(dtype)


def analyse_in_two(z: Tensor, steps: tuple[Tensor, Tensor]) -> Tensor:
    """``(B, S, [n, part], rest)`` to ``(B, S, p, [part, q], rest)``."""
    first, second = steps
    num_p, num_q = second.shape[0], second.shape[1] // 2
    lead, rest = z.shape[:2], z.shape[-1]
    z = first @ z.reshape(*lead, num_p, 2 * num_q * rest)
    return second @ z.reshape(*lead, num_p, 4 * num_q, rest)


def synthesise_in_two(z: Tensor, steps: tuple[Tensor, Tensor]) -> Tensor:
    """``(B, S, p, [part, q], rest)`` to ``(B, S, [n, part], rest)``."""
    first, second = steps
    num_p, num_q = second.shape[0], second.shape[1] // 2
    lead, rest = z.shape[:2], z.shape[-1]
    z = second.mT @ z
    z = first.mT @ z.reshape(*lead, 2 * num_p, 2 * num_q * rest)
    return z.reshape(*lead, 2 * num_p * num_q, rest)
