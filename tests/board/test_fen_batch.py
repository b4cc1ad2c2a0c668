"""What a batch would lose: every FEN of it read, or refused, exactly as it is alone, by python-chess."""

from __future__ import annotations

import random
from collections.abc import Sequence

import chess
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from movemask.board.boards import Boards
from movemask.board.fen_batch import plain_boards
from movemask.board.position import Position, boards_of
from movemask.errors import MovemaskError
from tests.board.test_legality import played
from tests.ground_truth import perft, tricky

START = chess.STARTING_FEN
USUAL = [START, "r1bqkbnr/pppp1ppp/2n5/1B2p3/4P3/5N2/PPPP1PPP/RNBQK2R b KQkq - 3 3", "8/8/8/8/8/4k3/4p3/4K3 b - - 0 1"]


def alone(fen: str) -> Position | MovemaskError:
    try:
        return Position.read(fen)
    except MovemaskError as error:
        return error


def same(fens: Sequence[str]) -> int:
    """Holds a batch to what each FEN is alone; how many were read without python-chess."""
    boards, places = plain_boards(fens)
    together = Position.read_all(fens)
    for fen, found in zip(fens, together, strict=True):
        expected = alone(fen)
        assert type(found) is type(expected), fen
        if isinstance(found, Position) and isinstance(expected, Position):
            assert (found.fen, found.black, found.turn) == (expected.fen, expected.black, expected.turn)
            assert found.board == expected.board
        else:
            assert str(found) == str(expected)
    read = [place for place, found in enumerate(together) if isinstance(found, Position)]
    assert set(places) <= set(read)
    expected_boards = Boards.of([chess.Board(fens[place]) for place in places])
    for one, other in ((boards, expected_boards), (boards_of([together[place] for place in places]), boards)):  # type: ignore[misc]
        np.testing.assert_array_equal(one.bits, other.bits)
        np.testing.assert_array_equal(one.black, other.black)
    return len(places)


def test_every_position_of_the_suites_and_most_without_python_chess() -> None:
    fens = [row.fen for row in perft("standard")] + [fen for fen, _, _ in tricky()]
    assert same(fens) > 0.8 * len(fens)
    same([row.fen for row in perft("chess960")])


def test_games_whole_and_broken() -> None:
    rng = random.Random(7)
    fens = [board.fen(en_passant=rng.choice(("fen", "legal"))) for board in played(rng, 3000)]
    assert same(fens) > 0.95 * len(fens)
    broken = []
    for fen in fens[:1500]:  # a letter gone, doubled or exchanged, or the other side to move
        place = rng.randrange(len(fen))
        change = rng.choice(("", fen[place] * 2, rng.choice("12345678PNBRQKpnbrqk/ -wb")))
        broken.append(rng.choice((fen[:place] + change + fen[place + 1 :], fen.replace(" w ", " b "))))
    same(broken)


def test_one_that_is_wrong_changes_nothing_about_the_others() -> None:
    fens = [*USUAL * 5]
    for wrong in (
        "",
        "x",
        START.replace("/8/", "/9/"),
        START.replace("pppppppp", "ppppppp"),
        START + " ",
        "\u00e4" * 30,
    ):
        for place in (0, 7, 15):
            mixed = [*fens[:place], wrong, *fens[place:]]
            assert same(mixed) == 15
    assert same(["x"] * 9) == 0
    assert Position.read_all([]) == []


@pytest.mark.parametrize(
    "fen",
    [
        "4k3/8/8/8/8/8/8/4K2R w KQ - 0 1",  # a right without a rook
        "4k3/8/8/8/8/8/8/3K3R w K - 0 1",  # without the king at home
        "r3k2r/8/8/8/8/8/8/R3K2R w Kk - 0 1",
        "4k3/8/8/8/8/8/8/4K3 w - e6 0 1",  # nothing was pushed
        "4k3/4p3/8/4p3/8/8/8/4K3 w - e6 0 1",  # nor from there
        "4k3/8/8/4p3/8/8/8/4K3 w - e6 0 1",
        "4k3/8/8/4p3/8/8/8/4K3 b - e6 0 1",
        "4k3/8/8/8/4P3/8/8/4K3 b - e3 0 1",
        "4k3/8/8/4pP2/8/8/8/K3r3 w - e6 0 2",  # a check that the push cannot have given
        "4k3/8/8/4p3/3K4/8/8/8 w - e6 0 2",  # one that it has
        "4k3/8/8/8/8/8/8/R3K3 b - - 0 1",
        "R3k3/8/8/8/8/8/8/4K3 w - - 0 1",  # the side that moved stands in check
        "3k4/3K4/8/8/8/8/8/8 w - - 0 1",
        "4k3/8/8/8/7b/4r3/8/4K3 w - - 0 1",  # two checks
        "4k3/8/8/8/8/3n1n2/8/4K3 w - - 0 1",
        "4k3/8/4r3/8/4r3/8/8/4K3 w - - 0 1",
        "4k2P/8/8/8/8/8/8/4K3 w - - 0 1",
        "4k3/pppppppp/p7/8/8/8/8/4K3 w - - 0 1",  # nine pawns
        "4k3/8/8/8/QQQQQQQQ/QQQQQQQQ/8/4K3 w - - 0 1",  # seventeen pieces
        "4k3/8/8/8/8/8/8/8 w - - 0 1",
        "4k3/8/8/8/8/8/8/2K1K3 w - - 0 1",
        f"{START[:-3]}99999 99999",
        f"{START[:-3]}00 1",
        f"{START[:-3]}0 0",
        START.replace("KQkq", "QKqk"),
        START.replace("KQkq", "HAha"),
    ],
)
def test_by_name(fen: str) -> None:
    same([fen, *USUAL * 3])


PIECES = st.dictionaries(st.sampled_from(chess.SQUARES), st.sampled_from("PNBRQKpnbrqk"), max_size=12)


@st.composite
def placed(draw: st.DrawFn) -> str:
    """Some pieces, kings nearly always one of each, and fields that fit or do not."""
    board = chess.Board(None)
    for square, symbol in draw(PIECES).items():
        board.set_piece_at(square, chess.Piece.from_symbol(symbol))
    for symbol, home in (("K", chess.E1), ("k", chess.E8)):
        square = draw(st.one_of(st.just(home), st.sampled_from(chess.SQUARES)))
        board.set_piece_at(square, chess.Piece.from_symbol(symbol))
    rights = draw(st.sampled_from(["-", "-", "K", "Q", "KQ", "k", "q", "kq", "KQkq", "Kq", "qk"]))
    target = draw(st.sampled_from(["-", "-", "-", *(chess.square_name(s) for s in chess.SQUARES if s // 8 in (2, 5))]))
    return f"{board.board_fen()} {draw(st.sampled_from('wb'))} {rights} {target} {draw(st.integers(0, 150))} 7"


@settings(max_examples=200, deadline=None)
@given(st.lists(placed(), min_size=8, max_size=24))
def test_any_pieces(fens: list[str]) -> None:
    same(fens)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.one_of(st.sampled_from(USUAL), st.text(max_size=60)), min_size=8, max_size=12))
@example([" ", *USUAL * 3])
def test_any_texts(fens: list[str]) -> None:
    same(fens)
