"""How one call of the operator is computed: order of evaluation and chunks.

The mixing matrices commute with the Fourier transform, so either modes or channels can be transformed. The two orders
give the same result:

    modes       mix, FFT of M complex signals | couple | IFFT of M complex signals, mix        (GPUs: 2 M real ones)
    channels    FFT of C real signals, mix    | couple | mix, IFFT of K real signals

A cost model chooses, or a measurement on this machine (:mod:`search`). Mixed orders, with modes on one side and
channels on the other, were never more than a few per cent faster.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, get_args

from torchsonic.arguments import choice, positive
from torchsonic.engine.accelerator import transforms_pairs
from torchsonic.engine.call import ORDERS, Options, Step, known_order
from torchsonic.engine.memory import keeps_all_pages
from torchsonic.engine.products import takes_samples_apart
from torchsonic.spectral.band import Band
from torchsonic.spectral.boundary import CIRCULAR, Boundary, PaddingMode
from torchsonic.spectral.response import Symmetry

__all__ = ["ORDERS", "Plan", "known_order", "make_plan", "order_costs", "plan_step", "split"]

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
    **options: Any,
) -> Plan:
    """Choose the cheapest order unless one is forced, and the chunks.

    Parameters
    ----------
    batch, in_channels, out_channels, num_modes, size, out_size
        B, C, K, M, and the samples on each axis of input and output.
    options
        ``padding``, ``order`` (``"auto"`` or one of :data:`ORDERS`), ``mode_chunk``, ``sample_chunk``, ``symmetry`` and
        ``on_cpu``. ``mode_chunk`` is the number of modes to compute at once, or ``None`` for all; peak memory grows
        with it instead of M. ``sample_chunk`` is that of samples: by default all; on a CPU one at a time if oneDNN
        computes the products, or a few megabytes if freed memory is not kept.
    """
    step = Step(batch, in_channels, out_channels, num_modes, size, Options(out_size))
    return _plan_with(step, **options)


def _plan_with(
    step: Step,
    *,
    padding: PaddingMode | Boundary = "circular",
    order: str = "auto",
    mode_chunk: int | None = None,
    sample_chunk: int | None = None,
    symmetry: Symmetry = "real",
    on_cpu: bool = True,
) -> Plan:
    if mode_chunk is not None:
        positive(mode_chunk, "mode_chunk")
    options = Options(step.options.out_size, *_boundary(padding), order, mode_chunk or 0, symmetry)
    return plan_step(step._replace(options=options, device="cpu" if on_cpu else "cuda"), sample_chunk)


def plan_step(step: Step, sample_chunk: int | None = None) -> Plan:
    """The cost model's plan for a call; see :func:`make_plan`."""
    options, on_cpu = step.options, step.device == "cpu"
    work = 2 * step.num_modes * min(step.in_channels, step.out_channels) * math.prod(step.size)
    if sample_chunk is None and on_cpu and takes_samples_apart(work):
        sample_chunk = 1
    order = "channels" if options.symmetry == "half" else known_order(options.order)  # half spectra are of real signals
    few = sample_chunk is None and on_cpu and not keeps_all_pages()
    chunks = options.mode_chunk or step.num_modes, sample_chunk or step.batch
    pairs = transforms_pairs(step.device)
    return _make_plan(step[1:5], tuple(options.out_size), options.boundary, order, *chunks, few, pairs)


@lru_cache(maxsize=512)
def _make_plan(
    sizes: tuple[int, int, int, tuple[int, ...]],
    out_size: tuple[int, ...],
    boundary: Boundary,
    order: str,
    modes: int,
    samples: int,
    few: bool,
    pairs: bool,
) -> Plan:
    """The plan for so many modes and samples at once; fewer samples if only ``few`` megabytes stay in memory."""
    in_channels, out_channels, num_modes, size = sizes
    if order == "auto":
        costs = order_costs(in_channels, out_channels, num_modes, size, out_size, boundary)
        order = min(costs, key=costs.__getitem__)
    band = boundary.band(size, out_size, half=pairs or order == "channels")
    modes = min(modes, num_modes)
    if few:
        signals = 2 * modes if order == "modes" else max(2 * modes, in_channels, out_channels)
        points = max(math.prod(band.size_in), math.prod(band.size_out))
        samples = min(samples, CPU_SIGNAL_BYTES // (4 * signals * points))
    return Plan(size, out_size, band, order, modes, max(samples, 1), boundary)
