"""Responses that were evaluated before, found again by the values they depend on.

A compiled graph computes the parameters of the responses anew in each call and knows no layer that could keep anything.
So here the values themselves are the key: nothing has to be forgotten when they change.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable

import torch
from torch import Tensor

from torchsonic.functional.pair import Responses

__all__ = ["MOST_BYTES", "find_responses", "forget_responses"]

MOST_BYTES = 256 << 20
"""Of all kept responses together; larger ones are evaluated each time."""

_lock = threading.Lock()
_kept: OrderedDict[Hashable, Responses] = OrderedDict()


def find_responses(values: list[Tensor], key: Hashable, evaluate: Callable[[], Responses]) -> Responses:
    """Responses that depend on small CPU tensors and on ``key``; evaluated if they are not at hand."""
    full_key = (key, torch.cat([value.flatten() for value in values]).numpy().tobytes())
    with _lock:
        found = _kept.get(full_key)
        if found is not None:
            _kept.move_to_end(full_key)
            return found
    responses = evaluate()
    with _lock:
        _kept[full_key] = responses
        while sum(kept.num_bytes for kept in _kept.values()) > MOST_BYTES:
            _kept.popitem(last=False)
    return responses


def forget_responses() -> None:
    """Free what is kept."""
    with _lock:
        _kept.clear()
