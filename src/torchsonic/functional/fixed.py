"""Numbers that never change, said so that compilers know it.

Compiled with ``dynamic=True``, every float of a module (``torch.pi``, a threshold, a node of a quadrature) becomes an
input of the graph, and PyTorch loses such an input where two checkpointed blocks share it. What a function returns that
is marked here is part of the graph instead.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeVar

__all__ = ["fixed", "pi"]

F = TypeVar("F", bound=Callable)


def fixed(make: F) -> F:
    """Let compilers call a function while they trace, and keep what it returns.

    It is what ``torch.compiler.assume_constant_result`` does, which would load the compiler whenever torchsonic is
    imported; that takes as long as loading the rest of PyTorch.
    """
    make._dynamo_marked_constant = True  # type: ignore[attr-defined]
    return make


@fixed
def pi() -> float:
    """Half a turn."""
    return math.pi
