"""What the service makes of logits for the audit, without a network and without a queue."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np
from numpy.typing import NDArray

from movemask.board.moves import legal_moves
from movemask.board.position import Position, boards_of
from movemask.encoding.vocabulary import Vocabulary
from movemask.leakage.audited import Audited, records_of
from movemask.leakage.measure import LogitBatch, measure
from movemask.leakage.record import Leakage


def audited(
    positions: Sequence[Position],
    words: Vocabulary,
    logits: NDArray[np.floating],
    *,
    kinds: Collection[str],
    least: float,
    model: str = "net",
) -> Audited:
    """A batch that was answered, from its logits `[B, A]`."""
    boards = boards_of(positions)
    legal = legal_moves(position.board for position in positions)
    codes, slots, refused = words.slots(legal, boards)
    assert not refused.any()
    unmasked = LogitBatch(logits, slots, legal.indptr)
    return Audited(
        times=[1_000.0 + row for row in range(len(positions))],
        model=model,
        digest="sha256:" + "0" * 64,
        trained_with_mask=False,
        vocabulary=words,
        positions=positions,
        boards=boards,
        in_check=legal.in_check,
        codes=codes,
        indptr=legal.indptr,
        measured=measure(kinds, unmasked, words, boards.black),
        heavy=unmasked.heavy(least),
        elos=[None] * len(positions),
    )


def leakages(
    positions: Sequence[Position],
    words: Vocabulary,
    logits: NDArray[np.floating],
    *,
    kinds: Collection[str],
    least: float = 1e-3,
) -> list[Leakage]:
    """What is recorded of each position."""
    return [record.leakage for record in records_of(audited(positions, words, logits, kinds=kinds, least=least))]
