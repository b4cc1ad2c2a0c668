"""What the service makes of logits for the audit, without a network and without a queue."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from movemask.board.moves import legal_moves
from movemask.board.position import Position, boards_of
from movemask.encoding.vocabulary import Vocabulary
from movemask.leakage.causes import Cause
from movemask.leakage.explain import IllegalMass
from movemask.leakage.measure import Figure, UnmaskedLogits, measure
from movemask.network.model import Batch
from movemask.server.ledger.entries import LedgerBatch
from tests.networks import fake_model


def audited(
    positions: Sequence[Position],
    words: Vocabulary,
    logits: NDArray[np.floating],
    *,
    kinds: Collection[str],
    least: float,
    model: str = "net",
) -> LedgerBatch:
    """A batch that was answered, from its logits `[B, A]`."""
    boards = boards_of(positions)
    legal = legal_moves(position.board for position in positions)
    codes, slots, refused = words.slots(legal, boards)
    assert not refused.any()
    unmasked = UnmaskedLogits(logits, slots, legal.indptr)
    return LedgerBatch(
        times=np.arange(len(positions), dtype=np.float64),
        model=fake_model(model, words=words.name),
        batch=Batch(
            positions, boards, codes, slots, legal.indptr, legal.in_check, np.full((len(positions), 2), np.nan)
        ),
        measured=measure(kinds, unmasked, words, boards.black),
        heavy=unmasked.heavy(least),
        elos=[None] * len(positions),
    )


@dataclass(frozen=True)
class Leakage:
    """What is recorded of one position."""

    figures: dict[str, Figure]
    illegal: tuple[IllegalMass, ...]
    causes: dict[Cause, float]


def leakages(
    positions: Sequence[Position],
    words: Vocabulary,
    logits: NDArray[np.floating],
    *,
    kinds: Collection[str],
    least: float = 1e-3,
) -> list[Leakage]:
    """What is recorded of each position."""
    table = audited(positions, words, logits, kinds=kinds, least=least).table()
    return [
        Leakage({kind: one.figure(row) for kind, one in table.measured.items()}, *table.explained.of(row))
        for row in range(len(positions))
    ]
