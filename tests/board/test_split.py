"""Splitting a text into games, compared with python-chess."""

from __future__ import annotations

import io
import random
import re

import chess
import chess.pgn
import pytest
from hypothesis import given
from hypothesis import strategies as st

from movemask.board.pgn import Game, rating_of, read_games
from movemask.board.split import GameText, escaped, split
from movemask.errors import LimitExceeded
from tests.field import CASES

TEXTS = [case.text for case in CASES]


def parts(text: str) -> list[GameText]:
    return list(split(io.StringIO(text)))


def fault_at(line: int, part: GameText) -> str | None:
    """The part's fault, were the line that it names counted from another first line."""
    fault = part.fault or ""
    return re.sub(r"line (\d+)", lambda match: f"line {int(match[1]) - part.line + line}", fault) or None


def in_lf(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n")


def random_game(seed: int) -> chess.pgn.Game:
    """A game with tags, comments and variations, from a random number."""
    chance = random.Random(seed)
    game = chess.pgn.Game()
    for name in ("White", "Black", "WhiteElo", "Annotator"):
        game.headers[name] = escaped("".join(chance.choices('Ann "\\[]{};%1-0é', k=chance.randrange(12))))
    node: chess.pgn.GameNode = game
    for _ in range(chance.randrange(1, 30)):
        moves = list(node.board().legal_moves)
        if not moves:
            break
        other, move = chance.choice(moves), chance.choice(moves)
        parent, node = node, node.add_main_variation(move)
        if other != move and chance.random() < 0.2:
            parent.add_variation(other, comment=chance.choice(["", "1-0", '[White "x"]']))
        if chance.random() < 0.3:
            node.comment = chance.choice(['[%clk 0:01] [Event "x"]', "(", ";", "* 1. e4", '\n\n[White "no"]\n'])
    game.headers["Result"] = chance.choice(["1-0", "0-1", "1/2-1/2", "*"])
    return game


@pytest.mark.parametrize("between", ["\n\n", "\n", " ", "\r\n\r\n", "\n\n\n\n", '\n\n% 1. e4 [A "b"]\n', "\n---\n"])
def test_joined_games_match_python_chess(between: str) -> None:
    games = [random_game(seed) for seed in range(40)]
    result = parts(between.join(str(game) for game in games))
    texts = [part for part in result if part.role == "game"]
    assert len(texts) == len(games)
    for text, game in zip(texts, games, strict=True):
        assert {name: escaped(value) for name, value in text.tags.items()} == dict(game.headers)
        (read,) = read_games(text.text)
        assert isinstance(read, Game)
        assert [ply.played for ply in read.plies] == list(game.mainline_moves())


@given(st.text(alphabet='e4N1-0*$.[]{}();%" \n\r\\>`[AW"', max_size=80))
def test_parts_join_to_the_text(text: str) -> None:
    result = parts(text)
    assert "".join(part.text for part in result) in (in_lf(text), "")
    assert all(part.role == "game" for part in result if part.tags)
    assert [part.role for part in result].count("trailing") <= 1


@pytest.mark.parametrize("text", TEXTS)
def test_game_alone_is_the_same_game(text: str) -> None:
    """The page sends games one by one."""
    for part in parts(text):
        if part.role == "game":
            (again,) = parts(part.text)
            assert (again.tags, again.movetext, again.fault) == (part.tags, part.movetext, fault_at(1, part))


@given(st.text(alphabet='ab"\\[]{}1. ', max_size=20))
def test_escaped_tag_value_round_trips(value: str) -> None:
    (part,) = parts(f'[White "{escaped(value)}"] [Black "x"]\n\n1. e4 *')
    assert part.tags == {"White": value, "Black": "x"}


@given(st.text(max_size=8), st.sampled_from(["99", "100", "2882", "4000", "4001"]))
def test_impossible_ratings_are_unknown(text: str, number: str) -> None:
    for value in (text, number, f"{number}?", f"-{number}"):
        known = value.isascii() and value.isdigit() and 100 <= int(value) <= 4000
        assert rating_of(value) == (float(value) if known and len(value) < 5 else None)


def test_line_numbers_of_parts() -> None:
    text = '\n\n[White "Ann"]\n\n; x\n1. e4\nSf6 *\n\n\n\nRound 2\n[White\n"Cid"]\n\n\n1. d4 d5\n'
    first, between, second = parts(text)
    assert (first.line, first.fault) == (3, "line 7: 'Sf6' is neither a tag nor a move in SAN")
    assert first.movetext == ["\n { x }", " e4", " Sf6", " *"]
    assert (between.role, between.line) == ("outside", 11)
    assert between.fault == "line 11: 'Round' is neither a tag nor a move in SAN"
    assert (second.line, second.tags, second.movetext) == (12, {"White": "Cid"}, [" d4", " d5"])


@pytest.mark.parametrize(
    ("text", "outcome"),
    [
        # Headers without moves and result: the FEN of the first must not give the other's moves another board.
        ('[Event "A"]\n[FEN "4k3/8/8/8/8/8/4P3/4K3 w - - 0 1"]\n\n[Event "B"]\n\n1. e4 *\n', "a second header"),
        # Text after moves without a result might hide moves, such as those of another language.
        ('[White "Ann"]\n\n1. e4 e5\n\nWritten by MyTool\n', "line 5: 'Written' is neither a tag nor a move"),
        # A remark in brackets among the moves is no tag, and no new game.
        ("1. e4 [the best]\ne5 2. Nf3 *", "line 1: '[the best]' is neither a tag nor a move"),
        ("16... Rfb8 17. Rfe1 *", "there is no game in it: line 1: '16...' is neither a tag nor a move"),
        ("*", "there is no game in it"),
    ],
)
def test_doubtful_text_is_an_error(text: str, outcome: str) -> None:
    (result,) = read_games(text)
    assert outcome in str(result)


def test_lone_result_is_no_game() -> None:
    assert [part.role for part in parts("*\n\n1. e4 *\n\n*\n")] == ["game"]


def test_game_beyond_the_limit_raises() -> None:
    games = iter(['[White "x"]\n', "\n", "1. e4 {\n", *["x" * 99 + "\n"] * 100])
    with pytest.raises(LimitExceeded, match="a game of more than 0 MiB"):
        list(split(games, 5_000))
    assert len(list(games)) > 40  # no more was read than it took
