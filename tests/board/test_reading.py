"""Reading FENs and moves, compared with python-chess."""

from __future__ import annotations

import random
import re

import chess
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from movemask.board.fen import FEN_FIELDS, read_fen
from movemask.board.moves import Notation, read_move
from movemask.board.pgn import Game, read_games
from movemask.board.position import Position, is_as_written, status_names
from movemask.errors import IllegalMove, InvalidFen, InvalidPosition, MovemaskError
from tests.ground_truth import perft, played, tricky

START = chess.STARTING_FEN
USUAL = [START, "r1bqkbnr/pppp1ppp/2n5/1B2p3/4P3/5N2/PPPP1PPP/RNBQK2R b KQkq - 3 3", "8/8/8/8/8/4k3/4p3/4K3 b - - 0 1"]


#: Texts that python-chess sees as they are: six words without marks.
PLAIN = re.compile(r"[A-Za-z0-9/]+(?: [A-Za-z-]+){2} [A-Za-z-]\w*(?: \d+){2}", re.ASCII)


def same(fen: str, *, chess960: bool = False) -> bool:
    """Holds `Position.read` to python-chess; whether the FEN is of a valid position."""
    try:
        result: Position | MovemaskError = Position.read(fen, chess960=chess960)
    except MovemaskError as error:
        result = error
    words = None
    try:
        board = chess.Board(fen, chess960=chess960)
    except ValueError as error:
        words = f"fen: {error}"
    if words is not None and isinstance(result, Position):  # an EPD, or underscores
        assert result.board == chess.Board(read_fen(fen), chess960=chess960), fen
        return False
    if words is not None:
        assert isinstance(result, InvalidFen | InvalidPosition), fen
        if PLAIN.fullmatch(fen):
            assert str(result) == words
        return False
    if 0 < len(fen.split()) < len(FEN_FIELDS):  # python-chess takes "8/8/8/8/8/8/8/8" for a FEN
        assert isinstance(result, InvalidFen), fen
        assert str(result).startswith(f"fen: {fen!r} is cut short")
        return False
    if isinstance(result, InvalidPosition):
        assert status_names(board.status()) == result.statuses
        assert ", ".join(result.statuses) in str(result)
        return False
    assert isinstance(result, Position)
    assert board.status() == chess.STATUS_VALID
    assert result.board == board
    assert result.fen == board.fen(en_passant="fen")
    assert (result.chess960, result.has_history) == (chess960, False)
    if is_as_written(fen, result.board):
        assert result.fen == fen
    return True


def test_positions_of_the_suites() -> None:
    fens = [row.fen for row in perft("standard")] + [fen for fen, _, _ in tricky()]
    valid = [fen for fen in fens if same(fen)]
    assert len(valid) > 0.9 * len(fens)
    assert sum(is_as_written(fen, chess.Board(fen)) for fen in valid) > 0.9 * len(valid)
    assert all(same(row.fen, chess960=True) for row in perft("chess960"))


@pytest.mark.parametrize(
    "fen",
    [
        "",
        START.replace("/8/", "/9/"),
        START + " ",
        "4k3/8/8/8/8/8/8/4K2R w KQ - 0 1",  # a right without a rook
        "4k3/8/8/8/8/8/8/4K3 w Q - 0 1",  # a right that python-chess drops, for there is no rook at all
        "4k2r/8/8/8/8/8/8/4K3 w Qk - 0 1",
        "r3k2r/8/8/8/8/8/8/R3K2R w Kk - 0 1",
        "4k3/8/8/4p3/8/8/8/4K3 w - e6 0 1",
        "4k3/8/8/4p3/8/8/8/4K3 b - e6 0 1",
        "4k3/8/8/8/8/8/8/2K1K3 w - - 0 1",
        "4k3/8/8/8/8/8/8/4K3 w  - 0 1",  # no castling field, a space too many
        "4k3/8/8/8/8/8/8/4K3 w - -",
        "4k3/8/8/8/8/8/8/4K3 w -",
        f"{START[:-3]}99999 99999",
        f"{START[:-3]}00 1",
        f"{START[:-3]}0 0",
        START.replace("KQkq", "QKqk"),
        START.replace("KQkq", "HAha"),
        "4k3/8/8/8/8/8/8/RR2K1RR w KQ - 0 1",  # the outermost rooks
        "4k3/8/8/8/8/8/8/44 w - - 0 1",
        "4k3/8/8/8/8/8/8/4K2Q~ w - - 0 1",  # a promoted piece
    ],
)
def test_fens_match_python_chess(fen: str) -> None:
    same(fen)
    same(fen, chess960=True)


@pytest.mark.parametrize("clocks", ["P7 23", "N24", "K2 16", " a4 21"])
def test_damaged_clock_is_no_epd_operation(clocks: str) -> None:
    with pytest.raises(InvalidFen, match="invalid half-move clock"):
        Position.read(f"4k3/8/8/8/8/8/8/4K3 w - - {clocks}")
    assert Position.read('4k3/8/8/8/8/8/8/4K3 w - - c0 "P7"; hmvc 3;').board.halfmove_clock == 3


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
@given(placed())
def test_any_placement_reads_as_python_chess(fen: str) -> None:
    same(fen)


