"""Parameters and floating-point operations of a model; peak memory of a piece of work.

Conventions: a multiply-add is two operations; a complex multiplication six, with an addition eight, and with a real
factor two; a complex multiply-add within a product of matrices eight. A Fourier transform of N points counts
``5 N log2 N`` if it is complex and half of that if one side is real, N being the product over all transformed axes.
That is the convention of FFT benchmarks: the operations of the radix-2 algorithm, whatever algorithm runs.

References
----------
Frigo, Johnson: The Design and Implementation of FFTW3. Proceedings of the IEEE 93 (2005), section on benchmarks.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode, flop_registry

aten = torch.ops.aten
Formula = Callable[..., int]


def count_parameters(model: nn.Module, *, trainable: bool = False) -> int:
    """Learnable numbers of a model, each tensor once; with ``trainable`` only those that get gradients.

    Examples
    --------
    >>> count_parameters(torch.nn.Linear(3, 5))
    20
    """
    return sum(p.numel() for p in model.parameters() if p.requires_grad or not trainable)


def count_flops(model: nn.Module, example: Tensor, **kwargs: Any) -> int:
    r"""Floating-point operations of one forward pass in evaluation, as the model runs it on the example's device.

    Counted are products of matrices (``einsum`` and attention among them), convolutions, Fourier transforms and
    elementwise multiplications of complex numbers. A Sonic layer of M modes from C to K channels, on N samples with F
    frequencies in their half spectrum, so has, for each image,

    .. math:: 4 M C\,N' + 4 M K\,N'' + 28 M F + \mathrm{FFT}

    operations: the mixing on N samples or, where it sits inside the transform, on 2 F numbers; the coupling of two
    signals per mode; and real transforms of 2.5 N log2 N for C or 2 M signals one way and K or 2 M the other. With
    modes on both sides two signals are one complex one, whose coupling takes 6 M N operations.

    Not counted are real elementwise operations (norms, activations, biases, sums), additions and divisions of complex
    numbers, pooling, interpolation and copies, which counters leave out as a rule. The pass is the second of two, so
    what evaluation keeps from call to call is not counted: the responses of Sonic layers are constants there, unless
    they are too large to be kept. Filters that other layers make anew at each pass (NIFF's networks, S4ND's kernels)
    are.

    Parameters
    ----------
    model
        Called as it is: for a compiled model, pass the one it was compiled from, whose operations can be seen. Modes
        of training are as before when this returns.
    example
        Input, ``(B, C, *size)``. On the ``meta`` device, with the model there too, nothing is computed and no memory
        needed; the model then runs as on an accelerator (RepLK's kernels slide, which on a CPU they do not).
    kwargs
        Further arguments of the model, for example ``spacing``.

    Examples
    --------
    >>> count_flops(torch.nn.Conv2d(3, 8, 3, padding=1), torch.randn(1, 3, 10, 10))
    43200
    """
    training = {module: module.training for module in model.modules()}
    learned = [parameter for parameter in model.parameters() if parameter.requires_grad]
    try:
        model.eval().requires_grad_(False)  # the counter fails where a module passes its weights on to another
        with torch.no_grad():
            model(example, **kwargs)
            with FlopCounterMode(display=False, custom_mapping=flop_formulas()) as counter:
                model(example, **kwargs)
    finally:
        for module, mode in training.items():
            module.training = mode
        for parameter in learned:
            parameter.requires_grad_()
    return counter.get_total_flops()


def flop_formulas() -> dict[Any, Formula]:
    """What PyTorch's counter does not know, or counts as if all numbers were real."""
    products = (aten.mm, aten.addmm, aten.bmm, aten.baddbmm, aten.convolution)
    of_tensors: dict[Any, Any] = {
        **{operation: _complex_product(flop_registry[operation]) for operation in products},
        aten._fft_c2c: partial(_transform, 5.0),
        aten._fft_r2c: partial(_transform, 2.5),
        aten._fft_c2r: partial(_transform, 2.5),
        aten.mul: _multiplication,
        aten.mul_: _multiplication,
        aten.addcmul: _multiply_add,
        aten.addcmul_: _multiply_add,
    }
    for formula in of_tensors.values():
        formula._get_raw = True  # it is given tensors, not their shapes
    return {**of_tensors, aten._scaled_dot_product_flash_attention_for_cpu: _attention}


def _complex_product(formula: Formula) -> Formula:
    def count(*args: Any, out_val: Tensor, **kwargs: Any) -> int:
        flops = formula(*args, out_val=out_val, **kwargs)
        return 4 * flops if out_val.is_complex() else flops

    return count


def _attention(query: Sequence[int], key: Sequence[int], value: Sequence[int], *args: Any, **kwargs: Any) -> int:
    """Two products of matrices for each head; the softmax between them is elementwise."""
    batch, heads, queries, features = query
    return 2 * batch * heads * queries * key[-2] * (features + value[-1])


def _transform(each: float, x: Tensor, axes: Sequence[int], *args: Any, out_val: Tensor, **kwargs: Any) -> int:
    """``each N log2 N`` for all transforms of N points, those of the longer side if one is real."""
    signal = max(x, out_val, key=Tensor.numel)
    points = math.prod(signal.shape[axis] for axis in axes)
    return round(each * signal.numel() * math.log2(points)) if points > 1 else 0


def _multiplication(x: Any, y: Any, *args: Any, out_val: Tensor, added: int = 0, **kwargs: Any) -> int:
    if not out_val.is_complex():
        return 0
    both = all(value.is_complex() if isinstance(value, Tensor) else isinstance(value, complex) for value in (x, y))
    return ((6 if both else 2) + added) * out_val.numel()


def _multiply_add(total: Tensor, *args: Any, **kwargs: Any) -> int:
    return _multiplication(*args, added=2, **kwargs)


def peak_bytes(step: Callable[[], object], device: torch.device) -> int:
    """Largest number of bytes allocated at any time during ``step``, above those allocated at its beginning.

    On a CPU from the events of PyTorch's allocator, which include the temporaries inside operators; what oneDNN and MKL
    allocate for themselves is not seen. Call ``step`` once before, so that caches are filled.
    """
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        before = torch.cuda.memory_allocated(device)
        torch.cuda.reset_peak_memory_stats(device)
        step()
        torch.cuda.synchronize(device)
        return torch.cuda.max_memory_allocated(device) - before
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # or every profile writes to stderr, through the progress bar
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        step()
    profiler = profile.profiler
    assert profiler is not None
    assert profiler.kineto_results is not None
    events = [event for event in profiler.kineto_results.events() if event.name() == "[memory]"]
    live = peak = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        live += event.nbytes()  # pyright: ignore[reportAttributeAccessIssue]
        peak = max(peak, live)
    return peak
