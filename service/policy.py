"""Logits and legal slots → `Policy`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import chess
import numpy as np
from numpy.typing import ArrayLike, NDArray

from service.encoding.encoded import EncodedPosition
from service.numeric import gather, softmax, statistics
from service.numeric.ragged import Float, Index


@dataclass(frozen=True, slots=True)
class Legal:
    """The legal slots of a batch in CSR form: `slots [N]`, `indptr [B + 1]`, and their logits float64 `[N]`."""

    slots: Index
    indptr: Index
    logits: Float


@dataclass(frozen=True, slots=True)
class Policy:
    """The masked, normalised distribution over the legal moves of one position, most probable first.

    `probabilities` and `logits` are float64 `[L]`, in the order of `moves`; equal probabilities are in order of UCI.
    """

    moves: tuple[chess.Move, ...]
    probabilities: Float
    logits: Float
    entropy: float  # nats
    effective_moves: float
    maximum: float

    def sample(self, seed: int) -> int:
        """Index of a move drawn with its probability; the same seed draws the same move."""
        drawn = np.random.default_rng(seed).random()
        return min(int(np.searchsorted(np.cumsum(self.probabilities), drawn, side="right")), len(self.moves) - 1)


def legal_of(batch: Sequence[EncodedPosition], logits: NDArray[np.floating]) -> Legal:
    """Gathers the legal logits of a batch: logits `[B, A]`. Raises InvalidLogits, the row and slot named."""
    indptr = np.zeros(len(batch) + 1, dtype=np.intp)
    np.cumsum([len(encoded.slots) for encoded in batch], out=indptr[1:])
    slots = np.concatenate([encoded.slots for encoded in batch]) if batch else np.empty(0, dtype=np.intp)
    values, indptr = gather.gather_legal(logits, slots, indptr)
    return Legal(slots, indptr, values)


def policies(batch: Sequence[EncodedPosition], legal: Legal, temperature: ArrayLike = 1.0) -> list[Policy]:
    """The policy of each position of a batch, at `temperature` (a number, or one for each position)."""
    probabilities: Float = softmax.softmax(legal.logits, legal.indptr, temperature).astype(np.float64, copy=False)
    entropies = statistics.entropy(probabilities, legal.indptr)
    effective = statistics.effective_number(probabilities, legal.indptr)
    maxima = statistics.maximum(probabilities, legal.indptr)
    result = []
    for row, encoded in enumerate(batch):
        span = slice(legal.indptr[row], legal.indptr[row + 1])
        own = probabilities[span]
        names = [move.uci() for move in encoded.moves]
        order = sorted(range(len(names)), key=lambda i: (-own[i], names[i]))
        result.append(
            Policy(
                tuple(encoded.moves[i] for i in order),
                own[order],
                legal.logits[span][order],
                float(entropies[row]),
                float(effective[row]),
                float(maxima[row]),
            )
        )
    return result
