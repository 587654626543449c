"""Couplings kept from earlier calls in evaluation: one store per layer, and one for compiled code.

A compiled graph computes the parameters of the responses in every call and has no layer to keep anything. There the
values themselves are the key, so that nothing has to be dropped when they change.
"""

from __future__ import annotations

import math
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import NamedTuple

import torch
from torch import Tensor

from torchsonic.engine.coupling import TorchCoupling

__all__ = ["CouplingCache", "find_coupling", "recording_graph"]

MOST_BYTES = 256 << 20
"""Of all responses in one store; larger ones are evaluated each time."""


class _Store:
    """The couplings used last, as many as fit; threads may share it."""

    def __init__(self, max_entries: float = math.inf, max_bytes: int = MOST_BYTES) -> None:
        self.max_entries, self.max_bytes = max_entries, max_bytes
        self.entries: OrderedDict[Hashable, TorchCoupling] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: Hashable, make: Callable[[], TorchCoupling]) -> TorchCoupling:
        with self._lock:
            found = self.entries.get(key)
            if found is not None:
                self.entries.move_to_end(key)
                return found
        coupling = make()
        if coupling.num_bytes > self.max_bytes:  # it would push all others out, and then itself
            return coupling
        with self._lock:
            self.entries[key] = coupling
            while (
                len(self.entries) > self.max_entries
                or sum(kept.num_bytes for kept in self.entries.values()) > self.max_bytes
            ):
                self.entries.popitem(last=False)
        return coupling


_by_value = _Store()


def find_coupling(values: list[Tensor], key: Hashable, make: Callable[[], TorchCoupling]) -> TorchCoupling:
    """A coupling that depends on small CPU tensors and on ``key``; made unless it is kept."""
    return _by_value.get((key, torch.cat([value.flatten() for value in values]).numpy().tobytes()), make)


def recording_graph(device: torch.device) -> bool:
    """Whether a CUDA graph is being recorded, which would go on reading responses after they are dropped."""
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
        # Writing through ``parameter.data`` does not change the version. Comparing values is cheap on a CPU; elsewhere
        # the host would have to wait for the device, so users call ``clear`` after such writes.
        return parameter.device.type != "cpu" or parameter.equal(self.value)


class CouplingCache:
    """Keeps the couplings of the last few grids a layer has seen in evaluation.

    Parameters
    ----------
    max_entries
        Number of grids to remember; the least recently used one is dropped.
    max_bytes
        Size of all kept responses together; larger ones are evaluated each time.
    """

    def __init__(self, max_entries: int = 4, max_bytes: int = MOST_BYTES) -> None:
        self.max_entries, self.max_bytes = max_entries, max_bytes
        self._lock = threading.Lock()
        self._forget()

    def __len__(self) -> int:
        return len(self._store.entries)

    def clear(self) -> None:
        with self._lock:
            self._forget()

    def _forget(self) -> None:
        # A new store: what another thread still evaluates for the old parameters goes into the old one.
        self._store = _Store(self.max_entries, self.max_bytes)
        self._seen: list[_Seen] = []

    def get(self, key: Hashable, parameters: list[Tensor], make: Callable[[], TorchCoupling]) -> TorchCoupling:
        """Return the coupling for ``key``, made anew if the parameters changed or the grid is new."""
        with self._lock:
            if len(self._seen) != len(parameters) or not all(map(_Seen.still_is, self._seen, parameters)):
                self._forget()
                self._seen = [_Seen(weakref.ref(p), p.data_ptr(), p._version, p.detach().clone()) for p in parameters]
            store = self._store
        return store.get(key, make)

    def __reduce__(self):  # copies and pickles are empty
        return CouplingCache, (self.max_entries, self.max_bytes)
