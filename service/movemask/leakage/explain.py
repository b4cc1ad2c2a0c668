"""The illegal mass of positions: its moves, and why they are illegal."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from movemask.board.boards import Boards
from movemask.board.moves import uci_of
from movemask.columns import INDPTR, RAGGED, Columns
from movemask.encoding.vocabulary import Vocabulary
from movemask.leakage.causes import CAUSES, Cause, Written, causes_of
from movemask.leakage.measure import HeavySlots
from movemask.policy.ragged import Float, Index, row_of_each

#: Number of illegal moves named per position.
NAMED = 5


@dataclass(frozen=True, slots=True)
class IllegalMass:
    """An illegal slot: its move, the probability that plain softmax gives it, and why it is illegal."""

    uci: str
    probability: float
    cause: Cause


@dataclass(frozen=True, slots=True)
class Explained(Columns):
    """The illegal mass of B positions, and their K named illegal moves.

    by_cause : float64 `[B, len(CAUSES)]`, mass of a position's heavy slots by cause
    indptr : `[B + 1]`, each position's range of named moves; heaviest first
    moves : UCI, `[K]`
    masses : float64 `[K]`, plain-softmax probability of each move
    causes : intp `[K]`, indices into CAUSES
    """

    by_cause: Float
    indptr: Index = field(metadata=INDPTR)
    moves: list[str] = field(metadata=RAGGED)
    masses: Float = field(metadata=RAGGED)
    causes: Index = field(metadata=RAGGED)

    def of(self, row: int) -> tuple[tuple[IllegalMass, ...], dict[Cause, float]]:
        """Returns the named moves of one position, and its mass by cause."""
        named = range(self.indptr[row], self.indptr[row + 1])
        by_cause = {
            CAUSES[place]: float(self.by_cause[row, place])
            for place in np.flatnonzero(self.by_cause[row])
        }
        return tuple(
            IllegalMass(self.moves[k], float(self.masses[k]), CAUSES[self.causes[k]]) for k in named
        ), by_cause


def explain(
    heavy: HeavySlots,
    boards: Boards,
    vocabulary: Vocabulary,
    codes: Index,
    indptr: Index,
    named: int = NAMED,
) -> Explained:
    """Returns the illegal mass of each position of a batch, from its heavy slots.

    Parameters
    ----------
    codes, indptr : the legal moves `[N]` (`board.moves`) in CSR form
    named : most illegal moves named per position
    """
    count = len(boards)
    if not len(heavy.slots):
        empty = np.zeros(0, dtype=np.intp)
        return Explained(
            np.zeros((count, len(CAUSES))), np.zeros(count + 1, np.intp), [], np.zeros(0), empty
        )
    rows, starts = row_of_each(heavy.indptr), heavy.indptr
    written = Written.of_slots(boards, rows, heavy.slots, vocabulary)
    causes = causes_of(written, [codes[start:end] for start, end in pairwise(indptr.tolist())])
    masses = np.bincount(rows * len(CAUSES) + causes, heavy.masses, minlength=count * len(CAUSES))
    first = np.flatnonzero(np.arange(len(rows)) - starts[rows] < named)
    return Explained(
        by_cause=masses.astype(np.float64, copy=False).reshape(count, len(CAUSES)),
        indptr=np.searchsorted(rows[first], np.arange(count + 1)),
        moves=uci_of(written.codes(vocabulary.bare_promotion)[first]),
        masses=heavy.masses[first],
        causes=causes[first],
    )
