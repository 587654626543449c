"""How much memory a step of the operator needs, found without allocating it, and advice if there is too little.

The kernels run on tensors that have shapes but no values, and every storage is counted while it exists. So the estimate
follows the kernels by itself. It does not see buffers inside libraries, except for the known copies of a Fourier
transform.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.weak import WeakIdKeyDictionary

from torchsonic.arguments import choice, per_axis, positive
from torchsonic.engine.call import Operands, Options, Step
from torchsonic.engine.couplings import Couplings
from torchsonic.engine.kernels import backward, order_of
from torchsonic.engine.memory import free_bytes, keep_pages
from torchsonic.engine.plan import plan_step

__all__ = ["Fit", "advice", "estimated_bytes", "largest_fit", "step_bytes"]

# Number of chunks to run: the first, one between and the last. More of them have the same peak.
ENOUGH_CHUNKS = 3
# Fraction of the free memory to plan with: libraries need some of it, and it is fragmented.
USABLE = 0.8


def estimated_bytes(
    batch: int, in_channels: int, out_channels: int, num_modes: int, size: Sequence[int], **options: Any
) -> int:
    """Peak memory of one call of the operator in bytes, in addition to input, weights and the output's gradient.

    Nothing of that size is allocated. Peaks measured by PyTorch's allocator agree within 20 %.

    Parameters
    ----------
    batch, in_channels, out_channels, num_modes, size
        B, C, K, M, and the samples on each axis.
    options
        ``output_size``, ``padding_mode``, ``padding``, ``order``, ``mode_chunk``, ``recompute``, ``symmetry`` and
        ``limits`` as in :func:`torchsonic.functional.spectral_conv`; ``training=False`` counts only the forward pass;
        ``per_sample=True`` means that each sample has its own spacing, and so its own responses; ``dtype`` is the
        precision, float32 (the default) or float64; ``device`` is the type of device, by default ``"cpu"``, which may
        process the batch a few samples at a time.

    Examples
    --------
    >>> whole = torchsonic.functional.estimated_bytes(1, 32, 32, 64, (64, 64, 64))
    >>> chunked = torchsonic.functional.estimated_bytes(1, 32, 32, 64, (64, 64, 64), mode_chunk=4)
    >>> whole > 3 * chunked
    True
    """
    counts = {"batch": batch, "in_channels": in_channels, "out_channels": out_channels, "num_modes": num_modes}
    for name, count in counts.items():
        positive(count, name)
    if not isinstance(size, Sequence) or not 1 <= len(size) <= 3:
        raise ValueError(f"size must be the number of samples on 1 to 3 axes, got {size!r}")
    grid = per_axis(size, len(size), "size")
    return step_bytes(_with_options(Step(batch, in_channels, out_channels, num_modes, grid, Options(grid)), **options))


def _with_options(
    step: Step, *, recompute: bool | None = None, training=True, per_sample=False, dtype=torch.float32, device="cpu",
    **options: Any,
) -> Step:  # fmt: skip
    choice(dtype, (torch.float32, torch.float64), "dtype")
    checked = Options.checked(step.size, **options)
    keep = training and not (checked.mode_chunk > 0 if recompute is None else recompute)
    return Step(*step[:5], checked, training, keep, per_sample, dtype, device)


def step_bytes(step: Step) -> int:
    """Peak memory of a step; see :func:`estimated_bytes`."""
    from torch._subclasses.fake_tensor import FakeTensorMode  # takes long to load

    options = step.options._replace(order=plan_step(step).order)
    few = step._replace(options=options)
    if options.mode_chunk and not step.keep:  # otherwise what all chunks keep adds up
        few = few._replace(num_modes=min(step.num_modes, ENOUGH_CHUNKS * options.mode_chunk))
    if step.device == "cpu":
        keep_pages()  # needs an ordinary tensor
    with FakeTensorMode():
        operands, plan = _empty_operands(few), plan_step(few)
        grad_y = operands.x.new_empty(step.batch, step.out_channels, *options.out_size)
        with _Tally() as tally:
            tally.exclude(*operands, grad_y)
            y, kept = order_of(plan).forward(operands.mixing, Couplings(operands, options, plan), plan, keep=step.keep)
            if step.training:
                backward(grad_y, operands, options, plan, kept, [True] * len(operands))
            del y, kept
    unseen = (step.num_modes - few.num_modes) * 2 * (step.in_channels + step.out_channels) * step.dtype.itemsize
    return tally.peak + (unseen if step.training else 0)


class _Tally(TorchDispatchMode):
    """Peak of the bytes of all storages made in this mode."""

    def __init__(self) -> None:
        super().__init__()
        self.live = self.peak = 0
        self._seen = WeakIdKeyDictionary()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        made = func(*args, **(kwargs or {}))
        if func is torch.ops.aten._fft_c2r.default and len(args[1]) > 1:
            # It first runs a complex transform of the other axes, from a copy in another layout into a new tensor.
            self.peak = max(self.peak, self.live + 2 * args[0].numel() * args[0].element_size())
        for tensor in tree_leaves(made):
            if isinstance(tensor, Tensor):
                self._count(tensor.untyped_storage())
        return made

    def _count(self, storage: torch.UntypedStorage) -> None:
        if storage in self._seen:
            return
        size = storage.nbytes()
        self._seen[storage] = weakref.finalize(storage, self._release, size)
        self.live += size
        self.peak = max(self.peak, self.live)

    def exclude(self, *tensors: Tensor | None) -> None:
        """Do not count tensors that existed before."""
        for tensor in tensors:
            if tensor is not None:
                self._seen[tensor.untyped_storage()] = None

    def _release(self, size: int) -> None:
        self.live -= size


def _empty_operands(step: Step) -> Operands:
    batch, in_channels, out_channels, num_modes, size = step[:5]

    def empty(*shape: int) -> Tensor:
        return torch.empty(shape, dtype=step.dtype, device=step.device)

    number = empty(1, num_modes)
    return Operands(
        x=empty(batch, in_channels, *size),
        mix_in=empty(num_modes, 2, in_channels),
        mix_out=empty(out_channels, num_modes, 2),
        direction=empty(1, num_modes, len(size)),
        scale=number,
        damping=number,
        oscillation=number,
        transverse=number,
        gain=number,
        cutoff=number if step.options.band_order > 0 else None,
        bias=empty(out_channels),
        spacing=empty(batch if step.per_sample else 1, len(size)),
    )


class Fit(NamedTuple):
    """The largest chunk of modes that fits, or 1 if none does, and the bytes that it needs."""

    mode_chunk: int
    needed: int
    fits: bool


def largest_fit(available: int, step: Step) -> Fit:
    """Halve the chunk of modes until a step that recomputes fits into ``available`` bytes."""
    chunk = step.num_modes
    while True:
        needed = step_bytes(step._replace(options=step.options._replace(mode_chunk=chunk), keep=False))
        if needed <= available or chunk == 1:
            return Fit(chunk, needed, needed <= available)
        chunk = (chunk + 1) // 2


def advice(step: Step, device: torch.device, held: int) -> str:
    """How much a step needed that ran out of memory, and which chunk of modes would fit.

    ``held`` are the bytes of what was kept for the backward pass, which chunks would not need.
    """
    asked = step_bytes(step)
    free = free_bytes(device)  # only now, since estimating loads modules, which takes memory
    chunk, recompute = step.options.mode_chunk or None, not step.keep
    lines = [
        f"Out of memory in a Sonic operator: batch {step.batch}, {step.in_channels} to {step.out_channels} channels, "
        f"{step.num_modes} modes, grid {step.size}, {step.dtype}, mode_chunk={chunk}, recompute={recompute}.",
        f"This needs about {_readable(asked)} in addition to input and weights "
        f"({'forward and backward' if step.training else 'forward'}).",
    ]
    if free is None:
        fit = largest_fit(asked // 2, step)
        return " ".join([*lines, f"mode_chunk={fit.mode_chunk} needs about {_readable(fit.needed)}."])
    free += held
    fit = largest_fit(int(USABLE * free), step)
    lines.append(f"About {_readable(free)} is free.")
    if not fit.fits:
        text = f"Even mode_chunk=1 needs about {_readable(fit.needed)}: make the batch or the grid smaller."
    elif fit.mode_chunk < (chunk or step.num_modes):
        text = (
            f"mode_chunk={fit.mode_chunk} would fit with about {_readable(fit.needed)}: build the layer with "
            f'execution={{"mode_chunk": {fit.mode_chunk}}}, or set layer.mode_chunk; recompute is then on by default.'
        )
    elif not recompute:
        text = f'execution={{"recompute": True}} would fit with about {_readable(fit.needed)}.'
    else:  # by the estimate it fits, so memory is fragmented or was taken by others
        text = f"Try mode_chunk={max(1, (chunk or step.num_modes) // 2)}."
    return " ".join([*lines, text])


def _readable(count: float) -> str:
    return f"{count / 1e9:.2f} GB" if count >= 1e9 else f"{count / 1e6:.1f} MB"
