"""A cache in front of a network: the logits of positions seen before."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from movemask.network.model import Batch, Model, Outputs

#: Bytes of an entry besides its arrays: key, objects and table slot.
_OVERHEAD = 800


@dataclass(frozen=True, slots=True)
class _Entry:
    logits: NDArray[np.floating]
    value: NDArray[np.float64] | None

    @property
    def size(self) -> int:
        return _OVERHEAD + self.logits.nbytes + (0 if self.value is None else self.value.nbytes)


class Cache:
    """An LRU cache of the outputs for single positions, shared by models and threads.

    It stores logits, not policies, so that any rule and any kind of leakage can be computed from an entry.

    Parameters
    ----------
    max_bytes : size of all entries together
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._entries: OrderedDict[Hashable, _Entry] = OrderedDict()
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: Hashable) -> _Entry | None:
        """The entry under a key, or None."""
        with self._lock:
            entry = self._entries.get(key)
            if entry is not None:
                self._entries.move_to_end(key)
            return entry

    def put(self, key: Hashable, outputs: Outputs, row: int) -> None:
        """Stores a copy of one row, so that its batch can be freed."""
        value = None if outputs.value is None else outputs.value[row].copy()
        entry = _Entry(outputs.logits[row].copy(), value)
        with self._lock:
            if key in self._entries or entry.size > self._max_bytes:
                return
            self._entries[key] = entry
            self.bytes += entry.size
            while self.bytes > self._max_bytes:
                self.bytes -= self._entries.popitem(last=False)[1].size


class CachedNetwork:
    """`Model.evaluate` with a cache: runs the network only on positions that are not in it.

    Parameters
    ----------
    observe : called with the hits and misses of each batch
    """

    def __init__(self, model: Model, cache: Cache, observe: Callable[[int, int], None]) -> None:
        self._model, self._cache, self._observe = model, cache, observe
        self._load = object()  # unique per load, so that a reload never hits stale entries

    def __call__(self, batch: Batch) -> Outputs:
        keys = [(self._load, key_of(batch, row, self._model)) for row in range(len(batch))]
        entries = [self._cache.get(key) for key in keys]
        missing = [row for row, entry in enumerate(entries) if entry is None]
        self._observe(len(keys) - len(missing), len(missing))
        if missing:
            fresh = self._model.evaluate(batch.rows(np.array(missing)))
            for fresh_row, row in enumerate(missing):
                self._cache.put(keys[row], fresh, fresh_row)
            if len(missing) == len(keys):
                return fresh
            for fresh_row, row in enumerate(missing):
                entries[row] = _Entry(fresh.logits[fresh_row], None if fresh.value is None else fresh.value[fresh_row])
        complete = [entry for entry in entries if entry is not None]
        values = [entry.value for entry in complete if entry.value is not None]
        logits, cached = np.stack([entry.logits for entry in complete]), len(keys) - len(missing)
        return Outputs(logits, np.stack(values) if values else None, cached)


def key_of(batch: Batch, row: int, model: Model) -> Hashable:
    """Everything the network's output depends on: the FEN with counters, and ratings and history if it takes them."""
    position = batch.positions[row]
    elo = tuple(batch.elo[row].tolist()) if model.contract.takes_elo else None
    history = position.history_key if model.contract.takes_history else b""
    return position.fen, position.chess960, elo, history
