"""Positions: errors of FENs, repetitions, and memory of shared games."""

from __future__ import annotations

import random
import tracemalloc
from io import StringIO

import chess
import pytest
from hypothesis import given
from hypothesis import strategies as st

from movemask.board.pgn import read_games
from movemask.board.position import PlayedGame, Position, SamePosition
from movemask.errors import InvalidFen, InvalidPosition


@st.composite
def games(draw: st.DrawFn) -> chess.Board:
    """A board after random legal moves, many of them back."""
    board, rng = chess.Board(), random.Random(draw(st.integers(0, 2**32)))
    for _ in range(draw(st.integers(0, 60))):
        moves, before = list(board.legal_moves), board.move_stack[-2:-1]
        back = [move for move in moves for own in before if move == chess.Move(own.to_square, own.from_square)]
        if moves:
            board.push(rng.choice(back if back and rng.random() < 0.7 else moves))
    return board


@pytest.mark.parametrize(
    ("fen", "words"),
    [
        ("rnbqkbnr/pppppppp/8/8/8/8/PPPPPPPP/RNBQKBNR", "is cut short: no side to move, castling rights or en-passant"),
        ("4k3/8/8/8/8/8/8/4K3 w - - 0 " + "1" * 200, "228 characters; at most 200 are allowed"),
        ("4k3/8/8/8/8/8/8/4K3 w - - 1000001 1", "the half-move clock is 1000001; at most 1000000 is allowed"),
        ("4k3/8/8/8/8/8/8/4K3 w - - 0 1000001", "the move number is 1000001; at most 1000000 is allowed"),
    ],
)
def test_invalid_fen_is_quoted(fen: str, words: str) -> None:
    with pytest.raises(InvalidFen, match=words):
        Position.read(fen)


def test_chess960_rights_are_named() -> None:
    with pytest.raises(InvalidPosition, match="ask with chess960 true"):
        Position.read("nrkbbqrn/pppppppp/8/8/8/8/PPPPPPPP/NRKBBQRN w GBgb - 0 1")
    assert Position.read("nrkbbqrn/pppppppp/8/8/8/8/PPPPPPPP/NRKBBQRN w GBgb - 0 1", chess960=True).board.chess960


@pytest.mark.parametrize("keep", [None, 8])
@given(games())
def test_repetitions_match_python_chess(keep: int | None, board: chess.Board) -> None:
    line = PlayedGame.of(board, keep)
    replayed = board.root()
    for ply in range(line.plies + 1):
        if ply:
            replayed.push(board.move_stack[ply - 1])
        count = line.occurrences(ply, SamePosition.BY_LAWS)
        assert replayed.is_repetition(count)
        assert not replayed.is_repetition(count + 1)
    for ply in range(max(0, line.plies - 7), line.plies + 1):
        along = Position.along(line, ply)
        alone = Position.read(moves=[move.uci() for move in board.move_stack[:ply]])
        if ply == line.plies:
            assert (alone.fen, alone.turn) == (board.fen(en_passant="fen"), "white" if board.turn else "black")
        assert along.fen == alone.fen
        assert along.occurrences() == alone.occurrences()
        if keep is None:
            assert along.history() == alone.history()
        if ply and (keep is None or ply == line.plies):
            after = Position.along(line, ply - 1).after(board.move_stack[ply - 1])
            assert after.fen == alone.fen
            (newest, *older), (expected, *others) = after.history(5), alone.history(5)
            assert older == others
            assert newest[:2] == expected[:2]
            if expected.earlier is None or ply - expected.earlier < 5:
                assert newest == expected


def test_positions_share_their_game() -> None:
    """Each used to hold a copy of all moves before it: 64 games of 1,024 plies took 6.6 GB."""
    plies = ["g1f3", "g8f6", "f3g1", "f6g8"] * 256

    tracemalloc.start()
    sizes = []
    for count in (128, 1024):
        before = tracemalloc.get_traced_memory()[0]
        result = list(read_games(StringIO(" ".join(plies[:count]))))
        sizes.append(tracemalloc.get_traced_memory()[0] - before)
        del result
    tracemalloc.stop()
    assert sizes[1] < 10 * sizes[0]
