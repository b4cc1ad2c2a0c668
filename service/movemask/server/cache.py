"""A cache in front of a network: logits of earlier positions."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field

import numpy as np

from movemask.network.model import Batch, Model, Outputs

#: Bytes of an entry besides its arrays: key, objects and slot in the table.
_OVERHEAD = 800


class Cache:
    """An LRU cache of outputs, each for one position, of at most `max_bytes`. Models and threads share it.

    It keeps logits rather than policies: every rule and every kind of leakage can be computed from an entry.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._entries: OrderedDict[Hashable, Outputs] = OrderedDict()
        self.bytes = 0

    def get(self, key: Hashable) -> Outputs | None:
        """The entry of a key, with one row; None if there is none."""
        with self._lock:
            entry = self._entries.get(key)
            if entry is not None:
                self._entries.move_to_end(key)
            return entry

    def put(self, key: Hashable, outputs: Outputs, row: int) -> Outputs:
        """Stores a copy of one row and returns the copy. The batch can then be freed."""
        value = None if outputs.value is None else outputs.value[row : row + 1].copy()
        entry = Outputs(outputs.logits[row : row + 1].copy(), value)
        with self._lock:
            if key not in self._entries and _size(entry) <= self._max_bytes:
                self._entries[key] = entry
                self.bytes += _size(entry)
                while self.bytes > self._max_bytes:
                    self.bytes -= _size(self._entries.popitem(last=False)[1])
        return entry


def _size(entry: Outputs) -> int:
    return _OVERHEAD + entry.logits.nbytes + (0 if entry.value is None else entry.value.nbytes)


@dataclass(frozen=True)
class CachedModel(Model):
    """A model that runs its network only on positions missing from its cache.

    observe : called for each batch with the model's name, hits, misses, and the cache's size in bytes
    """

    cache: Cache
    observe: Callable[[str, int, int, int], None]
    load: object = field(default_factory=object)  # unique, so that a reload never hits stale entries

    def run(self, batch: Batch) -> Outputs:
        keys = [(self.load, key_of(batch, row, self)) for row in range(len(batch))]
        entries = {row: entry for row, key in enumerate(keys) if (entry := self.cache.get(key)) is not None}
        missing = [row for row in range(len(keys)) if row not in entries]
        cached = len(entries)
        self.observe(self.name, cached, len(missing), self.cache.bytes)
        if missing:
            fresh = super().run(batch.rows(np.array(missing)))
            for place, row in enumerate(missing):
                entries[row] = self.cache.put(keys[row], fresh, place)
            if not cached:
                return fresh
        by_row = [entries[row] for row in range(len(keys))]
        values = [entry.value for entry in by_row if entry.value is not None]
        logits = np.concatenate([entry.logits for entry in by_row])
        return Outputs(logits, np.concatenate(values) if values else None, cached)


def key_of(batch: Batch, row: int, model: Model) -> Hashable:
    """All that the network's output depends on: the FEN with its counters, and ratings and history if it takes them."""
    position = batch.positions[row]
    elo = tuple(batch.elo[row].tolist()) if model.takes_elo else None
    history = position.history_key if model.encoder.uses_history else b""
    return position.fen, position.chess960, elo, history
