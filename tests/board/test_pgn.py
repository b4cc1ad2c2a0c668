"""PGN with faults: errors per game, limits and ratings."""

from __future__ import annotations

from io import StringIO

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from movemask.board.pgn import Game, read_games, read_trees
from movemask.board.position import Elo
from movemask.errors import InvalidPgn, MovemaskError

GOOD = "1. e4 e5 2. Nf3 *"
HEADERS = '[Event "x"]\n[White "y"]\n\n'
FEN_HEADER = '[SetUp "1"]\n[FEN "{}"]\n\n'


def read(pgn: str) -> list[Game | MovemaskError]:
    return list(read_games(StringIO(pgn)))


def shapes(pgn: str) -> list[int]:
    """Plies of each game, -1 in the place of one that is wrong."""
    games = read(pgn)
    assert all(isinstance(game, Game | InvalidPgn) for game in games)
    return [len(game.plies) if isinstance(game, Game) else -1 for game in games]


BROKEN = {
    "glyph of 4,301 digits": "1. e4 $" + "1" * 4301 + " e5 *",
    "the same before a comment with blank lines": "1. e4 $" + "1" * 4301 + " {a\n\n[b]\n\nc} e5 *",
    "the same on the second line": "1. e4\n$" + "1" * 4301 + " e5\n2. Nf3 *",
    "illegal move": "1. e4 e5 2. Ke3 *",
}


@given(st.lists(st.sampled_from([GOOD, *BROKEN.values()]), min_size=1, max_size=6), st.sampled_from(["", HEADERS]))
@example([GOOD, *BROKEN.values(), GOOD], "")
@example([GOOD, "*", GOOD], HEADERS)  # no move
def test_unreadable_game_leaves_the_others(games: list[str], headers: str) -> None:
    text = "\n\n".join(headers + game for game in games)
    assert shapes(text) == [3 if game == GOOD else -1 for game in games]
    errors = [str(error) for error in read(text) if not isinstance(error, Game)]
    broken = [number for number, game in enumerate(games, 1) if game != GOOD]
    assert [error.split(":")[1] for error in errors] == [f" game {number}" for number in broken]
    assert all(len(error) < 400 for error in errors)


@pytest.mark.parametrize(
    ("text", "line", "word"),
    [
        ("1. d4 d5 2. Sf3 Sf6 *", 1, "Sf3"),  # German; python-chess alone plays 2. f3 f6
        ("1. \u2658f3 \u265ef6 *", 1, "\u2658f3"),
        ("1. \u041af3 *", 1, "\u041af3"),  # Cyrillic
        ("1. e4 Nf9 2. Nf6 Nc3 *", 1, "Nf9"),
        ("1. e4\x00 e5 *", 1, "e4\\x00"),
        ("1. e4 {a\nb} e5 (1... Sf6) 2. Nf3 *", 2, "Sf6"),
        ("1. d4 d5 2. Dd3 *", 1, "Dd3"),  # German for Qd3
        ('[White "x"]\n\n% 1. Sf3\n1. e4\n\n; Sf6\n1... Sf6 *', 7, "Sf6"),
        ('[White "x"]\nSpielort: Ulm\n[Black "y"]\n\n1. e4 *', 2, "Spielort:"),
        ('[White "x"]\n\nnothing', 3, "nothing"),
    ],
)
def test_word_that_is_no_move_is_an_error(text: str, line: int, word: str) -> None:
    (error,) = read(text)
    assert str(error) == f"pgn: game 1: line {line}: '{word}' is neither a tag nor a move in SAN"


@pytest.mark.parametrize(
    "text",
    [
        '\ufeff[White "Sf3"]\n\n1. e4 ; Sf3\n% Sf3\n e5 2. Nf3 *',
        "1.e4 {Sf3 {\n\nSf6} e5 2.Nf3! $14 1/2",
        "1. e4 N d5 2. exd5 e.p. +/- *",
        "1. e4 D e5 (D) 2. Nf3 \u00bd-\u00bd",
    ],
)
def test_comments_and_marks_are_skipped(text: str) -> None:
    assert shapes(text) == [3]


def test_spellings_of_a_draw() -> None:
    for end, result in (("\u00bd-\u00bd", "1/2-1/2"), ("{\u00bd-\u00bd} *", "*")):
        (game,) = read(f"1. e4 {end}")
        assert isinstance(game, Game)
        assert game.headers["Result"] == result


@pytest.mark.parametrize(
    ("game", "begin"),
    [
        ("1. e4 { the best move e5 2. Nf3 *", "{ the best move e5 2. Nf3 *"),
        ("1. e4 {a} {b} {c\nd} e5 {e\n2. Nf3 *", "{e"),
        ("1. e4 {a\nb\n2. Nf3 *", "{a"),
        ("1. e4 ;{\n {" + "x" * 9_000, "{" + "x" * 39),
        ("{", "{"),
    ],
)
def test_unclosed_comment_is_an_error(game: str, begin: str) -> None:
    good, bad = read(f"{GOOD}\n\n{game}\n\n{GOOD}")
    assert isinstance(good, Game)
    assert str(bad) == f"pgn: game 2: the comment {begin!r} is not closed, and takes all that follows"


