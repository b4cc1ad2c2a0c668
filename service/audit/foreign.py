"""Someone else's numbers for a position, audited: logits, probabilities in a vocabulary, or a map of moves to
probabilities."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import chess
import numpy as np
from numpy.typing import NDArray

from service.audit.causes import CAUSES, Cause, Written, causes_of
from service.audit.kinds import KINDS, SERVED
from service.audit.leakage import Batch, measure
from service.audit.reasons import Heavy, explained
from service.audit.record import Figure, IllegalMass
from service.encoding.attacks import BIT
from service.encoding.move_codes import codes_of
from service.encoding.position import Position, boards_of
from service.encoding.vocabulary import Vocabulary
from service.errors import InvalidAudit
from service.numeric.ragged import Float

#: The kind of what was given as probabilities.
GIVEN = "given"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What leaks, of numbers that came from elsewhere.

    `figures` by kind: of logits every kind but `served`; of probabilities `given`, whose `leaked` is the illegal share
    of their sum. `total` is that sum, None for logits; `top` the move with the most; `missing` the legal moves that
    were given nothing.
    """

    figures: Mapping[str, Figure]
    total: float | None
    top: str
    top_is_legal: bool
    missing: tuple[str, ...]
    causes: Mapping[Cause, float]
    illegal: tuple[IllegalMass, ...]


def audited_logits(
    position: Position, vocabulary: Vocabulary, logits: Sequence[float], *, least: float, named: int
) -> Verdict:
    """The verdict on logits `[A]`; raises InvalidAudit naming the slot that is at fault."""
    moves, slots = _legal(position, vocabulary)
    z = _of_size("logits", logits, vocabulary)
    for slot, move in zip(slots.tolist(), moves, strict=True):
        if np.isnan(z[slot]) or z[slot] == np.inf:
            raise InvalidAudit(f"logits[{slot}]: {move.uci()} is legal, and its logit is {z[slot]}")
    if np.isneginf(z[slots]).all():
        raise InvalidAudit("logits: every legal move has -infinity; there is no policy")
    black = np.array([position.black])
    kinds = [kind for kind in KINDS if kind != SERVED]
    batch = Batch(z[None], slots, np.array([0, len(slots)]))
    measured = measure(kinds, batch, vocabulary, black)
    ((illegal, causes),) = explained(batch.heavy(least), [position], vocabulary, [codes_of(moves)], named)
    best = int(np.argmax(np.where(np.isnan(z), -np.inf, z)))
    return Verdict(
        figures={kind: of.figures()[0] for kind, of in measured.items()},
        total=None,
        top=vocabulary.move(best, position.board).uci(),
        top_is_legal=best in set(slots.tolist()),
        missing=tuple(move.uci() for slot, move in zip(slots, moves, strict=True) if np.isneginf(z[slot])),
        causes=causes,
        illegal=illegal,
    )


def audited_probabilities(
    position: Position, vocabulary: Vocabulary, probabilities: Sequence[float], *, least: float, named: int
) -> Verdict:
    """The verdict on probabilities `[A]`, of any sum; raises InvalidAudit."""
    moves, slots = _legal(position, vocabulary)
    p = _of_size("probabilities", probabilities, vocabulary)
    _no_negative("probabilities", dict(enumerate(p.tolist())))
    legal = set(slots.tolist())
    share = p / p.sum()
    reached = [slot for slot in np.flatnonzero((share >= least) & (share > 0)).tolist() if slot not in legal]
    slots_reached = np.array(sorted(reached, key=lambda slot: (-share[slot], slot)), dtype=np.intp)
    heavy = Heavy(np.zeros(len(reached), dtype=np.intp), slots_reached, share[slots_reached])
    ((illegal, causes),) = explained(heavy, [position], vocabulary, [codes_of(moves)], named)
    best = int(np.argmax(p))
    return Verdict(
        figures={GIVEN: _given(p[slots], np.delete(p, slots))},
        total=float(p.sum()),
        top=vocabulary.move(best, position.board).uci(),
        top_is_legal=best in legal,
        missing=tuple(move.uci() for slot, move in zip(slots, moves, strict=True) if p[slot] == 0),
        causes=causes,
        illegal=illegal,
    )


