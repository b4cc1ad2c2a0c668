"""What a reader of an evaluated game would lose: what moves cost beside how human they are."""

from __future__ import annotations

import io
import math
import os
import re
import shlex
import shutil
import sys
from pathlib import Path
from typing import Any

import chess.engine
import chess.pgn
import pytest
from fastapi.testclient import TestClient

from movemask.games import annotation
from tests.conftest import ROOT
from tests.processes import environment, run
from tests.server.asking import asked

SAMPLE = (ROOT / "tests" / "data" / "evaluated.pgn").read_text()

#: Légal's trap; the evaluations are made up, but for the mate.
LEGAL = """[WhiteElo "1000"]
[BlackElo "1000"]

1. e4 {[%eval 0.3]} e5 {[%eval 0.3]} 2. Nf3 {[%eval 0.3]} d6 {[%eval 0.4]} 3. Bc4 {[%eval 0.4]} Bg4 {[%eval 0.4]}
4. Nc3 {[%eval 0.5]} g6 {[%eval 0.6]} 5. Nxe5 {[%eval 0.6]} Bxd1 {[%eval #2]} 6. Bxf7+ {[%eval #1]} Ke7 {[%eval #1]}
7. Nd5# 1-0"""


def judged(shipped: TestClient, pgn: str) -> list[dict[str, Any]]:
    moves: list[dict[str, Any]] = asked(shipped, "/v1/games", pgn=pgn)["games"][0]["moves"]
    return moves


def test_a_moves_loss_is_by_lichess_formula_and_its_marks_by_the_thresholds(shipped: TestClient) -> None:
    moves = judged(shipped, SAMPLE)
    game = chess.pgn.read_game(io.StringIO(SAMPLE))
    assert game is not None
    scores = [node.eval() for node in game.mainline()]
    assert moves[0]["source"] == "network"  # the position before it has no evaluation
    for before, after, move in zip(scores, scores[1:], moves[1:], strict=False):
        assert before is not None
        assert after is not None
        # https://lichess.org/page/accuracy: win % = 50 + 50 * (2 / (1 + exp(-0.00368208 * centipawns)) - 1)
        win = [1 / (1 + math.exp(-0.00368208 * (one.white().score() or 0))) for one in (before, after)]
        fall = win[0] - win[1] if move["turn"] == "white" else win[1] - win[0]
        assert move["lost"] == pytest.approx(max(0, fall), abs=0.001)
        assert move["source"] == "evaluations"
        assert move.get("mark") == ("blunder" if move["lost"] >= 0.2 else "mistake" if move["lost"] >= 0.1 else None)
        assert ("by_rating" in move) == (move["lost"] >= 0.1)


def test_a_mistake_that_most_people_make_is_both(shipped: TestClient) -> None:
    trap = judged(shipped, LEGAL)[9]
    assert (trap["san"], trap["mark"]) == ("Bxd1", "blunder")
    assert trap["probability"] > 0.5
    assert [point["rating"] for point in trap["by_rating"]] == [800, 1200, 1600, 2000, 2400]
    sweep = asked(
        shipped, "/v1/policy/sweep", moves=[move["uci"] for move in judged(shipped, LEGAL)[:9]], ratings=[800]
    )
    (taken,) = (move for move in sweep["moves"] if move["uci"] == trap["uci"])
    assert trap["by_rating"][0]["probability"] == pytest.approx(taken["probabilities"][0], abs=1e-9)
    assert judged(shipped, LEGAL)[12]["lost"] == 0  # mate needs no evaluation


def test_an_annotated_game_tells_it_and_can_be_annotated_again(shipped: TestClient) -> None:
    def annotated(pgn: str) -> str:
        return shipped.post("/v1/games", json={"pgn": pgn}, headers={"Accept": "application/x-chess-pgn"}).text

    text = annotated(LEGAL)
    assert "? loses 10 points or more of 100, ?? 20" in " ".join(text.split())
    game = chess.pgn.read_game(io.StringIO(text))
    assert game is not None
    comment = list(game.mainline())[9].comment
    assert "[%eval #2]" in comment
    assert "; blunder: loses " in comment
    assert "5... Bxd1 $4 " in " ".join(text.split())
    assert comment.count(" % at ") == 5
    assert annotated(text) == text


STOCKFISH = shutil.which("stockfish", path=os.pathsep.join([os.environ.get("PATH", ""), "/usr/games"]))
needs_stockfish = pytest.mark.skipif(
    STOCKFISH is None, reason="Stockfish is not installed (Debian: apt-get install stockfish)"
)

#: Without evaluations, and with what must stay: a comment, a clock time, a variation, an evaluation of somebody's.
BARE = re.sub(r"\[%eval [^]]*\]", "", LEGAL).replace("{}", "")
MIXED = BARE.replace("1. e4", "1. e4 {[%eval 0.77] [%clk 0:05:00] best by test}").replace("d6", "d6 (2... Nc6 {usual})")

#: An engine that is always there: this project's own.
OURS = f"{shlex.quote(sys.executable)} -m movemask uci"


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PYTHONPATH", environment()["PYTHONPATH"])
    path = tmp_path / "games.pgn"
    path.write_text(f"{MIXED}\n\n{BARE}\n")
    return path


