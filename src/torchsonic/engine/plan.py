"""How one call of the operator is computed: order of evaluation and chunks.

The mixing matrices commute with the Fourier transform, so either modes or channels can be transformed. The two orders
give the same result:

    modes       mix, FFT of M complex signals | couple | IFFT of M complex signals, mix
    channels    FFT of C real signals, mix    | couple | mix, IFFT of K real signals

A cost model chooses, or a measurement on this machine (:mod:`search`). Mixed orders, with modes on one side and
channels on the other, were never more than a few per cent faster.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from functools import lru_cache
from typing import get_args

from torchsonic.arguments import choice, positive
from torchsonic.engine.pages import keeps_all_pages
from torchsonic.engine.products import takes_samples_apart
from torchsonic.spectral.band import Band
from torchsonic.spectral.boundary import CIRCULAR, Boundary, PaddingMode
from torchsonic.spectral.response import Symmetry

__all__ = ["ORDERS", "Plan", "known_order", "make_plan", "order_by_channels", "order_costs", "split"]

ORDERS = ("modes", "channels")
OLD_ORDERS = {
    "modes-modes": "modes",
    **dict.fromkeys(("modes-channels", "channels-modes", "channels-channels"), "channels"),
}

# Measured on AVX2 cores: a flop of a multi-axis FFT takes as long as this many flops of a matrix product.
FFT_FLOP_COST = 4.0
# Bytes of signals that a CPU transforms at once if freed memory is not kept. Fresh pages cost more than the transform
# that fills them, but the allocator reuses small blocks.
CPU_SIGNAL_BYTES = 4 << 20


def split(total: int, step: int) -> list[slice]:
    """Consecutive slices of at most ``step`` that cover ``total``."""
    return [slice(i, min(i + step, total)) for i in range(0, total, step)]


@dataclass(frozen=True)
class Plan:
    """A choice of order and chunks for given sizes."""

    size: tuple[int, ...]
    out_size: tuple[int, ...]
    band: Band
    order: str
    mode_chunk: int
    sample_chunk: int
    boundary: Boundary = CIRCULAR

    def sample_chunks(self, batch: int) -> list[slice]:
        return split(batch, self.sample_chunk)

    def mode_chunks(self, num_modes: int) -> list[slice]:
        return split(num_modes, self.mode_chunk)


def known_order(order: str) -> str:
    """``"auto"`` or one of :data:`ORDERS`; names of older versions are translated."""
    if order in OLD_ORDERS:
        warnings.warn(f"order={order!r} is now {OLD_ORDERS[order]!r}; pass that", FutureWarning, stacklevel=2)
    return choice(OLD_ORDERS.get(order, order), ("auto", *ORDERS), "order")


def order_costs(
    in_channels: int,
    out_channels: int,
    num_modes: int,
    size: tuple[int, ...],
    out_size: tuple[int, ...] | None = None,
    padding: PaddingMode | Boundary = "circular",
) -> dict[str, float]:
    """Estimated cost of each order for one sample, in flops of a matrix product.

    Examples
    --------
    >>> costs = order_costs(64, 64, 16, (128, 128))
    >>> min(costs, key=costs.get)
    'modes'
    """
    out_size = size if out_size is None else out_size
    band = _boundary(padding).band(size, out_size)

    def fft(transformed: tuple[int, ...]) -> float:
        """Cost of one signal. Real and complex ones take about as long, since real ones change their layout."""
        points = math.prod(transformed)
        return FFT_FLOP_COST * 2.5 * points * math.log2(max(points, 2))

    there, back = fft(band.size_in), fft(band.size_out)
    mixing_in, mixing_out = (4.0 * num_modes * channels for channels in (in_channels, out_channels))
    return {
        "modes": num_modes * (there + back) + mixing_in * math.prod(size) + mixing_out * math.prod(out_size),
        "channels": in_channels * there + out_channels * back + (mixing_in + mixing_out) * 2 * math.prod(band.shape),
    }


def order_by_channels(in_channels: int, out_channels: int, num_modes: int) -> str:
    """The order that transforms fewer signals, for compilers that do not know the grid yet."""
    return "modes" if 2 * num_modes <= in_channels + out_channels else "channels"


def _boundary(padding: PaddingMode | Boundary) -> Boundary:
    if isinstance(padding, Boundary):
        return padding
    return Boundary(choice(padding, get_args(PaddingMode), "padding_mode"))


def make_plan(
    batch: int,
    in_channels: int,
    out_channels: int,
    num_modes: int,
    size: tuple[int, ...],
    out_size: tuple[int, ...],
    *,
    padding: PaddingMode | Boundary = "circular",
    order: str = "auto",
    mode_chunk: int | None = None,
    sample_chunk: int | None = None,
    symmetry: Symmetry = "real",
    on_cpu: bool = True,
) -> Plan:
    """Choose the cheapest order unless one is forced, and the chunks.

    Parameters
    ----------
    order
        ``"auto"`` or one of :data:`ORDERS`.
    mode_chunk
        Number of modes to compute at once, or ``None`` for all. Peak memory grows with it instead of M.
    sample_chunk
        Number of samples to compute at once. By default all; on a CPU one at a time if oneDNN computes the products, or
        a few megabytes if freed memory is not kept.
    """
    if mode_chunk is not None:
        positive(mode_chunk, "mode_chunk")
    work = 2 * num_modes * min(in_channels, out_channels) * math.prod(size)
    if sample_chunk is None and on_cpu and takes_samples_apart(work):
        sample_chunk = 1
    order = "channels" if symmetry == "half" else known_order(order)  # a half spectrum has no complex signals
    few = sample_chunk is None and on_cpu and not keeps_all_pages()
    sizes = (batch, in_channels, out_channels, num_modes, size, out_size)
    return _make_plan(sizes, _boundary(padding), order, mode_chunk or num_modes, sample_chunk or batch, few)


@lru_cache(maxsize=512)
def _make_plan(
    sizes: tuple[int, int, int, int, tuple[int, ...], tuple[int, ...]],
    boundary: Boundary,
    order: str,
    modes: int,
    samples: int,
    few: bool,
) -> Plan:
    """The plan for so many modes and samples at once; fewer samples if only ``few`` megabytes stay in memory."""
    _, in_channels, out_channels, num_modes, size, out_size = sizes
    if order == "auto":
        costs = order_costs(in_channels, out_channels, num_modes, size, out_size, boundary)
        order = min(costs, key=costs.__getitem__)
    band = boundary.band(size, out_size, half=order == "channels")
    modes = min(modes, num_modes)
    if few:
        signals = max(2 * modes, in_channels, out_channels) if band.half else 2 * modes
        points = max(math.prod(band.size_in), math.prod(band.size_out))
        samples = min(samples, CPU_SIGNAL_BYTES // (4 * signals * points))
    return Plan(size, out_size, band, order, modes, max(samples, 1), boundary)
