"""Answered batches from logits, without a network and without a queue."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from movemask.board.moves import legal_moves
from movemask.board.position import Elo, Position, boards_of
from movemask.encoding.vocabulary import Vocabulary
from movemask.evaluate import Answer, Evaluated, Query
from movemask.leakage.causes import Cause
from movemask.leakage.explain import IllegalMass
from movemask.leakage.measure import Figure, UnmaskedLogits
from movemask.network.model import Batch, Model
from movemask.policy.normalisation import Normalisation
from movemask.server.ledger.entries import AnsweredBatch, LedgerTable
from tests.networks import fake_model


def answered(
    positions: Sequence[Position],
    vocab: Vocabulary,
    logits: NDArray[np.floating],
    *,
    model: Model | None = None,
    time: float = 0.0,
    elos: Sequence[float | None] = (),
    failed: Collection[int] = (),
) -> AnsweredBatch:
    """A batch that was answered from its logits `[B, A]`, but for the rows that `failed`."""
    boards = boards_of(positions)
    legal = legal_moves(position.board for position in positions)
    codes, slots, _, refused = vocab.slots(legal, boards)
    assert not refused.any()
    unrated = np.full((len(positions), 2), np.nan)
    batch = Batch(positions, boards, codes, slots, legal.indptr, legal.in_check, unrated)
    unmasked, nothing = UnmaskedLogits(logits, slots, legal.indptr), np.zeros(len(positions))
    evaluated = Evaluated(batch, None, unmasked, cast(Any, None), nothing, nothing, 0.001, {})  # policies: not recorded
    model = model or fake_model(words=vocab.name)
    answers = [
        Answer(model, Query(elo=None if elo is None else Elo(elo, elo)), one, Normalisation(), None, evaluated, row)
        for row, (one, elo) in enumerate(zip(positions, elos or [None] * len(positions), strict=True))
        if row not in failed
    ]
    return AnsweredBatch(model, answers, evaluated, time)


@dataclass(frozen=True)
class Leakage:
    """What is recorded of one position."""

    figures: dict[str, Figure]
    illegal: tuple[IllegalMass, ...]
    causes: dict[Cause, float]


def leakages(
    positions: Sequence[Position],
    vocab: Vocabulary,
    logits: NDArray[np.floating],
    *,
    kinds: Collection[str],
    threshold: float = 1e-3,
) -> list[Leakage]:
    """What is recorded of each position."""
    table = LedgerTable.of([answered(positions, vocab, logits)], tuple(kinds), threshold)
    return [
        Leakage({kind: one.figure(row) for kind, one in table.measured.items()}, *table.explained.of(row))
        for row in range(len(positions))
    ]
