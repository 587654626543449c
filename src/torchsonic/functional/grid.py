"""Numbers of modes, and vectors of axes, as arrays over the grid of frequencies ``(G, M, n_1 .. n_D)``."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

__all__ = ["column", "outer_sum"]


def column(values: Tensor, num_axes: int) -> Tensor:
    """One number for each mode, ``(.., M)``, with length 1 on the axes of the grid."""
    return values.reshape(*values.shape, *[1] * num_axes)


def outer_sum(pieces: Sequence[Tensor], axes: Sequence[int], num_axes: int) -> Tensor:
    """Add vectors ``(G, M, n_d)``, one for each of the given axes, to an array ``(G, M, ..)`` with D axes."""
    total = None
    for axis, piece in zip(axes, pieces, strict=True):
        shape = [1] * num_axes
        shape[axis] = piece.shape[-1]
        piece = piece.reshape(*piece.shape[:2], *shape)
        total = piece if total is None else total + piece
    assert total is not None
    return total
