"""Models whose parameters are shared out over processes (:mod:`torchsonic.parallel`), as they are saved: whole."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from torchsonic.nn.parameters import is_sharded

__all__ = ["first_process_writes", "own_class", "whole_state"]


def own_class(model: nn.Module) -> type:
    """The class that the user built; FSDP2 puts one of its own before it."""
    return next(kind for kind in type(model).__mro__ if not kind.__module__.startswith("torch."))


def whole_state(model: nn.Module, shapes: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Copies of all tensors of a model on the CPU, put together where they are shared out; then all processes must ask.

    Parameters
    ----------
    shapes
        Tensors of a model that is not shared out: FSDP2 makes scalars vectors of one element, which are undone.
    """
    state = {}
    for name, value in model.state_dict().items():
        whole = value.detach()
        if hasattr(whole, "full_tensor"):
            whole = whole.full_tensor()
            if whole.numel() == 1 and name in shapes:
                whole = whole.reshape(shapes[name].shape)
        state[name] = whole.to("cpu", copy=True).contiguous()
    return state


@contextmanager
def first_process_writes(model: nn.Module) -> Iterator[bool]:
    """Tell a process whether to write a model's files; the others wait until they are there."""
    shared = is_sharded(model)
    try:
        yield not shared or torch.distributed.get_rank() == 0
    finally:
        if shared:
            torch.distributed.barrier()
