"""Advice when memory runs out inside the operator: which chunk of modes would fit."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

if TYPE_CHECKING:
    from torchsonic.engine.call import Options

__all__ = ["advising", "free_bytes", "is_exhaustion"]

# Messages of PyTorch's allocators for CPUs and Apple GPUs, and of cuFFT and cuBLAS; CUDA has its own exception.
WORDS = ("can't allocate memory", "not enough memory", "out of memory", "ALLOC_FAILED")
# Fraction of the free memory to plan with: libraries need some of it, and it is fragmented.
USABLE = 0.8


def is_exhaustion(error: BaseException) -> bool:
    """Whether an error means that memory ran out."""
    if isinstance(error, (torch.OutOfMemoryError, MemoryError)):
        return True
    return isinstance(error, RuntimeError) and any(words in str(error) for words in WORDS)


def _number_in(path: str) -> int | None:
    try:
        return int(Path(path).read_text())
    except (OSError, ValueError):  # not there, or "max"
        return None


def _free_on_host() -> int | None:
    """What the system, the container and the limit of the process leave, whichever is least; ``None`` if unknown."""
    found = []
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        found += [1024 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable:")]
    except OSError:
        pass
    limit, used = (_number_in(f"/sys/fs/cgroup/memory.{name}") for name in ("max", "current"))
    if limit is not None and used is not None:
        found.append(limit - used)
    if sys.platform != "win32":
        import resource

        most = resource.getrlimit(resource.RLIMIT_AS)[0]
        pages = Path("/proc/self/statm")
        if most != resource.RLIM_INFINITY and pages.exists():
            found.append(most - int(pages.read_text().split()[0]) * resource.getpagesize())
    return max(0, min(found)) if found else None


def free_bytes(device: torch.device) -> int | None:
    """Bytes that could still be allocated on a device, or ``None`` where that is not known."""
    if device.type == "cpu":
        return _free_on_host()
    if device.type == "cuda":
        unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return torch.cuda.mem_get_info(device)[0] + unused
    if device.type == "mps":
        return max(0, torch.mps.recommended_max_memory() - torch.mps.driver_allocated_memory())
    return None


def _readable(count: float) -> str:
    return f"{count / 1e9:.2f} GB" if count >= 1e9 else f"{count / 1e6:.1f} MB"


@contextmanager
def advising(
    x: Tensor,
    sizes: tuple[int, int, int, int, tuple[int, ...]],
    options: Options,
    *,
    training: bool = False,
    keep: bool = False,
    kept: Sequence[Tensor | None] = (),
    per_sample: bool = False,
) -> Iterator[None]:
    """If memory runs out in the block, raise an error of the same class that says how much was needed and what fits.

    Parameters
    ----------
    sizes
        Batch, channels in and out, modes, and the samples of each axis.
    training
        Whether this is a training step, forward or backward.
    keep, kept
        Whether intermediate results are kept for the backward pass, and those that exist already, which chunks would
        not need.
    """
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if not is_exhaustion(error):
            raise
        # The frames of the failed call still hold its tensors.
        traceback.clear_frames(error.__traceback__)
        others = {
            "output_size": options.out_size,
            "padding_mode": options.padding_mode,
            "padding": options.padding or None,
            "order": options.order,
            "symmetry": options.symmetry,
            "limits": options.limits,
            "training": training,
            "per_sample": per_sample,
            "dtype": x.dtype,
            "device": x.device.type,
        }
        held = sum(t.numel() * t.element_size() for t in kept if t is not None)
        try:
            text = _advice(sizes, options.mode_chunk or None, not keep, x.device, held, others)
        except Exception:  # there may not even be memory for the advice, and imports then fail in many ways
            raise error from None
        raise type(error)(text) from error


def _advice(
    sizes: tuple[int, int, int, int, tuple[int, ...]],
    chunk: int | None,
    recompute: bool,
    device: torch.device,
    held: int,
    others: dict[str, Any],
) -> str:
    from torchsonic.engine.footprint import estimated_bytes, largest_fit  # it runs the operator itself

    asked = estimated_bytes(*sizes, mode_chunk=chunk, recompute=recompute, **others)
    free = free_bytes(device)  # only now, since estimating loads modules, which takes memory
    batch, in_channels, out_channels, num_modes, size = sizes
    step = "forward and backward" if others["training"] else "forward"
    lines = [
        f"Memory ran out in a Sonic operator: batch {batch}, {in_channels} to {out_channels} channels, {num_modes} "
        f"modes, grid {size}, {others['dtype']}, mode_chunk={chunk}, recompute={recompute}.",
        f"This needs about {_readable(asked)} beyond its input and weights ({step}).",
    ]
    if free is None:
        fit = largest_fit(asked // 2, sizes, **others)
        lines.append(f"mode_chunk={fit.mode_chunk} needs about {_readable(fit.needed)}.")
        return " ".join(lines)
    free += held
    fit = largest_fit(int(USABLE * free), sizes, **others)
    lines.append(f"About {_readable(free)} are free.")
    if not fit.fits:
        text = f"Even mode_chunk=1 needs about {_readable(fit.needed)}: make the batch or the grid smaller."
    elif fit.mode_chunk < (chunk or num_modes):
        text = (
            f"mode_chunk={fit.mode_chunk} would fit with about {_readable(fit.needed)}: build the layer with "
            f'execution={{"mode_chunk": {fit.mode_chunk}}}, or set layer.mode_chunk; recompute is then on by default.'
        )
    elif not recompute:
        text = f"recompute=True would fit with about {_readable(fit.needed)}."
    else:  # by the estimate it fits, so memory is fragmented or was taken by others
        text = f"Try mode_chunk={max(1, (chunk or num_modes) // 2)}."
    return " ".join([*lines, text])
