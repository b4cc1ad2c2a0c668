"""What a user would lose: moves written as people write them, and an answer that says how they were read."""

from __future__ import annotations

import chess
import pytest

from movemask.board.moves import Notation, read_move
from movemask.board.position import Position
from movemask.errors import IllegalMove
from tests.ground_truth import tricky


def test_every_move_of_the_suite_reads_the_same_in_both_notations() -> None:
    for fen, _, flags in tricky():
        if any(flag.startswith("python-chess") for flag in flags):
            continue
        board = chess.Board(fen)
        for move in board.legal_moves:
            assert read_move(board, move.uci()) == (move, Notation.UCI)
            assert read_move(board, board.san(move)) == (move, Notation.SAN)


def test_moves_may_be_in_either_notation_and_it_is_told() -> None:
    for moves, notation in (
        (["e2e4", "e7e5", "g1f3"], Notation.UCI),
        (["e4", "e5", "Nf3"], Notation.SAN),
        (["e4", "e7e5", "Nf3"], Notation.MIXED),
    ):
        position = Position.read(moves=moves)
        assert position.notation is notation
        assert position.board.piece_at(chess.F3) == chess.Piece.from_symbol("N")
    assert Position.read().notation is None


@pytest.mark.parametrize(
    ("fen", "move", "words"),
    [
        ("4k3/8/8/8/8/8/8/R3K2R w - - 0 1", "O-O", "is not legal"),
        (chess.STARTING_FEN, "e2e5", "is not legal"),
        (chess.STARTING_FEN, "0000", "is not legal"),
        (chess.STARTING_FEN, "--", "is not legal"),
        ("4k3/8/8/8/8/8/4K3/R6R w - - 0 1", "Rd1", "is ambiguous"),
        ("4k3/8/8/8/8/8/4K3/R6R w - - 0 1", "Z0", "is not legal"),
        ("4k3/8/8/8/8/8/4K3/R6R w - - 0 1", "R@d1", "is not"),
        ("4k3/8/8/8/8/8/4K3/R6R w - - 0 1", "knight", "is not a move in UCI or SAN"),
    ],
)
def test_a_move_that_cannot_be_read_is_named(fen: str, move: str, words: str) -> None:
    with pytest.raises(IllegalMove, match=rf"moves\[0\]: '{move}' {words}.* in '") as caught:
        Position.read(fen, [move])
    assert str(caught.value).endswith(f"in {fen!r}")
