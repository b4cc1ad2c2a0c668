"""Evaluations in a PGN's comments: spellings, ChessBase's profiles, and those that cannot be read."""

from __future__ import annotations

import chess
import pytest
from chess.engine import Cp, Mate, PovScore, Score

from movemask.board.evaluations import evaluation_of, unreadable
from movemask.board.pgn import Game, expected_score, read_games


def game_of(pgn: str) -> Game:
    (game,) = read_games(pgn)
    assert isinstance(game, Game)
    return game


@pytest.mark.parametrize(
    ("text", "score"),
    [
        *[(text, Mate(-5)) for text in ("#-5", "-#5", "-M5", "M-5", "-m5", "mate -5", "#-5,20", "\u2212M5")],
        *[(text, Mate(5)) for text in ("#5", "#+5", "+#5", "M5", "+M5", "M+5", "#5,20")],
        *[(text, Cp(-50)) for text in ("-0.5", "-0,5", "-.5", "-0.50,18", "-0,50,18", "-0.5/18", "\u22120.50")],
        *[(text, Cp(300)) for text in ("3", "3.", "+3.0", "3,00", "3.001")],
    ],
)
def test_evaluation_spellings(text: str, score: Score) -> None:
    comment = f"good [%clk 0:01] [%eval {text}]"
    assert evaluation_of(comment, chess.BLACK) == PovScore(score, chess.WHITE)
    assert not unreadable(comment)


@pytest.mark.parametrize("turn", chess.COLORS)
def test_evaluation_mate_in_zero_is_against_the_side_to_move(turn: chess.Color) -> None:
    evaluation = evaluation_of("[%eval #0]", turn)
    assert evaluation is not None
    assert evaluation.pov(turn) == Mate(0)


def test_first_readable_evaluation_counts() -> None:
    assert evaluation_of("[%eval x] [%eval 1] [%eval 2]", True) == PovScore(Cp(100), chess.WHITE)


def test_unreadable_evaluations_are_named() -> None:
    long = "x" * 100
    game = game_of(
        f"{{[%eval {long}] [%evp 0,3,1]}} 1. e4 {{[%eval 0.3]}} e5 {{[%eval abc]}} 2. Nc3 {{[%eval\n+-1]}} *"
    )
    assert game.notes == (
        f"the evaluation 'eval {'x' * 35}…' before the first move cannot be read",
        "the evaluation 'evp 0,3,1' before the first move cannot be read",
        "the evaluation 'eval abc' after 1...e5 cannot be read",
        "the evaluation 'eval +-1' after 2. Nc3 cannot be read",
    )
    many = game_of("1. e4 {" + "[%eval x]" * 9 + "} *")
    assert len(many.notes) == 6
    assert many.notes[-1] == "4 more evaluations cannot be read"


def test_profile_evaluates_each_position() -> None:
    """ChessBase writes the graph of a game that it has analysed before the first move."""
    game = game_of("{[%evp 0,4,19,31,-25,\n44,-29990]} 1. e4 e5 2. Nc3 {[%eval 0.5]} Nc6 *")
    expected = [expected_score(PovScore(Cp(cp), chess.WHITE)) for cp in (19, 31, -25, 50, -29990)]
    assert game.scores == tuple(expected)
    assert not game.notes


@pytest.mark.parametrize("profile", ["", "0,3,1", "1,0", "x,y", "0,0,1000000", "0,0," + "9" * 5000, "-1,0,1,2"])
def test_faulty_profile_is_named(profile: str) -> None:
    game = game_of(f"{{[%evp {profile}]}} 1. e4 *")
    assert game.scores == (None, None)
    assert "'evp" in game.notes[0]