@given(st.text('e4N$1{}();%[]\n *"', max_size=60))
def test_any_text_gives_games_or_errors(text: str) -> None:
    assert len(shapes(text)) >= 1


@pytest.mark.parametrize(
    ("fen", "words"),
    [
        ("4k3/8/8/8/8/8/8/4K2R w K - 0 1" + "1" * 4300, "at most 200 are allowed"),
        ("4k3/8/8/8/8/8/8/4K2R w K - 0 " + "1" * 30, "the move number is"),
        ("4k3/8/8/8/8/8/8/4K2R w K - 1000001 1", "the half-move clock is"),
        ("4k3/8/8/8/8/8/8/4K2R w K - 0 1" + " " * 12_600, "at most 200 are allowed"),
    ],
)
def test_fen_tag_has_the_limits_of_fens(fen: str, words: str) -> None:
    games = read(FEN_HEADER.format(fen) + "1. Kd2 *\n\n" + HEADERS + GOOD)
    assert isinstance(games[0], InvalidPgn)
    assert words in str(games[0])
    assert len(str(games[0])) < 300
    assert isinstance(games[1], Game)


@pytest.mark.parametrize(
    "rating", ["0", "5", "99", "4001", "1500?", "²", "\u0661\u0665\u0660\u0660", "1500.5", "-1", "12345", ""]
)
def test_rating_tags(rating: str) -> None:
    for other, elo in (("1800", Elo(1800, 1800)), ("?", None)):
        (game,) = read(f'[WhiteElo "{rating}"]\n[BlackElo "{other}"]\n\n1. e4 *\n')
        assert isinstance(game, Game)
        assert game.plies[0].elo == elo


def test_long_line_reads_as_short_lines() -> None:
    """python-chess copies the rest of a line for each comment: lines are cut behind one, and mean the same."""
    filler = "{ " + "x" * 3000 + " } "
    for text, plies in (
        (f"1. e4 {filler * 2}e5 {filler}{filler}2. Nf3 *", 3),
        (f"1. e4 {filler * 2}\ne5 *", 2),
        (f"1. e4 {filler * 2}% e5 *", 2),
        (f"1. e4 {filler * 2}; 2. Nf6 *\ne5 *", 2),
        (f"1. e4 {filler * 3}[] e5 {filler * 2}\n\n", 2),
    ):
        assert shapes(text + "\n\n" + GOOD) == [plies, 3]


CASTLED = '[FEN "r3k2r/pppppppp/8/8/8/8/PPPPPPPP/1R2K2R w KQkq - 0 1"]\n\n'


@pytest.mark.parametrize(
    ("text", "moves", "notes"),
    [
        ("1. e4 e5 2. Ke3 Nc6 *", "e2e4 e7e5", ["'Ke3'"]),
        ("1. e4 (1. d4 d5) e5 2. Ke3 {no} (2. Nf3) Nc6 3. Nf3 *", "e2e4 e7e5", ["'Ke3'"]),
        ("1. e4 e5 2. -- Nc6 *", "e2e4 e7e5", ["'--' is a pass, which is not legal"]),
        ("1. e4 e5 2. Ke3 ) 2. Nf3 *", "e2e4 e7e5", ["'Ke3'"]),
        ("1. e4 e5 2. Nf3 *", "e2e4 e7e5 g1f3", []),
        (CASTLED + "1. O-O-O O-O-O *", "e1b1 e8a8", ["the game castles as in Chess960"]),
        (CASTLED + "1. a3 Ke4 2. Kd8 *", "a2a3", ["castling rights", "'Ke4'"]),
        ("1. e4 e5 2. Nf3 Nc6 3. Ke4 *", "e2e4 e7e5 g1f3 b8c6", ["the kings tell the result"]),
    ],
)
def test_partial_game_ends_at_an_illegal_move(text: str, moves: str, notes: list[str]) -> None:
    ((_, tree, game),) = read_trees(text, partial=True)
    assert tree is not None
    assert isinstance(game, Game)
    assert [ply.played.uci() for ply in game.plies] == moves.split()
    assert [note.startswith(words) for note, words in zip(game.notes, notes, strict=True)] == [True] * len(notes)


@pytest.mark.parametrize("text", ["1. Ke3 *", "1. e4 Nf9 *", "1. e4 $999 e5 *", "1. e4 e5 2. $999 Ke3 *"])
def test_partial_game_needs_a_move_and_no_other_fault(text: str) -> None:
    (error,) = read_games(text, partial=True)
    assert isinstance(error, InvalidPgn)
