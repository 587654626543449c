"""Constants that compilers treat as such, and constant tensors that are made once.

Compiled with ``dynamic=True``, every float of a module (``torch.pi``, a threshold, a quadrature node) becomes an input
of the graph, and PyTorch loses such an input if two checkpointed blocks share it. The result of a function marked
:func:`fixed` becomes part of the graph instead.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache, wraps
from typing import TypeVar

import torch
from torch import Tensor

from torchsonic.spectral.tracing import just_numbers

__all__ = ["constant", "fixed", "made_once", "pi"]

F = TypeVar("F", bound=Callable)


def fixed(make: F) -> F:
    """Let compilers call a function while they trace, and keep its result as a constant.

    This is what ``torch.compiler.assume_constant_result`` does. That function would load the compiler at the import of
    torchsonic, which takes as long as loading the rest of PyTorch.
    """
    make._dynamo_marked_constant = True  # type: ignore[attr-defined]
    return make


@fixed
def pi() -> float:
    """Half a turn."""
    return math.pi


def made_once(make: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Cache a function of hashable arguments where that is safe. Callers must not modify the tensors it returns."""
    cached = lru_cache(maxsize=256)(make)

    @wraps(make)
    def get(*arguments) -> Tensor:
        shareable = just_numbers() and not torch.is_inference_mode_enabled()
        return (cached if shareable else make)(*arguments)

    return get


@made_once
def constant(values: tuple, device: torch.device, dtype: torch.dtype) -> Tensor:
    """A tensor of fixed numbers."""
    return torch.tensor(values, device=device, dtype=dtype)
