"""Names of openings."""

from __future__ import annotations

import io
from pathlib import Path

import chess
import chess.pgn
import pytest

from movemask.board.openings import opening_of
from movemask.board.position import PlayedGame
from tests.conftest import ROOT
from tests.parts import part_of

#: Rows of lichess's list: all of them where it is at hand.
LISTS = [ROOT / "tests" / "data", ROOT.parent / "shared" / "openings"]


def played(moves: str) -> chess.Board:
    game = chess.pgn.read_game(io.StringIO(moves))
    assert game is not None
    assert not game.errors
    return game.end().board()


def named(board: chess.Board) -> tuple[str, str] | None:
    opening = opening_of(PlayedGame.of(board))
    return (opening.eco, opening.name) if opening else None


@pytest.mark.parametrize("folder", part_of(LISTS, 2), ids=["one row of twenty", "every row"])
def test_opening_of_every_listed_line(folder: Path) -> None:
    if not folder.exists():
        pytest.skip("lichess's list: ../shared/openings is not here")
    rows = [row for file in sorted(folder.glob("*.tsv")) for row in file.read_text().splitlines()[1:]]
    assert len(rows) > 100
    for row in rows:
        eco, name, moves = row.split("\t")
        assert named(played(moves)) == (eco, name)


def test_opening_by_last_named_position() -> None:
    nimzo = ("E20", "Nimzo-Indian Defense")
    assert named(played("1. d4 Nf6 2. c4 e6 3. Nc3 Bb4")) == nimzo
    assert named(played("1. c4 e6 2. Nc3 Bb4 3. d4 Nf6")) == nimzo
    assert named(played("1. c4 e6 2. Nc3 Bb4 3. d4 Nf6 4. h4 h5 5. a4 a5 6. b3 b6")) == nimzo
    assert named(played("1. Nf3 Nf6 2. Ng1 Ng8 3. e4")) == ("B00", "King's Pawn Game")


@pytest.mark.parametrize(
    "board",
    [
        chess.Board(),
        chess.Board(chess960=True),
        chess.Board("rnbqkbnr/pppppppp/8/8/8/8/PPPPPPPP/RNBQKB1R w KQkq - 0 1"),
    ],
    ids=["no move", "Chess960", "from a FEN"],
)
def test_no_opening(board: chess.Board) -> None:
    if board.chess960 or board != chess.Board():
        board.push_san("e4")
    assert opening_of(PlayedGame.of(board)) is None
