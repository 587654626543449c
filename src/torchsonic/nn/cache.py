"""A bounded, thread-safe store of evaluated responses."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable

from torch import Tensor

from torchsonic.functional.pair import Responses

__all__ = ["ResponseCache"]


class ResponseCache:
    """Keeps the responses of the last few grids a layer has seen in evaluation.

    Parameters
    ----------
    max_entries
        Grids to remember; the least recently used one is dropped.
    max_bytes
        Largest responses worth keeping; the layer evaluates larger ones as it goes.
    """

    def __init__(self, max_entries: int = 4, max_bytes: int = 256 << 20) -> None:
        self.max_entries, self.max_bytes = max_entries, max_bytes
        self._lock = threading.Lock()
        self._entries: OrderedDict[Hashable, Responses] = OrderedDict()
        self._parameters: list[Tensor] = []
        self._versions: tuple[Hashable, ...] = ()

    def __len__(self) -> int:
        return len(self._entries)

    def clear(self) -> None:
        with self._lock:
            self._entries.clear()
            self._parameters = []

    def get(self, key: Hashable, parameters: list[Tensor], evaluate: Callable[[], Responses]) -> Responses:
        """Return the responses for ``key``, evaluating them if the parameters changed or the grid is new."""
        versions = tuple((id(p), p.data_ptr(), p._version) for p in parameters)
        with self._lock:
            if not self._still_valid(versions, parameters):
                self._entries.clear()
                self._versions = versions
                self._parameters = [p.detach().clone() for p in parameters]
            found = self._entries.get(key)
            if found is not None:
                self._entries.move_to_end(key)
                return found
        responses = evaluate()
        with self._lock:
            if self._versions == versions:
                self._entries[key] = responses
                while len(self._entries) > self.max_entries:
                    self._entries.popitem(last=False)
        return responses

    def _still_valid(self, versions: tuple[Hashable, ...], parameters: list[Tensor]) -> bool:
        if versions != self._versions or len(self._parameters) != len(parameters):
            return False
        # Writing through ``parameter.data`` leaves no trace in the version; on a CPU looking is cheap. Elsewhere it
        # would make the host wait for the device, so there such writes need ``clear``.
        return all(
            p.device.type != "cpu" or p.equal(seen) for p, seen in zip(parameters, self._parameters, strict=True)
        )

    def __deepcopy__(self, memo: dict) -> ResponseCache:
        return ResponseCache(self.max_entries, self.max_bytes)

    def __reduce__(self):
        return ResponseCache, (self.max_entries, self.max_bytes)
