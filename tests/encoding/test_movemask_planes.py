"""What a user would lose: the position as our own network was trained on it."""

from __future__ import annotations

import chess
import numpy as np
from numpy.typing import NDArray

from movemask.board.position import Position, boards_of
from movemask.encoding.encoders import plane_encoder
from movemask.encoding.movemask_planes import encode_18 as encode_all
from tests.ground_truth import perft, tricky


def encode(position: Position) -> NDArray[np.float32]:
    found: NDArray[np.float32] = encode_all([position], boards_of([position]))[0]
    return found


def pieces(board: chess.Board) -> NDArray[np.float32]:
    """Twelve piece planes, square by square: a second way to the same."""
    planes = np.zeros((12, 8, 8), dtype=np.float32)
    for square, piece in board.piece_map().items():
        seen = square if board.turn == chess.WHITE else chess.square_mirror(square)
        plane = piece.piece_type - 1 + (0 if piece.color == board.turn else 6)
        planes[plane, chess.square_rank(seen), chess.square_file(seen)] = 1
    return planes


def test_pieces_square_by_square_and_black_mirrors() -> None:
    for fen in [row.fen for row in perft("standard")[::4]] + [fen for fen, _, _ in tricky()]:
        board = chess.Board(fen)
        planes, mirrored = encode(Position(board)), encode(Position(board.mirror()))
        np.testing.assert_array_equal(planes[:12], pieces(board), fen)
        np.testing.assert_array_equal(planes[:16], mirrored[:16], fen)
        assert (planes[16] != mirrored[16]).all()


def test_castling_rooks_en_passant_clock_colour_and_ones() -> None:
    planes = encode(Position.read("r3k2r/8/8/8/8/8/8/R3K2R b Qk - 30 20"))
    assert np.argwhere(planes[12]).tolist() == [[0, 7]]  # our h-rook, seen from Black
    assert np.argwhere(planes[13]).tolist() == [[7, 0]]  # their a-rook
    assert not planes[14].any()
    np.testing.assert_allclose(planes[15], 0.3)
    assert planes[16].all()
    assert planes[17].all()


def test_en_passant_is_marked_only_where_it_can_be_taken() -> None:
    assert np.argwhere(encode(Position.read("8/8/8/3pP3/8/8/8/K6k w - d6 0 1"))[14]).tolist() == [[5, 3]]
    assert not encode(Position.read(moves=["e2e4"]))[14].any()


def test_chess960_castling_rooks() -> None:
    planes = encode(Position.read("nrkbbqrn/pppppppp/8/8/8/8/PPPPPPPP/NRKBBQRN w GBgb - 0 1", chess960=True))
    assert np.argwhere(planes[12]).tolist() == [[0, 1], [0, 6]]


def test_the_last_two_moves_are_seen_from_the_mover_and_a_bare_fen_has_none() -> None:
    """What a user would lose: `moves` that say more than the FEN, and a recapture that is seen as one."""
    moves = ["e2e4", "d7d5", "e4d5", "d8d5"]
    position = Position.read(moves=moves)
    planes = plane_encoder("movemask-24").encode(position)
    seen = [[chess.square_name(8 * rank + file) for rank, file in np.argwhere(plane)] for plane in planes[18:]]
    assert seen == [["d8"], ["d5"], ["d5"], ["e4"], ["d5"], ["d5"]]
    mirrored = plane_encoder("movemask-24").encode(Position.read(moves=moves[:3]))
    seen = [[chess.square_name(8 * rank + file) for rank, file in np.argwhere(plane)] for plane in mirrored[18:]]
    assert seen == [["e5"], ["d4"], ["d4"], ["d2"], ["d4"], []]  # with Black to move the ranks are flipped
    bare = plane_encoder("movemask-24").encode(Position.read(position.fen))
    np.testing.assert_array_equal(bare[:18], planes[:18])
    np.testing.assert_array_equal(bare[:18], encode(position))
    assert not bare[18:].any()


def test_castling_leaves_two_squares_and_reaches_two() -> None:
    planes = plane_encoder("movemask-24").encode(Position.read("4k3/8/8/8/8/8/8/4K2R w K - 0 1", ["e1g1"]))
    assert np.argwhere(planes[18]).tolist() == [[7, 4], [7, 7]]
    assert np.argwhere(planes[19]).tolist() == [[7, 5], [7, 6]]
    assert not planes[20:].any()
