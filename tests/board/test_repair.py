"""Castling rights that do not fit: dropped, or read as Chess960's."""

from __future__ import annotations

import random

import chess
import pytest

from movemask.board.position import Position
from movemask.board.repair import means_chess960, repaired
from movemask.errors import InvalidPosition

#: Standard chess with a right too many, which fits Chess960 by accident.
STALE = "r3k2r/pppppppp/8/8/8/8/PPPPPPPP/1R2K2R w KQkq - 0 1"


@pytest.mark.parametrize(
    ("fen", "expected"),
    [
        (STALE, False),
        ("r3k2r/8/8/8/8/8/8/RK5R w KQkq - 0 1", False),
        ("rk5r/8/8/8/8/8/8/RK5R w KQkq - 0 1", True),
        ("rk4r1/8/8/8/8/8/8/RK5R w KQkq - 0 1", False),
        ("rk4r1/8/8/8/8/8/8/RK5R w Qq - 0 1", True),
        ("rk4r1/8/8/8/8/8/8/RK5R w Kq - 0 1", True),
        ("4k3/8/8/8/8/8/8/RK6 w Q - 0 1", True),
        ("4k3/8/8/8/8/8/8/1R2K3 w Q - 0 1", False),
        ("4k3/8/8/8/8/8/8/1R2K3 w B - 0 1", True),
        ("4k3/8/8/8/8/8/8/4K2R w H - 0 1", False),
        ("4k3/8/8/8/8/8/8/4K3 w KQ - 0 1", False),
        (chess.STARTING_FEN, False),
    ],
)
def test_means_chess960(fen: str, expected: bool) -> None:
    assert means_chess960(fen) == expected


def test_chess960_start_positions_mean_chess960() -> None:
    for number in random.Random(1).sample(range(960), 100):
        board = chess.Board.from_chess960_pos(number)
        standard = chess.Board(board.fen()).is_valid()
        assert means_chess960(board.fen()) != standard


@pytest.mark.parametrize("chess960", [None, False])
def test_repaired_drops_what_does_not_fit(chess960: bool | None) -> None:
    board, notes = repaired(STALE.replace("kq -", "kq e6"), chess960=chess960)
    assert board.fen(en_passant="fen") == STALE.replace("KQkq", "Kkq")
    assert notes == [
        "castling rights KQkq do not fit the king and rooks: read as Kkq",
        "no pawn has just passed e6: read without en passant",
    ]


def test_error_holds_the_repaired_fen() -> None:
    """The advice to ask with chess960 was wrong: the position is standard chess with a right too many."""
    with pytest.raises(InvalidPosition) as raised:
        Position.read(STALE)
    assert f"; without what does not fit: {STALE.replace('KQkq', 'Kkq')!r}" in str(raised.value)
    with pytest.raises(InvalidPosition, match="valid as Chess960"):
        Position.read("rk5r/8/8/8/8/8/8/RK5R w KQkq - 0 1")
    with pytest.raises(InvalidPosition) as raised:
        Position.read("8/8/8/8/8/8/8/K6R w K - 0 1")
    assert str(raised.value).endswith("NO_BLACK_KING, BAD_CASTLING_RIGHTS")
