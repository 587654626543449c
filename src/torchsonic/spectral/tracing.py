"""Whether tensors hold numbers right now, or stand for them: in compilers, function transforms and dispatch modes."""

from __future__ import annotations

import torch
from torch.autograd import forward_ad

__all__ = ["inside_function_transform", "just_numbers", "tracing"]

TRACERS = tuple(getattr(torch._C._TorchDispatchModeKey, name) for name in ("FAKE", "PROXY", "FUNCTIONAL"))


def inside_function_transform() -> bool:
    """Whether ``torch.func`` (grad, vmap, jvp) or forward-mode AD is active; these need ordinary operations."""
    transforming = torch._C._functorch.peek_interpreter_stack() is not None  # type: ignore[attr-defined]
    return transforming or forward_ad._current_level >= 0


def tracing() -> bool:
    """Whether a tracer is active, whose tensors mean nothing later. Modes that only observe do not count."""
    if torch.compiler.is_compiling():
        return True
    watched = torch._C._len_torch_dispatch_stack() > 0  # asked dozens of times in a step
    return watched and any(torch._C._get_dispatch_mode(key) is not None for key in TRACERS)


def just_numbers() -> bool:
    """Whether tensors are ordinary ones, neither a tracer's nor a function transform's."""
    return not (tracing() or inside_function_transform())