def read(text: str) -> list[chess.pgn.Game]:
    stream = io.StringIO(text)
    return list(iter(lambda: chess.pgn.read_game(stream), None))


@needs_stockfish
def test_an_engine_writes_the_evaluations_that_are_missing_and_those_alone(file: Path) -> None:
    assert STOCKFISH
    text = run("annotate", file, "--engine", STOCKFISH, "--nodes", "2000").stdout
    mixed, bare = read(text)
    first = mixed.next()
    assert first is not None
    assert first.comment.startswith("[%eval 0.77] [%clk 0:05:00] best by test P ")
    (variation,) = mixed.variations[0].variations[0].variations[0].variations[1:]
    assert (variation.comment, variation.eval()) == ("usual", None)
    with chess.engine.SimpleEngine.popen_uci(STOCKFISH) as engine:
        for game in (mixed, bare):
            for node in [game, *game.mainline()]:
                if node is first:
                    continue
                if node.board().is_game_over():
                    assert node.eval() is None
                    continue
                score = engine.analyse(node.board(), chess.engine.Limit(nodes=2000), game=game)["score"]
                assert node.eval() == score
    traps = [moves for moves in (list(game.mainline()) for game in (mixed, bare)) if "; blunder: " in moves[9].comment]
    assert len(traps) == 2  # 5... Bxd1
    assert all("5...Bxd1 loses " in " ".join(game.comment.split()) for game in (mixed, bare))
    (file.parent / "once.pgn").write_text(text)
    assert run("annotate", file.parent / "once.pgn").stdout == text
    assert run("annotate", file.parent / "once.pgn", "--engine", "nowhere").exit_code == 1


@needs_stockfish
def test_an_engine_evaluates_chess960_and_leaves_what_it_cannot_play_through(tmp_path: Path) -> None:
    fen = "bqnb1rkr/pp3ppp/3ppn2/2p5/5P2/P2P4/NPP1P1PP/BQ1BNRKR w HFhf - 2 9"
    other = f'[Variant "Chess960"]\n[FEN "{fen}"]\n[SetUp "1"]\n\n1. Nf3 d5 2. e3 *'
    (tmp_path / "games.pgn").write_text(f"1. e4 e5 2. Ke3 {{kept}} *\n\n{other}\n")
    result = run("annotate", tmp_path / "games.pgn", "--engine", STOCKFISH, "--nodes", "500")
    assert f"left as it is: {tmp_path / 'games.pgn'}: game 1: illegal san: 'Ke3'" in result.stderr
    assert "{kept}" in result.stdout
    played = read(result.stdout)[1]
    assert all(node.eval() is not None for node in [played, *played.mainline()])


@pytest.mark.parametrize(
    ("command", "why"),
    [
        ("/nowhere/stockfish", "directory: '/nowhere/stockfish'; install it, or give its path"),
        ("'", "No closing quotation"),
        (str(ROOT), "Permission denied: "),
        (f"{sys.executable} -c pass", "at its start: engine process died unexpectedly (exit code: 0)"),
        (f"{sys.executable} -c 'while True: input()'", "no `uciok` in 2 seconds, so it is not a UCI engine"),
    ],
    ids=["no such file", "half a quotation", "a folder", "a program that ends", "a program that is silent"],
)
def test_what_is_no_uci_engine_is_told_in_one_line_and_costs_nothing(
    command: str, why: str, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(annotation, "_STARTS_WITHIN", 2)
    out = file.parent / "out.pgn"
    out.write_text("of another day")
    result = run("annotate", file, "--out", out, "--engine", command)
    assert (result.exit_code, result.stdout) == (1, "")
    (line,) = result.stderr.splitlines()
    assert line.startswith(f"Error: --engine {command}: ")
    assert why in line
    assert out.read_text() == "of another day"
    assert file.read_text() == f"{MIXED}\n\n{BARE}\n"
    assert sorted(found.name for found in file.parent.iterdir() if found.is_file()) == [file.name, "out.pgn"]


def test_an_engine_that_dies_is_told_with_the_position_and_the_games_before_it_are_kept(file: Path) -> None:
    """Its input ends in the second game."""
    lines = 3 * (1 + len(list(read(MIXED)[0].mainline())))  # at most three for each position: isready, position, go
    dying = f"sh -c 'sed -u {lines}q | {OURS}'"
    out = file.parent / "out.pgn"
    out.write_text("of another day")
    result = run("annotate", file, "--out", out, "--engine", dying, "--nodes", "1")
    assert result.exit_code == 1
    (line,) = result.stderr.splitlines()
    found = re.search(
        r"at '(.*)': engine process died unexpectedly \(exit code: \d+\); the finished games are in (.*)$", line
    )
    assert found, line
    assert found[1] in [node.board().fen() for node in read(BARE)[0].mainline()]
    assert out.read_text() == "of another day"
    (kept,) = read(Path(found[2]).read_text())
    assert all(node.eval() is not None for node in list(kept.mainline())[:-1])
