"""What the illegal mass of a position stands for: its moves by name, and its causes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from movemask.board.boards import Boards
from movemask.board.move_codes import uci_of
from movemask.leakage.causes import CAUSES, Cause, Written, causes_of
from movemask.leakage.record import IllegalMass
from movemask.numeric.ragged import Float, Index
from movemask.vocabulary.vocabulary import Vocabulary

#: Illegal moves that are named for each position.
NAMED = 5


@dataclass(frozen=True, slots=True)
class Heavy:
    """Illegal slots and the probability that plain softmax gives them, row after row, all `[K]`."""

    rows: Index
    slots: Index
    masses: Float


#: The illegal moves of a position that are named, heaviest first, and the mass by cause of all that are heavy.
Explained = tuple[tuple[IllegalMass, ...], dict[Cause, float]]


def explained(
    heavy: Heavy,
    boards: Boards,
    vocabulary: Vocabulary,
    legal: Sequence[Index],
    named: int = NAMED,
) -> list[Explained]:
    """What the heavy slots of a batch stand for; `legal` are the legal moves `[L]` of each position (`move_codes`)."""
    found: list[Explained] = [((), {}) for _ in range(len(boards))]
    if not len(heavy.rows):
        return found
    written = Written.of_slots(boards, heavy.rows, heavy.slots, vocabulary)
    causes, count = causes_of(written, legal), len(boards)
    of_each = np.bincount(heavy.rows * len(CAUSES) + causes, heavy.masses, minlength=count * len(CAUSES))
    for place in np.flatnonzero(of_each).tolist():
        row, cause = divmod(place, len(CAUSES))
        found[row][1][CAUSES[cause]] = float(of_each[place])
    starts = np.searchsorted(heavy.rows, np.arange(count))
    first = np.flatnonzero(np.arange(len(heavy.rows)) - starts[heavy.rows] < named)
    names = uci_of(written.codes(vocabulary.bare_promotion)[first])
    illegal: list[list[IllegalMass]] = [[] for _ in range(len(boards))]
    for row, name, mass, cause in zip(
        heavy.rows[first].tolist(), names, heavy.masses[first].tolist(), causes[first].tolist(), strict=True
    ):
        illegal[row].append(IllegalMass(name, mass, CAUSES[cause]))
    return [(tuple(own), by_cause) for own, (_, by_cause) in zip(illegal, found, strict=True)]
