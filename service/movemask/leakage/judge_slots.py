"""`judge_slots`: the judgement of another network's output vector, logits or probabilities by slot."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import chess
import numpy as np
from numpy.typing import NDArray

from movemask.board.moves import legal_moves, uci_of
from movemask.board.position import Position, boards_of
from movemask.encoding.vocabulary import Vocabulary
from movemask.errors import InvalidAudit
from movemask.leakage.causes import Written
from movemask.leakage.explain import explain
from movemask.leakage.judgement import GIVEN, Judgement, checked_sum, given_figure, no_legal_move
from movemask.leakage.kinds import KINDS, RAW, SERVED
from movemask.leakage.measure import Figure, HeavySlots, UnmaskedLogits, measure
from movemask.leakage.patterns import flat, swapped
from movemask.policy.ragged import Float


def judge_slots(
    name: Literal["logits", "probabilities"],
    numbers: Sequence[float],
    position: Position,
    vocabulary: Vocabulary,
    *,
    threshold: float,
    named: int,
) -> Judgement:
    """Returns the judgement of the numbers of all slots `[A]`: logits or probabilities, as `name` says.

    Parameters
    ----------
    threshold : smallest probability of an illegal move that is listed
    named : most illegal moves that are listed

    Raises
    ------
    InvalidAudit : no legal move, a wrong number of slots, or an impossible number; the message names its slot
    """
    moves, slots = vocabulary.legal_slots(position)
    if not moves:
        raise no_legal_move(position)
    if len(numbers) != len(vocabulary):
        raise InvalidAudit(
            f"{name}: {len(numbers)} numbers; the vocabulary {vocabulary.name} has {len(vocabulary)} slots"
        )
    values = np.array(numbers, dtype=np.float64)
    if name == "logits":
        total, nothing = None, -np.inf
        figures, share = _of_logits(values, moves, slots, position, vocabulary)
    else:
        total, nothing = checked_sum(name, dict(enumerate(values.tolist()))), 0.0
        figures = {GIVEN: given_figure(values[slots], np.delete(values, slots))}
        share = values / total
    illegal = np.ones(len(share), dtype=np.bool_)
    illegal[slots] = False
    reached = np.flatnonzero(illegal & (share > 0))
    reached = reached[np.lexsort((reached, -share[reached]))]
    heavy = HeavySlots(np.array([0, len(reached)]), reached, share[reached])
    legal = legal_moves([position.board]).codes
    indptr = np.array([0, len(legal)])
    names = names_of_slots(position, vocabulary)
    by_name = dict(zip(names, share.tolist(), strict=True))
    heaviest, causes = explain(heavy, boards_of([position]), vocabulary, legal, indptr, named).of(0)
    best = int(np.argmax(np.where(np.isnan(values), -np.inf, values)))
    return Judgement(
        figures=figures,
        total=total,
        top=names[best],
        top_is_legal=not illegal[best],
        missing=tuple(names[slot] for slot in slots[values[slots] == nothing].tolist()),
        causes=causes,
        illegal=tuple(move for move in heaviest if move.probability >= threshold),
        patterns=(
            *flat(share[illegal], share[slots]),
            *swapped(position.board, by_name, vocabulary.castling, vocabulary),
        ),
    )


def _of_logits(
    z: Float,
    moves: Sequence[chess.Move],
    slots: NDArray[np.intp],
    position: Position,
    vocabulary: Vocabulary,
) -> tuple[dict[str, Figure], Float]:
    """Returns the figures of logits `[A]`, and softmax probabilities `[A]`, which are 0 if an illegal logit is NaN or
    +inf."""
    for slot in np.flatnonzero(np.isfinite(z) & (np.abs(z) > np.finfo(np.float32).max)):
        raise InvalidAudit(f"logits[{slot}]: {z[slot]} is beyond float32; write null for -infinity")
    for slot, move in zip(slots.tolist(), moves, strict=True):
        if np.isnan(z[slot]) or z[slot] == np.inf:
            raise InvalidAudit(f"logits[{slot}]: {move.uci()} is legal, and its logit is {z[slot]}")
    if np.isneginf(z[slots]).all():
        raise InvalidAudit("logits: every legal move has -infinity; there is no policy")
    kinds = [kind for kind in KINDS if kind != SERVED]
    batch = UnmaskedLogits(z[None], slots, np.array([0, len(slots)]))
    measured = measure(kinds, batch, vocabulary, np.array([position.black]))
    figures = {kind: columns.figure(0) for kind, columns in measured.items()}
    if figures[RAW].leaked is None:
        return figures, np.zeros(len(z))
    share = np.exp(z - z.max())
    return figures, share / share.sum()


def names_of_slots(position: Position, vocabulary: Vocabulary) -> list[str]:
    """Returns the moves of all slots `[A]` in UCI, by their own squares."""
    rows = np.zeros(len(vocabulary), dtype=np.intp)
    written = Written.of_slots(boards_of([position]), rows, np.arange(len(vocabulary)), vocabulary)
    return uci_of(written.codes(vocabulary.bare_promotion))
