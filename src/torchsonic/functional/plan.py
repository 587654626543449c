"""How one call of the operator is carried out: order of evaluation and chunks.

The mixing matrices commute with the Fourier transform, so each side may transform its channels or its modes (two real
signals each), whichever is cheaper. Four orders, one operator:

    modes-modes         mix, FFT of 2M   | IFFT of 2M, mix
    modes-channels      mix, FFT of 2M   | mix, IFFT of K
    channels-modes      FFT of C, mix    | IFFT of 2M, mix
    channels-channels   FFT of C, mix    | mix, IFFT of K
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import get_args

from torchsonic.functional.arguments import choice, positive
from torchsonic.functional.frequency import Band
from torchsonic.functional.spectrum import PaddingMode, padded_sizes

__all__ = ["ORDERS", "Plan", "make_plan", "order_by_channels", "order_costs", "split"]

ORDERS = ("modes-modes", "modes-channels", "channels-modes", "channels-channels")

# Measured on AVX2 cores: a flop of a multi-axis FFT takes as long as this many flops of a matrix product.
FFT_FLOP_COST = 4.0

# Bytes of real signals a CPU call takes through the transform at once: small enough for the allocator to hand the same
# warm pages out again (fresh pages cost more than the transform that fills them), large enough to feed the threads.
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
    padding: PaddingMode
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


def order_costs(
    in_channels: int,
    out_channels: int,
    num_modes: int,
    size: tuple[int, ...],
    out_size: tuple[int, ...] | None = None,
    padding: PaddingMode = "circular",
) -> dict[str, float]:
    """Estimated cost of each order for one sample, in flops of a matrix product.

    Examples
    --------
    >>> costs = order_costs(64, 64, 16, (128, 128))
    >>> min(costs, key=costs.get)
    'modes-modes'
    """
    out_size = size if out_size is None else out_size
    band = padded_sizes(size, out_size, padding)
    coefficients = 2 * math.prod(band.shape)

    def side(channels: int, samples: tuple[int, ...], transformed: tuple[int, ...]) -> dict[str, float]:
        points = math.prod(transformed)
        fft = FFT_FLOP_COST * 2.5 * points * math.log2(max(points, 2))
        mixing = 2.0 * 2 * num_modes * channels
        return {
            "modes": 2 * num_modes * fft + mixing * math.prod(samples),
            "channels": channels * fft + mixing * coefficients,
        }

    entry = side(in_channels, size, band.size_in)
    exit_ = side(out_channels, out_size, band.size_out)
    return {order: entry[order.split("-")[0]] + exit_[order.split("-")[1]] for order in ORDERS}


def order_by_channels(in_channels: int, out_channels: int, num_modes: int) -> str:
    """The order that transforms fewer signals on each side; the choice where sizes are not known yet."""
    sides = ["modes" if 2 * num_modes <= channels else "channels" for channels in (in_channels, out_channels)]
    return "-".join(sides)


@lru_cache(maxsize=512)
def make_plan(
    batch: int,
    in_channels: int,
    out_channels: int,
    num_modes: int,
    size: tuple[int, ...],
    out_size: tuple[int, ...],
    *,
    padding: PaddingMode = "circular",
    order: str = "auto",
    mode_chunk: int | None = None,
    on_cpu: bool = True,
) -> Plan:
    """Choose the cheapest order unless one is forced, and the chunks.

    Parameters
    ----------
    order
        ``"auto"`` or one of :data:`ORDERS`.
    mode_chunk
        Modes taken at once; ``None`` takes all. Peak memory then grows with the chunk instead of M.
    """
    if order == "auto":
        costs = order_costs(in_channels, out_channels, num_modes, size, out_size, padding)
        order = min(costs, key=costs.__getitem__)
    elif order not in ORDERS:
        raise ValueError(f"order must be 'auto' or one of {', '.join(ORDERS)}, got {order!r}")
    choice(padding, get_args(PaddingMode), "padding_mode")
    if mode_chunk is not None:
        positive(mode_chunk, "mode_chunk")
    channels_in, channels_out = (side == "channels" for side in order.split("-"))
    band = padded_sizes(size, out_size, padding)
    modes = min(mode_chunk or num_modes, num_modes)
    samples = batch
    if on_cpu:
        signals = max(2 * modes, in_channels if channels_in else 0, out_channels if channels_out else 0)
        points = max(math.prod(band.size_in), math.prod(band.size_out))
        samples = min(batch, max(2, CPU_SIGNAL_BYTES // (4 * signals * points)))
    return Plan(size, out_size, band, padding, channels_in, channels_out, modes, max(samples, 1))
