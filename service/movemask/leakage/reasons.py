"""The illegal mass of a position explained: the moves it is on, and the causes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from movemask.board.boards import Boards
from movemask.board.moves import uci_of
from movemask.encoding.vocabulary import Vocabulary
from movemask.leakage.causes import CAUSES, Cause, Written, causes_of
from movemask.leakage.record import IllegalMass
from movemask.numeric.ragged import Float, Index

#: Illegal moves named per position.
NAMED = 5


@dataclass(frozen=True, slots=True)
class HeavySlots:
    """Illegal slots with the probability that plain softmax gives them, in order of row, all `[K]`."""

    rows: Index
    slots: Index
    masses: Float


#: Of one position: its heaviest illegal moves, heaviest first, and the mass of all its heavy slots by cause.
Explained = tuple[tuple[IllegalMass, ...], dict[Cause, float]]


def explained(
    heavy: HeavySlots,
    boards: Boards,
    vocabulary: Vocabulary,
    legal: Sequence[Index],
    named: int = NAMED,
) -> list[Explained]:
    """The explanation of each position of a batch, from its heavy slots, of which `named` are named.

    `legal` are the legal moves `[L]` of each position (`move_codes`).
    """
    count = len(boards)
    by_cause: list[dict[Cause, float]] = [{} for _ in range(count)]
    illegal: list[list[IllegalMass]] = [[] for _ in range(count)]
    if len(heavy.rows):
        written = Written.of_slots(boards, heavy.rows, heavy.slots, vocabulary)
        causes = causes_of(written, legal)
        masses = np.bincount(heavy.rows * len(CAUSES) + causes, heavy.masses, minlength=count * len(CAUSES))
        for index in np.flatnonzero(masses).tolist():
            row, cause = divmod(index, len(CAUSES))
            by_cause[row][CAUSES[cause]] = float(masses[index])
        starts = np.searchsorted(heavy.rows, np.arange(count))
        first = np.flatnonzero(np.arange(len(heavy.rows)) - starts[heavy.rows] < named)
        names = uci_of(written.codes(vocabulary.bare_promotion)[first])
        for row, name, mass, cause in zip(
            heavy.rows[first].tolist(), names, heavy.masses[first].tolist(), causes[first].tolist(), strict=True
        ):
            illegal[row].append(IllegalMass(name, mass, CAUSES[cause]))
    return list(zip(map(tuple, illegal), by_cause, strict=True))
