"""Draws by rule, with python-chess as the judge."""

from __future__ import annotations

import chess
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from movemask.board.position import Draw, Position, draw_of


def expected(board: chess.Board) -> Draw | None:
    """The weightiest, by python-chess, which takes moves back to count repetitions."""
    if board.is_insufficient_material():
        return Draw.INSUFFICIENT_MATERIAL
    if board.is_seventyfive_moves():
        return Draw.SEVENTYFIVE_MOVES
    if board.is_fivefold_repetition():
        return Draw.FIVEFOLD_REPETITION
    if board.is_fifty_moves():
        return Draw.FIFTY_MOVES
    return Draw.THREEFOLD_REPETITION if board.is_repetition(3) else None


def check(boards: list[chess.Board]) -> None:
    boards = [board for board in boards if any(board.legal_moves)]
    assert [draw_of(Position(board)) for board in boards] == [expected(board) for board in boards]


@st.composite
def few_pieces(draw: st.DrawFn) -> chess.Board:
    squares = draw(st.permutations(chess.SQUARES))
    board = chess.Board(None)
    kinds = draw(st.lists(st.sampled_from("NBnbNBnbQp"), max_size=5))
    for square, symbol in zip(squares, ["K", "k", *kinds], strict=False):
        board.set_piece_at(square, chess.Piece.from_symbol(symbol))
    board.turn = draw(st.booleans())
    board.halfmove_clock = draw(st.sampled_from([0, 99, 100, 149, 150, 10**6]))
    return board


@given(st.lists(few_pieces(), max_size=20))
@example([chess.Board(f"8/8/8/4k3/8/8/{pieces}/4K3 w - - 0 1") for pieces in ("N7", "B7", "B1B5", "BB6", "n6N", "bB6")])
def test_draw_by_material_and_clocks(boards: list[chess.Board]) -> None:
    check([board for board in boards if board.is_valid()])


@pytest.mark.parametrize(
    ("times", "clock", "draw"),
    [
        (1, 0, None),
        (2, 0, Draw.THREEFOLD_REPETITION),
        (3, 0, Draw.THREEFOLD_REPETITION),
        (4, 0, Draw.FIVEFOLD_REPETITION),
        (4, 140, Draw.SEVENTYFIVE_MOVES),
        (2, 100, Draw.FIFTY_MOVES),
    ],
)
def test_draw_with_highest_precedence(times: int, clock: int, draw: Draw | None) -> None:
    shuffle = ["g1f3", "g8f6", "f3g1", "f6g8"] * times
    position = Position.read(f"{chess.STARTING_BOARD_FEN} w KQkq - {clock} 80", shuffle)
    assert draw_of(position) == draw
