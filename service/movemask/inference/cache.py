"""What networks said of positions, kept for when they are asked about again."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable

import numpy as np

from movemask.board.encoded import EncodedPosition
from movemask.inference.model import Evaluation, Model

#: Bytes of an entry beside its arrays: the key, the objects, the place in the table.
_OVERHEAD = 800


class EvaluationCache:
    """Evaluations of single positions, the least recently used forgotten first; for use by one thread.

    Logits are kept and not policies, so that every rule and every kind of leakage is made of them as if the network had
    just run.

    Parameters
    ----------
    max_bytes : of all that is kept; 0 keeps nothing
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._kept: OrderedDict[Hashable, Evaluation] = OrderedDict()
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._kept)

    @property
    def on(self) -> bool:
        """Whether anything is ever kept."""
        return self._max_bytes > 0

    def get(self, key: Hashable) -> Evaluation | None:
        """What was kept under a key, of one row."""
        found = self._kept.get(key)
        if found is not None:
            self._kept.move_to_end(key)
        return found

    def put(self, key: Hashable, evaluation: Evaluation) -> None:
        """Keeps a copy of one row: the batch that it came in is not kept with it."""
        if key in self._kept:
            return
        value = None if evaluation.value is None else np.array(evaluation.value)
        own = Evaluation(np.array(evaluation.logits), value)
        size = _size(own)
        if size > self._max_bytes:
            return
        self._kept[key] = own
        self.bytes += size
        while self.bytes > self._max_bytes:
            self.bytes -= _size(self._kept.popitem(last=False)[1])


def _size(evaluation: Evaluation) -> int:
    return _OVERHEAD + evaluation.logits.nbytes + (0 if evaluation.value is None else evaluation.value.nbytes)


def key_of(encoded: EncodedPosition, model: Model) -> Hashable:
    """What a network may tell apart: the position, counters and all, the ratings, and the game before if it sees it."""
    position = encoded.position
    history = position.history_key if model.contract.takes_history else b""
    return position.fen, position.chess960, encoded.elo, history