#: A letter gone or another.
BROKEN = st.builds(
    lambda fen, place, change: fen[: place % len(fen)] + change + fen[place % len(fen) + 1 :],
    st.sampled_from(USUAL),
    st.integers(0, 99),
    st.sampled_from(["", *"12345678PNBRQKpnbrqk/ -wb"]),
)


@settings(max_examples=200, deadline=None)
@given(st.one_of(BROKEN, st.text(max_size=60)), st.booleans())
@example(" ", False)
def test_any_text_reads_as_python_chess(fen: str, chess960: bool) -> None:
    same(fen, chess960=chess960)


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from(["fen", "legal", "xfen"]), st.booleans())
def test_fen_out_matches_python_chess(seed: int, en_passant: chess.EnPassantSpec, in_960: bool) -> None:
    rng = random.Random(seed)
    *_, board = played(rng, rng.randrange(1, 120), chess960=in_960)
    fen = board.fen(en_passant=en_passant, shredder=in_960 and seed % 2 == 0)
    position = Position.read(fen, chess960=in_960)
    assert position.fen == chess.Board(fen, chess960=in_960).fen(en_passant="fen")
    assert Position.read(position.fen, chess960=in_960).fen == position.fen
    if not in_960:
        assert position.fen == fen


def test_uci_and_san_name_the_same_moves() -> None:
    for fen, _, flags in tricky():
        if any(flag.startswith("python-chess") for flag in flags):
            continue
        board = chess.Board(fen)
        for move in board.legal_moves:
            assert read_move(board, move.uci()) == (move, Notation.UCI)
            assert read_move(board, board.san(move)) == (move, Notation.SAN)


def test_uci_in_capitals() -> None:
    board = chess.Board("4k3/P7/8/8/8/8/8/4K2R w K - 0 1")
    for text, uci in (("E1G1", "e1g1"), ("A7A8Q", "a7a8q"), ("H1H7", "h1h7")):
        assert read_move(board, text) == (chess.Move.from_uci(uci), Notation.UCI)
    bishops = chess.Board("4k3/8/8/B7/8/8/8/B3K3 w - - 0 1")
    assert read_move(bishops, "B1c3") == (chess.Move.from_uci("a1c3"), Notation.SAN)
    with pytest.raises(ValueError, match="is not legal"):
        read_move(board, "E1E3")


@pytest.mark.parametrize(
    "text",
    ["Nf3", "g1f3", "Nf3!", "Nf3?!", "Ng1f3", "N\u2013f3", "g1-f3", "Nf3+", "Z0", "--", "0000", "Nf4", "Nf9", "O-O"],
)
def test_moves_read_alike_in_lists_and_pgn(text: str) -> None:
    (game,) = read_games(f"1. {text} *")
    try:
        move, _ = read_move(chess.Board(), text)
    except ValueError:
        assert not isinstance(game, Game)
    else:
        assert isinstance(game, Game)
        assert [ply.played for ply in game.plies] == [move]


def test_notation_of_moves() -> None:
    mixed, uci = Position.read(moves=["e4", "e7e5", "Nf3"]), Position.read(moves=["e2e4", "e7e5", "g1f3"])
    assert (mixed.notation, uci.notation, Position.read().notation) == (Notation.MIXED, Notation.UCI, None)
    assert mixed.board == uci.board


@pytest.mark.parametrize(
    ("fen", "move", "words"),
    [
        ("4k3/8/8/8/8/8/8/R3K2R w - - 0 1", "O-O", "is not legal"),
        (chess.STARTING_FEN, "e2e5", "is not legal"),
        (chess.STARTING_FEN, "0000", "is a pass, which is not legal"),
        (chess.STARTING_FEN, "--", "is a pass, which is not legal"),
        ("4k3/8/8/8/8/8/4K3/R6R w - - 0 1", "Rd1", "is ambiguous"),
        ("4k3/8/8/8/8/8/4K3/R6R w - - 0 1", "Z0", "is a pass, which is not legal"),
        ("4k3/8/8/8/8/8/4K3/R6R w - - 0 1", "R@d1", "is not"),
        ("4k3/8/8/8/8/8/4K3/R6R w - - 0 1", "knight", "is not a move in UCI or SAN"),
    ],
)
def test_unreadable_move_is_named(fen: str, move: str, words: str) -> None:
    with pytest.raises(IllegalMove, match=rf"moves\[0\]: '{move}' {words}.* in '") as caught:
        Position.read(fen, [move])
    assert str(caught.value).endswith(f"in {fen!r}")


@pytest.mark.parametrize("mark", ["e.p.", " e.p.", "ep", " ep", "e.p.+", "e.p.!?"])
def test_en_passant_mark_is_ignored(mark: str) -> None:
    fen = "4k3/8/8/3pP3/8/8/8/4K3 w - d6 0 1"
    for move in ("exd6", "e5d6"):
        assert Position.read(fen, [move + mark]).fen == "4k3/8/3P4/8/8/8/8/4K3 b - - 0 1"
        with pytest.raises(InvalidFen, match="looks like moves, not like a FEN; send them as `moves`"):
            Position.read(f"1. {move}{mark}")
        with pytest.raises(InvalidFen, match="has moves behind the FEN; send them as `moves`"):
            Position.read(f"{fen} {move}{mark}")
    with pytest.raises(InvalidFen, match="has moves behind the FEN"):
        Position.read(f"{fen} moves e5d6{mark}")
    with pytest.raises(InvalidFen, match="looks like moves"):
        Position.read("startpos moves e2e4")
