"""The one place where ordinary code asks whether a model is being exported.

Exporters need real operations that every runtime has. While a :class:`Lowering` is active, layers and
:func:`torchsonic.functional.resample` delegate to it; see :mod:`torchsonic.export`. Sizes may then be symbols, which
runtimes store as integers and do not convert; :func:`number` turns them into tensors.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Protocol

import torch
from torch import Tensor

__all__ = ["Lowering", "is_symbolic", "lowering", "number", "use_lowering"]


class Lowering(Protocol):
    """Expresses operators in operations of other runtimes."""

    def convolve(self, layer: Any, x: Tensor, out_size: tuple[int, ...], given: Any, steps: Tensor) -> Tensor:
        """Apply a Sonic layer to prepared ``x (B, C, *size)``; the spacing comes as it was given and as a tensor."""
        ...

    def resample(self, x: Tensor, size: tuple[int, ...], *, centred: bool = False) -> Tensor:
        """As :func:`torchsonic.functional.resample`."""
        ...


_active: ContextVar[Lowering | None] = ContextVar("torchsonic_lowering", default=None)


def lowering() -> Lowering | None:
    """The active export, if any."""
    return None if torch.compiler.is_dynamo_compiling() else _active.get()


@contextmanager
def use_lowering(active: Lowering) -> Iterator[None]:
    """Let layers use a lowering while the model runs or is traced."""
    token = _active.set(active)
    try:
        yield
    finally:
        _active.reset(token)


def is_symbolic(sizes: tuple[int, ...]) -> bool:
    """Whether any size is an exporter's symbol."""
    return not all(isinstance(n, int) for n in sizes)


def number(value: float | torch.SymInt | torch.SymFloat, dtype: torch.dtype, device=None) -> float | Tensor:
    """A number as it is; a symbol as a tensor of one element, which broadcasts."""
    if isinstance(value, (torch.SymInt, torch.SymFloat)):
        return torch.full((1,), value, dtype=dtype, device=device)  # type: ignore[arg-type]
    return value
