"""What everybody would lose: answers that hold no illegal move and sum to 1."""

from __future__ import annotations

from collections.abc import Sequence

import chess
import numpy as np
import pytest
from numpy.typing import NDArray

from movemask.board.moves import code_of
from movemask.board.position import Position
from movemask.errors import ServedLeakage
from movemask.leakage.measure import check_answer

START = chess.Board()
MOVES = tuple(START.legal_moves)
EVEN = np.full(20, 0.05)


def check(
    moves: Sequence[chess.Move],
    probabilities: NDArray[np.float64],
    abstention: float = 0.0,
    legal: Sequence[chess.Move] = MOVES,
) -> None:
    """Checks an answer to the start position."""
    position, own = Position(START), [code_of(move) for move in legal]
    check_answer(position, own, [code_of(move) for move in moves], probabilities.tolist(), abstention)


def test_a_right_answer_is_exactly_zero_whole_or_filtered_or_with_abstention() -> None:
    check(MOVES, EVEN)
    check(MOVES[3:5], np.array([0.75, 0.25]))
    check(MOVES, EVEN / 2, abstention=0.5)


def test_an_illegal_move_trips_however_small() -> None:
    probabilities = np.full(20, 1 / 19)
    probabilities[-1] = 5e-324
    for illegal in ("e2e5", "e1f1"):
        with pytest.raises(ServedLeakage, match=f"{START.fen()}' holds 5e-324 on illegal moves"):
            check((*MOVES[:-1], chess.Move.from_uci(illegal)), probabilities)


def test_a_sum_off_by_1e_11_or_nan_trips() -> None:
    for off in (1e-11, -1e-11, np.nan):
        probabilities = EVEN.copy()
        probabilities[0] += off
        with pytest.raises(ServedLeakage, match=f"{START.fen()}' sums to"):
            check(MOVES, probabilities)


def test_a_move_told_twice_trips() -> None:
    with pytest.raises(ServedLeakage, match=f"{START.fen()}' holds a move twice"):
        check((MOVES[0], MOVES[0]), np.array([0.5, 0.5]))
