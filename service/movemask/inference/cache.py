"""A cache in front of a network: logits of positions that were asked about before."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from movemask.inference.batch import Batch
from movemask.inference.model import Model, Outputs

#: Bytes of an entry beside its arrays: the key, the objects, the place in the table.
_OVERHEAD = 800


@dataclass(frozen=True, slots=True)
class _Entry:
    logits: NDArray[np.floating]
    value: NDArray[np.float64] | None

    @property
    def size(self) -> int:
        return _OVERHEAD + self.logits.nbytes + (0 if self.value is None else self.value.nbytes)


class Cache:
    """What networks said of single positions, the least recently used dropped first; shared by models and threads.

    Logits are kept, not policies, so that every rule and every kind of leakage is made of them as if the network had
    just run.

    Parameters
    ----------
    max_bytes : of all entries
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._entries: OrderedDict[Hashable, _Entry] = OrderedDict()
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: Hashable) -> _Entry | None:
        """The entry under a key."""
        with self._lock:
            entry = self._entries.get(key)
            if entry is not None:
                self._entries.move_to_end(key)
            return entry

    def put(self, key: Hashable, outputs: Outputs, row: int) -> None:
        """Keeps a copy of one row, so that the batch it came in can be freed."""
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
    """`Model.evaluate` that runs only the positions that are not in the cache.

    Parameters
    ----------
    observe : called with hits and misses of each batch
    """

    def __init__(self, model: Model, cache: Cache, observe: Callable[[int, int], None]) -> None:
        self._model, self._cache, self._observe = model, cache, observe
        self._load = object()  # unique per load, so that a reload never hits stale entries

    def __call__(self, batch: Batch, *, alone: bool = True) -> Outputs:
        keys = [(self._load, key_of(batch, row, self._model)) for row in range(len(batch))]
        entries = [self._cache.get(key) for key in keys]
        missing = [row for row, entry in enumerate(entries) if entry is None]
        self._observe(len(keys) - len(missing), len(missing))
        if missing:
            fresh = self._model.evaluate(batch.rows(np.array(missing)), alone=alone)
            for place, row in enumerate(missing):
                self._cache.put(keys[row], fresh, place)
            if len(missing) == len(keys):
                return fresh
            for place, row in enumerate(missing):
                entries[row] = _Entry(fresh.logits[place], None if fresh.value is None else fresh.value[place])
        whole = [entry for entry in entries if entry is not None]
        values = [entry.value for entry in whole if entry.value is not None]
        logits, cached = np.stack([entry.logits for entry in whole]), len(keys) - len(missing)
        return Outputs(logits, np.stack(values) if values else None, cached)


def key_of(batch: Batch, row: int, model: Model) -> Hashable:
    """What a network may tell apart: the position, counters and all, the ratings, and the game before if it sees it."""
    position = batch.positions[row]
    elo = tuple(batch.elo[row].tolist()) if model.contract.takes_elo else None
    game = position.history_key if model.contract.takes_history else b""
    return position.fen, position.chess960, elo, game
