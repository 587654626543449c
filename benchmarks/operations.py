"""Operations that a training step dispatches, and the bytes that they read and write."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

__all__ = ["UNCOUNTED", "OperationCounter", "count_step"]

# These touch no numbers, as do all operations that the schema calls views (view, expand, transpose, slice, ...).
ALIASES = frozenset({"_reshape_alias", "_unsafe_view", "alias", "as_strided", "detach", "lift_fresh"})
ALLOCATIONS = frozenset({"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided"})
METADATA = frozenset({"device", "is_same_size", "promote_types", "resize_", "result_type", "set_"})
UNCOUNTED = ALIASES | ALLOCATIONS | METADATA
OVERWRITING = frozenset(("copy_", "fill_", "zero_"))  # they do not read what they write to


class OperationCounter(TorchDispatchMode):
    """Counts while it is on: ``operations`` by name, and ``bytes`` of their tensors, read and written.

    Custom operators are looked into; one that dispatches nothing itself, such as a compiled kernel, counts as one, and
    so do all on tensors without numbers.
    """

    def __init__(self) -> None:
        super().__init__()
        self.operations: Counter[str] = Counter()
        self.bytes = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        leaves = tree_leaves((args, kwargs))
        if func.namespace not in ("aten", "prim") and not any(isinstance(leaf, FakeTensor) for leaf in leaves):
            before = self.operations.total()
            with self:
                result = func.redispatch(_backend(leaves), *args, **kwargs)
            if self.operations.total() > before:
                return result
        else:
            result = func(*args, **kwargs)
        name = func.overloadpacket.__name__
        if not (func.is_view or name in UNCOUNTED):
            outputs = {argument.name for argument in func._schema.arguments if argument.is_out}
            read = [value for key, value in kwargs.items() if key not in outputs]
            self.operations[name] += 1
            self.bytes += _bytes((args[1:] if name in OVERWRITING else args, read)) + _bytes(result)
            if name == "_fft_c2r" and args[0].device.type == "cuda":  # PyTorch copies what cuFFT would overwrite
                self.bytes += 2 * _bytes(args[0])
        return result


def _backend(leaves: Iterable[Any]) -> torch._C.DispatchKeySet:
    kind = next((leaf.device.type for leaf in leaves if isinstance(leaf, Tensor)), "cpu")
    return torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, kind.upper()))


def _bytes(tree: Any) -> int:
    """Of all tensors; what is expanded lies in memory once."""
    total = 0
    for tensor in tree_leaves(tree):
        if isinstance(tensor, Tensor):
            size = tensor.element_size()
            for length, stride in zip(tensor.shape, tensor.stride(), strict=True):
                size *= length if stride else min(length, 1)
            total += size
    return total


def count_step(module: nn.Module, x: Tensor, grad_y: Tensor) -> dict[str, dict[str, int]]:
    """Operations and bytes of a module's second training step, ``forward`` and ``backward`` apart.

    The first step fills caches. Parameters and ``x``, if it wants one, get gradients.
    """
    wanted = [*([x] if x.requires_grad else []), *module.parameters()]
    forward, backward = OperationCounter(), OperationCounter()
    torch.autograd.grad(module(x), wanted, grad_y)
    # A mode sees its own thread alone; on accelerators autograd would use another.
    with torch.autograd.set_multithreading_enabled(False):
        with forward:
            y = module(x)
        with backward:
            torch.autograd.grad(y, wanted, grad_y)
    counters = {"forward": forward, "backward": backward}
    return {name: {"operations": c.operations.total(), "bytes": c.bytes} for name, c in counters.items()}
