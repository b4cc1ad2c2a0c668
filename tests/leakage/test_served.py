"""The check of answers: `served` leakage is exactly 0, or the answer is withheld."""

from __future__ import annotations

from collections.abc import Sequence

import chess
import numpy as np
import pytest
from numpy.typing import NDArray

from movemask.board.moves import code_of
from movemask.board.position import Position
from movemask.errors import ServedLeakage
from movemask.leakage.answer_check import check_answer

START = chess.Board()
MOVES = tuple(START.legal_moves)
EVEN = np.full(20, 0.05)


def check(moves: Sequence[chess.Move], probabilities: NDArray[np.float64], abstention: float = 0.0) -> None:
    """Checks an answer to the start position."""
    legal = [code_of(move) for move in MOVES]
    check_answer(Position(START), legal, [code_of(move) for move in moves], probabilities.tolist(), abstention)


def test_correct_answer_has_zero_served_leakage() -> None:
    check(MOVES, EVEN)
    check(MOVES[3:5], np.array([0.75, 0.25]))
    check(MOVES, EVEN / 2, abstention=0.5)


@pytest.mark.parametrize(
    ("moves", "probabilities", "words"),
    [
        ((*MOVES[:-1], chess.Move.from_uci("e2e5")), [1 / 19] * 19 + [5e-324], "holds 5e-324 on illegal moves"),
        ((*MOVES[:-1], chess.Move.from_uci("e1f1")), [1 / 19] * 19 + [5e-324], "holds 5e-324 on illegal moves"),
        *((MOVES, [0.05 + off] + [0.05] * 19, "sums to") for off in (1e-11, -1e-11, np.nan)),
        ((MOVES[0], MOVES[0]), [0.5, 0.5], "holds a move twice"),
    ],
)
def test_slightly_wrong_answer_is_withheld(moves: Sequence[chess.Move], probabilities: list[float], words: str) -> None:
    with pytest.raises(ServedLeakage, match=f"{START.fen()}' {words}"):
        check(moves, np.array(probabilities))
