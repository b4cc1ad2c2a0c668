"""What everybody would lose: answers that hold no illegal move and sum to 1."""

from __future__ import annotations

import chess
import numpy as np
import pytest

from service.audit.counterfactual import multiplied_softmax
from service.audit.served import served
from service.encoding.position import Position
from service.encoding.vocabularies import vocabulary
from service.errors import ServedLeakage
from service.numeric.dense import masked_softmax


class TestServed:
    """A planted mistake must trip: this is the promise of every answer."""

    board = chess.Board()
    moves = tuple(board.legal_moves)

    def test_a_right_answer_is_exactly_zero(self) -> None:
        assert served(self.board, self.moves, np.full(20, 0.05)) == 0.0

    def test_an_illegal_move_trips_however_small(self) -> None:
        moves = (*self.moves[:-1], chess.Move.from_uci("e2e5"))
        probabilities = np.full(20, 1 / 19)
        probabilities[-1] = 5e-324
        with pytest.raises(ServedLeakage, match="holds 5e-324 on illegal moves"):
            served(self.board, moves, probabilities)

    def test_a_sum_off_by_1e_11_or_nan_trips(self) -> None:
        for off in (1e-11, -1e-11, np.nan):
            probabilities = np.full(20, 0.05)
            probabilities[0] += off
            with pytest.raises(ServedLeakage, match="sums to"):
                served(self.board, self.moves, probabilities)

    def test_a_move_told_twice_trips(self) -> None:
        with pytest.raises(ServedLeakage, match="a move twice"):
            served(self.board, (self.moves[0], self.moves[0]), np.array([0.5, 0.5]))

    def test_a_legal_move_that_was_never_thought_of_trips(self) -> None:
        assert served(self.board, self.moves, np.full(20, 0.05), legal_moves=20) == 0.0
        with pytest.raises(ServedLeakage, match="is over 19 moves; 20 are legal"):
            served(self.board, self.moves[1:], np.full(19, 1 / 19), legal_moves=19)

    def test_the_multiply_mistake_cannot_pass(self) -> None:
        mask = np.zeros((1, 1880), dtype=bool)
        words = vocabulary("movemask-1880")
        mask[0, words.legal_slots(Position(self.board))[1]] = True
        logits = np.random.default_rng(0).normal(size=(1, 1880))
        mistaken = multiplied_softmax(logits, mask)
        moves = tuple(words.move(slot, self.board) for slot in range(1880))
        with pytest.raises(ServedLeakage, match="on illegal moves"):
            served(self.board, moves, mistaken[0])
        right = masked_softmax(logits, mask)[0]
        legal = [slot for slot in range(1880) if mask[0, slot]]
        assert served(self.board, [moves[slot] for slot in legal], right[legal]) == 0.0
