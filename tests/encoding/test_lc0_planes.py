"""What a user would lose: the position as an lc0 network expects it (its outputs: tests/api/test_maia.py)."""

from __future__ import annotations

import chess
import numpy as np
import pytest
from numpy.typing import NDArray

from movemask.board.position import Position, boards_of
from movemask.encoding.lc0 import HistoryFill, encode_all
from tests.ground_truth import perft

Planes = NDArray[np.float32]


def encode(position: Position, fill: HistoryFill = HistoryFill.FEN_ONLY) -> Planes:
    found: Planes = encode_all([position], boards_of([position]), fill)[0]
    return found


def block(planes: Planes, index: int) -> Planes:
    return planes[13 * index : 13 * index + 13]


def slow_block(board: chess.Board, us: chess.Color) -> Planes:
    """Twelve piece planes, square by square: a second way to the same."""
    planes = np.zeros((13, 8, 8), dtype=np.float32)
    for square, piece in board.piece_map().items():
        seen = square if us == chess.WHITE else chess.square_mirror(square)
        plane = piece.piece_type - 1 + (0 if piece.color == us else 6)
        planes[plane, chess.square_rank(seen), chess.square_file(seen)] = 1
    return planes


def test_pieces_of_every_suite_position_square_by_square() -> None:
    for row in perft("standard"):
        board = chess.Board(row.fen)
        planes = encode(Position(board))
        np.testing.assert_array_equal(block(planes, 0), slow_block(board, board.turn), row.fen)
        if board.ep_square is None and board.board_fen() != chess.STARTING_BOARD_FEN:
            np.testing.assert_array_equal(block(planes, 7), slow_block(board, board.turn), row.fen)


def test_a_game_fills_the_blocks_newest_first_all_seen_by_the_side_to_move_now() -> None:
    moves = ["e2e4", "c7c5", "g1f3", "d7d6", "d2d4", "c5d4", "f3d4", "g8f6", "b1c3"]
    planes = encode(Position.read(moves=moves))
    board = chess.Board()
    boards = [board.copy()]
    for move in moves:
        board.push_uci(move)
        boards.append(board.copy())
    for index in range(8):
        np.testing.assert_array_equal(block(planes, index), slow_block(boards[-1 - index], chess.BLACK))


def test_the_start_position_is_not_repeated_into_the_past_unless_asked() -> None:
    assert not encode(Position.read())[13:104].any()
    assert not encode(Position.read(moves=["e2e4"]))[26:104].any()
    filled = encode(Position.read(), HistoryFill.ALWAYS)
    np.testing.assert_array_equal(block(filled, 7), block(filled, 0))
    assert not encode(Position.read("4k3/8/8/8/8/8/8/4K2R w K - 0 1"), HistoryFill.NO)[13:104].any()


@pytest.mark.parametrize("turn", [chess.WHITE, chess.BLACK])
def test_an_en_passant_square_puts_the_pawn_back_in_older_blocks(turn: chess.Color) -> None:
    board = chess.Board("rnbqkbnr/pppp1ppp/8/4p3/8/P7/1PPPPPPP/RNBQKBNR w KQkq e6 0 2")
    if turn == chess.BLACK:
        board = board.mirror()
    planes = encode(Position(board))
    their_pawns = planes[6], planes[13 + 6], planes[7 * 13 + 6]
    assert their_pawns[0][4, 4] == 1
    assert their_pawns[0][6, 4] == 0
    for older in their_pawns[1:]:
        assert older[4, 4] == 0
        assert older[6, 4] == 1


def test_castling_turn_clock_and_ones() -> None:
    white = encode(Position.read("r3k2r/8/8/8/8/8/8/R3K2R w Qk - 7 20"))
    assert [float(white[plane].mean()) for plane in range(104, 112)] == [1, 0, 0, 1, 0, 7, 0, 1]
    black = encode(Position.read("r3k2r/8/8/8/8/8/8/R3K2R b Qk - 7 20"))
    assert [float(black[plane].mean()) for plane in range(104, 112)] == [0, 1, 1, 0, 1, 7, 0, 1]


def test_repetition_plane() -> None:
    planes = encode(Position.read(moves=["g1f3", "g8f6", "f3g1", "f6g8"]))
    assert planes[12].all()
    assert not planes[13 + 12].any()
