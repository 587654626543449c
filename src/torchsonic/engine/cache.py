"""Couplings that were made before, for evaluation: a store for each layer, and one for compiled code.

A compiled graph computes the parameters of the responses anew in each call and knows no layer that could keep anything.
There the values themselves are the key: nothing has to be forgotten when they change.
"""

from __future__ import annotations

import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import NamedTuple

import torch
from torch import Tensor

from torchsonic.engine.coupling import TorchCoupling

__all__ = ["MOST_BYTES", "CouplingCache", "find_coupling", "forget_couplings", "recording_graph"]

MOST_BYTES = 256 << 20
"""Of all kept responses together; larger ones are evaluated each time."""

_lock = threading.Lock()
_kept: OrderedDict[Hashable, TorchCoupling] = OrderedDict()


def find_coupling(values: list[Tensor], key: Hashable, make: Callable[[], TorchCoupling]) -> TorchCoupling:
    """A coupling that depends on small CPU tensors and on ``key``; made if it is not at hand."""
    full_key = (key, torch.cat([value.flatten() for value in values]).numpy().tobytes())
    with _lock:
        found = _kept.get(full_key)
        if found is not None:
            _kept.move_to_end(full_key)
            return found
    coupling = make()
    with _lock:
        _kept[full_key] = coupling
        while sum(kept.num_bytes for kept in _kept.values()) > MOST_BYTES:
            _kept.popitem(last=False)
    return coupling


def forget_couplings() -> None:
    """Free what is kept."""
    with _lock:
        _kept.clear()


def recording_graph(device: torch.device) -> bool:
    """Whether a CUDA graph is being recorded: it would read kept responses even when they are dropped."""
    return device.type == "cuda" and torch.cuda.is_current_stream_capturing()


class _Seen(NamedTuple):
    """A parameter as it was when responses were evaluated."""

    reference: weakref.ref[Tensor]  # not its id, which a later tensor may get when this one is gone
    address: int
    version: int
    value: Tensor

    def still_is(self, parameter: Tensor) -> bool:
        same = self.reference() is parameter and self.address == parameter.data_ptr()
        if not same or self.version != parameter._version:
            return False
        # Writing through ``parameter.data`` leaves no trace in the version; on a CPU looking is cheap. Elsewhere it
        # would make the host wait for the device, so there such writes need ``clear``.
        return parameter.device.type != "cpu" or parameter.equal(self.value)


class CouplingCache:
    """Keeps the couplings of the last few grids a layer has seen in evaluation.

    Parameters
    ----------
    max_entries
        Grids to remember; the least recently used one is dropped.
    max_bytes
        Of all kept responses together; larger ones are made each time.
    """

    def __init__(self, max_entries: int = 4, max_bytes: int = 256 << 20) -> None:
        self.max_entries, self.max_bytes = max_entries, max_bytes
        self._lock = threading.Lock()
        self._entries: OrderedDict[Hashable, TorchCoupling] = OrderedDict()
        self._seen: list[_Seen] = []

    def __len__(self) -> int:
        return len(self._entries)

    def clear(self) -> None:
        with self._lock:
            self._forget()

    def _forget(self) -> None:
        # Another thread may still evaluate for the old ones: what it finds then goes into them.
        self._entries, self._seen = OrderedDict(), []

    def get(self, key: Hashable, parameters: list[Tensor], make: Callable[[], TorchCoupling]) -> TorchCoupling:
        """Return the coupling for ``key``, made anew if the parameters changed or the grid is new."""
        with self._lock:
            if not self._still_are(parameters):
                self._forget()
                self._seen = [_Seen(weakref.ref(p), p.data_ptr(), p._version, p.detach().clone()) for p in parameters]
            entries = self._entries
            found = entries.get(key)
            if found is not None:
                entries.move_to_end(key)
                return found
        coupling = make()
        if coupling.num_bytes > self.max_bytes:  # it would push all others out, and then itself
            return coupling
        with self._lock:
            entries[key] = coupling
            while len(entries) > self.max_entries or sum(r.num_bytes for r in entries.values()) > self.max_bytes:
                entries.popitem(last=False)
        return coupling

    def _still_are(self, parameters: list[Tensor]) -> bool:
        return len(self._seen) == len(parameters) and all(
            seen.still_is(p) for seen, p in zip(self._seen, parameters, strict=True)
        )

    def __deepcopy__(self, memo: dict) -> CouplingCache:
        return CouplingCache(self.max_entries, self.max_bytes)

    def __reduce__(self):
        return CouplingCache, (self.max_entries, self.max_bytes)
