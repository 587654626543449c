"""What lies beyond the edge of an image: its other side, zeros, or its mirror image.

The operator runs on a periodic grid. If the grid is larger than the image, a margin separates the image from its
periodic copies. By default the margin is as wide as the image; filled with zeros, this makes the convolution linear
except for modes longer than the image. A narrow margin costs much less. Every layer of a network then still sees zeros
at the edge, but modes longer than the margin wrap around.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from torchsonic.arguments import per_axis, widths_per_axis
from torchsonic.spectral.band import Band

__all__ = [
    "CIRCULAR",
    "Boundary",
    "PaddingMode",
    "check_margin",
    "check_padding",
    "even_margin",
    "extend",
    "extend_adjoint",
    "fast_size",
    "scaled_margin",
]

PaddingMode = Literal["circular", "zeros", "reflect"]
# How many larger sizes to try in search of one that transforms fast.
LOOK_AHEAD = 8


def _is_fast(size: int) -> bool:
    for factor in (2, 3, 5, 7):
        while size % factor == 0:
            size //= factor
    return size == 1


def fast_size(minimum: int) -> int:
    """Smallest size >= ``minimum`` with no prime factor above 7, which every FFT library handles well."""
    while not _is_fast(minimum):
        minimum += 1
    return minimum


class Boundary(NamedTuple):
    """How samples continue across their edge.

    Attributes
    ----------
    mode
        ``"circular"``, ``"zeros"`` or ``"reflect"``.
    margin
        Smallest number of samples between the image and its periodic copy, per axis; ``()`` for the size of the axis.
    """

    mode: PaddingMode = "circular"
    margin: tuple[int, ...] = ()

    def band(self, size: tuple[int, ...], out_size: tuple[int, ...], *, half: bool = True) -> Band:
        """The periodic grids on which the operator runs.

        Without resampling the size is rounded up to a fast one. With resampling the extension must be a whole number of
        samples on both the input and the output grid.
        """
        if self.mode == "circular":
            return Band(size, out_size, half)
        margins = self.margin or (None,) * len(size)
        pairs = [self._extended(n, m, margin) for n, m, margin in zip(size, out_size, margins, strict=True)]
        return Band(tuple(a for a, _ in pairs), tuple(b for _, b in pairs), half)

    def _extended(self, n: int, m: int, margin: int | None) -> tuple[int, int]:
        """Extended sizes of one axis, of the input and the output grid."""
        if n == m and self.mode == "zeros":
            total = fast_size(n + (n - 1 if margin is None else min(margin, n - 1)))
            return total, total
        if margin is None:
            return 2 * n, 2 * m
        step = n // math.gcd(n, m)
        least = n + math.ceil(min(margin, n) / step) * step
        sizes = [least + k * step for k in range(LOOK_AHEAD) if least + k * step <= 2 * n]
        fast = [a for a in sizes if _is_fast(a) and _is_fast(a * m // n)]
        total = (fast or [least])[0]
        return total, total * m // n


CIRCULAR = Boundary()


def check_padding(padding: int | Sequence[int] | None, mode: PaddingMode, num_axes: int) -> tuple[int, ...] | None:
    """Samples per axis, or ``None`` for the size of the axis."""
    _refuse_no_margin(padding, mode)
    return None if padding is None else per_axis(padding, num_axes, "padding")


def check_margin(padding: float | Sequence[float] | None, mode: PaddingMode, num_axes: int) -> tuple[float, ...] | None:
    """Widths in samples of a reference spacing, whole or not, or ``None`` for the size of the axis."""
    _refuse_no_margin(padding, mode)
    return None if padding is None else widths_per_axis(padding, num_axes, "padding")


def even_margin(padding: float, spacing: Sequence[float]) -> tuple[float, ...]:
    """Samples per axis of a margin that is equally wide along all axes: ``padding`` samples of the finest one."""
    return tuple(padding * min(spacing) / step for step in spacing)


def _refuse_no_margin(padding: object, mode: PaddingMode) -> None:
    if padding is not None and mode == "circular":
        raise ValueError(f"padding={padding} needs padding_mode='zeros' or 'reflect'; 'circular' has no margin")


def scaled_margin(widths: Sequence[float], finest: Sequence[float]) -> tuple[int, ...]:
    """A margin of physical widths in samples of the spacing ``finest``: as wide, and at least one."""
    return tuple(max(1, math.ceil(width / fine - 1e-6)) for width, fine in zip(widths, finest, strict=True))


def _reflected_indices(size: int, total: int, device) -> list[Tensor]:
    """Which sample of the image each of ``total`` samples repeats: the image itself, then mirror images of both ends.

    As in ``nn.ConvNd``, the edge sample is not repeated. The two mirror images meet in the middle of the margin. The
    middle sample of an odd margin belongs to both, so the extension is the mean of two: a flipped image must have a
    flipped extension.
    """
    index = torch.arange(total, device=device)
    from_right = 2 * (size - 1) - index
    from_left = total - index
    even = isinstance(total, int) and (total - size) % 2 == 0  # nobody knows of an exporter's symbols
    meet = (total - size) // 2, (total - size + 1) // 2
    mirrored = [torch.where(index < size + place, from_right, from_left) for place in (meet[:1] if even else meet)]
    return [torch.where(index < size, index, one).clamp_(0, size - 1) for one in mirrored]


def extend(x: Tensor, band: Band, boundary: Boundary) -> Tensor:
    """Continue samples across their edge; transforms add zeros themselves."""
    if boundary.mode == "reflect":
        for axis, total in enumerate(band.size_in, start=-band.num_axes):
            parts = [x.index_select(axis, i) for i in _reflected_indices(x.shape[axis], total, x.device)]
            x = parts[0] if len(parts) == 1 else (parts[0] + parts[1]) / 2
    return x


def extend_adjoint(g: Tensor, size: tuple[int, ...], boundary: Boundary) -> Tensor:
    """Adjoint of :func:`extend` and of padding with zeros, for samples of the given size."""
    for axis, n in enumerate(size, start=-len(size)):
        if boundary.mode == "reflect":
            folded = g.new_zeros([*g.shape[:axis], n, *g.shape[g.dim() + axis + 1 :]])
            indices = _reflected_indices(n, g.shape[axis], g.device)
            for index in indices:
                folded.index_add_(axis, index, g, alpha=1 / len(indices))
            g = folded
        else:
            g = g.narrow(axis, 0, n)
    return g
