"""`judge_policy`: the judgement of another program's probabilities, given as a map of moves."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

import chess
import numpy as np
from numpy.typing import NDArray

from movemask.board.boards import BIT
from movemask.board.moves import legal_moves, moves_of
from movemask.board.position import Position, boards_of
from movemask.encoding.vocabulary import Castling
from movemask.errors import InvalidAudit
from movemask.leakage.causes import CAUSES, Cause, Written, causes_of
from movemask.leakage.explain import IllegalMass
from movemask.leakage.judgement import GIVEN, Judgement, checked_sum, given_figure, no_legal_move
from movemask.leakage.patterns import castling_move, flat, swapped, written_move


def judge_policy(
    position: Position,
    policy: Mapping[str, float],
    *,
    castling: Castling | None = None,
    threshold: float,
    named: int,
) -> Judgement:
    """Returns the judgement of a map of UCI moves to probabilities.

    Parameters
    ----------
    castling : the form in which castling is written; None accepts either form (e1g1, e1h1)
    threshold : smallest probability of an illegal move that is listed
    named : most illegal moves that are listed

    Raises
    ------
    InvalidAudit : no legal move, no distribution, a text that is not a move, or a move that is given twice
    """
    board = position.board
    if castling is Castling.KING_TWO_SQUARES and board.chess960:
        raise InvalidAudit("castling: in Chess960 it is written king_takes_rook")
    total = checked_sum("policy", policy)
    legal = legal_moves([board]).codes
    playable = {_key(board, move, None): move for move in moves_of(legal)}
    if not playable:
        raise no_legal_move(position)
    names: dict[object, str] = {}
    wrong: list[tuple[str, chess.Move, float]] = []
    right = dict.fromkeys(playable, 0.0)
    for uci, p in policy.items():
        move = _read_move(uci)
        key = _key(board, move, castling)
        if p > 0 and key in names:
            raise InvalidAudit(
                f"policy: {names[key]!r} and {uci!r} may both stand for castling; say which with "
                f'"castling": "{Castling.KING_TWO_SQUARES.value}" or "{Castling.KING_TAKES_ROOK.value}"'
            )
        if p > 0:
            names[key] = uci
        if key in right:
            right[key] += p
        elif p > 0:
            wrong.append((uci, move, p / total))
    wrong.sort(key=lambda entry: (-entry[2], entry[0]))
    reasons = _causes([move for _, move, _ in wrong], position, castling, legal)
    illegal = [
        IllegalMass(uci, p, cause) for (uci, _, p), cause in zip(wrong, reasons, strict=True)
    ]
    by_cause: dict[Cause, float] = defaultdict(float)
    for mass in illegal:
        by_cause[mass.cause] += mass.probability
    top = max(policy, key=lambda uci: policy[uci])
    of_legal = np.array(list(right.values())) / total
    of_illegal = np.array([p for _, _, p in wrong])
    share = {uci: p / total for uci, p in policy.items()}
    return Judgement(
        figures={GIVEN: given_figure(of_legal, of_illegal)},
        total=total,
        top=top,
        top_is_legal=_key(board, _read_move(top), castling) in playable,
        missing=tuple(
            written_move(board, move, castling) for key, move in playable.items() if right[key] == 0
        ),
        causes=by_cause,
        illegal=tuple(mass for mass in illegal if mass.probability >= threshold)[:named],
        patterns=(*flat(of_illegal, of_legal), *swapped(board, share, castling)),
    )


def _causes(
    moves: Sequence[chess.Move],
    position: Position,
    castling: Castling | None,
    legal: NDArray[np.intp],
) -> list[Cause]:
    """Returns the causes of illegal moves, given by their squares.

    Without `castling`, either form counts as castling.
    """
    boards, turned = boards_of([position]), 56 if position.black else 0
    source = np.array([move.from_square ^ turned for move in moves], dtype=np.intp)
    target = np.array([move.to_square ^ turned for move in moves], dtype=np.intp)
    promotion = np.array([move.promotion or 0 for move in moves], dtype=np.intp)
    if castling is None:
        takes_rook = boards.pieces[3] & boards.ours & BIT[target] != 0
    else:
        takes_rook = np.full(len(moves), castling is Castling.KING_TAKES_ROOK)
    written = Written(
        boards, np.zeros(len(moves), dtype=np.intp), source, target, promotion, takes_rook
    )
    return [CAUSES[cause] for cause in causes_of(written, [legal]).tolist()]


def _read_move(uci: str) -> chess.Move:
    try:
        move = chess.Move.from_uci(uci)
    except ValueError:
        raise InvalidAudit(f"policy: {uci!r} is not a UCI move") from None
    if not move or move.drop is not None:
        raise InvalidAudit(f"policy: {uci!r} is not a move of chess")
    return move


def _key(board: chess.Board, move: chess.Move, castling: Castling | None) -> object:
    """Returns a key that is equal for two spellings of one move. With `castling`, only that form counts as castling."""
    can_castle = board.is_castling(move) and board.is_legal(move)
    if can_castle and (
        castling is None or board.chess960 or move == castling_move(board, move, castling)
    ):
        return "kingside" if board.is_kingside_castling(move) else "queenside"
    return move