def audited_policy(position: Position, policy: Mapping[str, float], *, least: float, named: int) -> Verdict:
    """The verdict on a map of UCI moves to probabilities, castling as e1g1 or e1h1; raises InvalidAudit."""
    board = position.board
    _no_negative("policy", policy)
    playable = {_key(board, move): move for move in board.legal_moves}
    if not playable:
        raise _finished(position)
    found: dict[object, tuple[str, float]] = {}
    wrong: list[tuple[str, chess.Move, float]] = []
    total = float(np.sum(list(policy.values())))
    for uci, p in policy.items():
        move = _move(uci)
        key = _key(board, move)
        if key in found:
            raise InvalidAudit(f"policy: {uci!r} and {found[key][0]!r} are the same move")
        found[key] = (uci, p)
        if key not in playable and p > 0:
            wrong.append((uci, move, p / total))
    right = np.array([p for key, (_, p) in found.items() if key in playable])
    wrong.sort(key=lambda one: (-one[2], one[0]))
    reasons = _causes([move for _, move, _ in wrong], position, codes_of(list(board.legal_moves)))
    illegal = [IllegalMass(uci, p, cause) for (uci, _, p), cause in zip(wrong, reasons, strict=True)]
    causes: dict[Cause, float] = {}
    for one in illegal:
        if one.probability >= least:
            causes[one.cause] = causes.get(one.cause, 0.0) + one.probability
    top = max(policy, key=lambda uci: policy[uci])
    return Verdict(
        figures={GIVEN: _given(right, np.array([p for key, (_, p) in found.items() if key not in playable]))},
        total=total,
        top=top,
        top_is_legal=_key(board, _move(top)) in playable,
        missing=tuple(move.uci() for key, move in playable.items() if found.get(key, ("", 0.0))[1] == 0),
        causes=causes,
        illegal=tuple(one for one in illegal if one.probability >= least)[:named],
    )


def _causes(moves: Sequence[chess.Move], position: Position, legal: NDArray[np.intp]) -> list[Cause]:
    """Why moves that are told by their squares are illegal; castling is whatever it looks like."""
    boards, turned = boards_of([position]), 56 if position.black else 0
    source = np.array([move.from_square ^ turned for move in moves], dtype=np.intp)
    target = np.array([move.to_square ^ turned for move in moves], dtype=np.intp)
    promotion = np.array([move.promotion or 0 for move in moves], dtype=np.intp)
    takes_rook = boards.kinds[3] & boards.ours & BIT[target] != 0
    written = Written(boards, np.zeros(len(moves), dtype=np.intp), source, target, promotion, takes_rook)
    return [CAUSES[cause] for cause in causes_of(written, [legal]).tolist()]


def _given(right: Float, wrong: Float) -> Figure:
    """The illegal share, whether an illegal move is the best, and the divergence from the legal part made whole."""
    on_right, on_wrong = float(right.sum()), float(wrong.sum())
    flipped = bool(wrong.max(initial=0.0) > right.max(initial=0.0))
    kl = float(np.log1p(on_wrong / on_right)) if on_right > 0 else None
    return Figure(on_wrong / (on_right + on_wrong), flipped, kl)


def _legal(position: Position, vocabulary: Vocabulary) -> tuple[tuple[chess.Move, ...], NDArray[np.intp]]:
    moves, slots = vocabulary.legal_slots(position)
    if not moves:
        raise _finished(position)
    return moves, slots


def _finished(position: Position) -> InvalidAudit:
    return InvalidAudit(f"fen: {position.fen!r} has no legal move; there is nothing to audit")


def _of_size(name: str, numbers: Sequence[float], vocabulary: Vocabulary) -> Float:
    if len(numbers) != len(vocabulary):
        raise InvalidAudit(
            f"{name}: {len(numbers)} numbers; the vocabulary {vocabulary.name} has {len(vocabulary)} slots"
        )
    return np.array(numbers, dtype=np.float64)


def _no_negative(name: str, numbers: Mapping[Any, float]) -> None:
    for key, p in numbers.items():
        if not 0 <= p < np.inf:
            raise InvalidAudit(f"{name}[{key}]: {p} is no probability")
    if not sum(numbers.values()) > 0:
        raise InvalidAudit(f"{name}: nothing is above 0")


def _move(uci: str) -> chess.Move:
    try:
        move = chess.Move.from_uci(uci)
    except ValueError:
        raise InvalidAudit(f"policy: {uci!r} is not a UCI move") from None
    if not move or move.drop is not None:
        raise InvalidAudit(f"policy: {uci!r} is not a move of chess")
    return move


def _key(board: chess.Board, move: chess.Move) -> object:
    """The same for two ways to write one move: castling by the king's two squares or onto the rook."""
    if board.is_castling(move) and board.is_legal(move):
        return "kingside" if board.is_kingside_castling(move) else "queenside"
    return move
