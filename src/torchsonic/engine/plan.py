"""How one call of the operator is carried out: order of evaluation and chunks.

The mixing matrices commute with the Fourier transform, so each side may transform its channels or its modes, whichever
is cheaper. Four orders, one operator:

    modes-modes         mix, FFT of M complex signals  | IFFT of M complex signals, mix
    modes-channels      mix, FFT of 2M real signals    | mix, IFFT of K
    channels-modes      FFT of C, mix                  | IFFT of 2M real signals, mix
    channels-channels   FFT of C, mix                  | mix, IFFT of K

A model of the cost chooses, or what was measured on this machine: see :mod:`search`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import get_args

from torchsonic.arguments import choice, positive
from torchsonic.engine.pages import keeps_all_pages
from torchsonic.engine.products import takes_samples_apart
from torchsonic.spectral.band import Band
from torchsonic.spectral.boundary import Boundary, PaddingMode
from torchsonic.spectral.response import Symmetry

__all__ = ["ORDERS", "Plan", "make_plan", "order_by_channels", "order_costs", "split"]

ORDERS = ("modes-modes", "modes-channels", "channels-modes", "channels-channels")

# Measured on AVX2 cores: a flop of a multi-axis FFT takes as long as this many flops of a matrix product.
FFT_FLOP_COST = 4.0
# Bytes of the modes' signals that a CPU takes through the transforms at once where freed pages are not kept: fresh
# pages cost more than the transform that fills them, and the allocator hands small blocks out again.
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
    channels_in: bool
    channels_out: bool
    mode_chunk: int
    sample_chunk: int

    @property
    def order(self) -> str:
        side = {True: "channels", False: "modes"}
        return f"{side[self.channels_in]}-{side[self.channels_out]}"

    def sample_chunks(self, batch: int) -> list[slice]:
        return split(batch, self.sample_chunk)

    def mode_chunks(self, num_modes: int) -> list[slice]:
        return split(num_modes, self.mode_chunk)


def uses_half_spectra(order: str, symmetry: Symmetry) -> bool:
    """Whether modes are pairs of real signals; complex ones need modes on both sides, and the exact operator."""
    return order != "modes-modes" or symmetry == "half"


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
    'modes-modes'
    """
    out_size = size if out_size is None else out_size
    band = _boundary(padding).band(size, out_size)
    coefficients = 2 * math.prod(band.shape)

    def fft(transformed: tuple[int, ...]) -> float:
        points = math.prod(transformed)
        return FFT_FLOP_COST * 2.5 * points * math.log2(max(points, 2))

    def side(kind: str, channels: int, samples: tuple[int, ...], transformed: tuple[int, ...], each: float) -> float:
        mixing = 2.0 * 2 * num_modes * channels
        if kind == "modes":
            return each * num_modes * fft(transformed) + mixing * math.prod(samples)
        return channels * fft(transformed) + mixing * coefficients

    costs = {}
    for order in ORDERS:
        entry, exit_ = order.split("-")
        each = 1.0 if order == "modes-modes" else 2.0  # one complex transform takes about as long as one real one
        costs[order] = side(entry, in_channels, size, band.size_in, each)
        costs[order] += side(exit_, out_channels, out_size, band.size_out, each)
    return costs


def order_by_channels(in_channels: int, out_channels: int, num_modes: int) -> str:
    """The order that transforms fewer signals on each side; the choice where sizes are not known yet."""
    if num_modes <= min(in_channels, out_channels):
        return "modes-modes"
    sides = ["modes" if 2 * num_modes <= channels else "channels" for channels in (in_channels, out_channels)]
    return "-".join(sides)


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
        Modes taken at once; ``None`` takes all. Peak memory then grows with the chunk instead of M.
    sample_chunk
        Samples taken at once; by default all, but on a CPU one where products take samples one by one, and a few
        megabytes where freed pages are not kept.
    """
    if mode_chunk is not None:
        positive(mode_chunk, "mode_chunk")
    work = 2 * num_modes * min(in_channels, out_channels) * math.prod(size)
    if sample_chunk is None and on_cpu and takes_samples_apart(work):
        sample_chunk = 1
    few = on_cpu and not keeps_all_pages()
    sizes = (batch, in_channels, out_channels, num_modes, size, out_size)
    return _make_plan(*sizes, _boundary(padding), order, mode_chunk, sample_chunk, symmetry, few)


@lru_cache(maxsize=512)
def _make_plan(
    batch: int,
    in_channels: int,
    out_channels: int,
    num_modes: int,
    size: tuple[int, ...],
    out_size: tuple[int, ...],
    boundary: Boundary,
    order: str,
    mode_chunk: int | None,
    sample_chunk: int | None,
    symmetry: Symmetry,
    few: bool,
) -> Plan:
    if order == "auto":
        costs = order_costs(in_channels, out_channels, num_modes, size, out_size, boundary)
        order = min(costs, key=costs.__getitem__)
    elif order not in ORDERS:
        raise ValueError(f"order must be 'auto' or one of {', '.join(ORDERS)}, got {order!r}")
    channels_in, channels_out = (side == "channels" for side in order.split("-"))
    band = boundary.band(size, out_size, half=uses_half_spectra(order, symmetry))
    modes = min(mode_chunk or num_modes, num_modes)
    samples = batch if sample_chunk is None else sample_chunk
    if sample_chunk is None and few:
        signals = max(2 * modes, in_channels if channels_in else 0, out_channels if channels_out else 0)
        points = max(math.prod(band.size_in), math.prod(band.size_out))
        samples = min(batch, max(1, CPU_SIGNAL_BYTES // (4 * signals * points)))
    return Plan(size, out_size, band, channels_in, channels_out, modes, max(samples, 1))
