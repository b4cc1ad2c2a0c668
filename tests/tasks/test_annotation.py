"""What a reader of an annotated game would lose: the game as it was, and figures that are the network's."""

from __future__ import annotations

import io
import re
from pathlib import Path

import chess
import chess.pgn
import pytest
from click.testing import CliRunner, Result
from fastapi.testclient import TestClient

from movemask.board.pgn import read_trees
from movemask.cli.main import main
from movemask.client.local import Network, load
from movemask.settings import shipped_models
from tests.conftest import Serve

GAMES = """[Event "Rated"]
[White "Ann"]
[Black "Bob"]
[WhiteElo "1500"]
[BlackElo "1600"]
[Result "1-0"]

{ A miniature } 1. e4 {[%clk 0:05:00] best by test} e5 2. Qh5 $6 Nc6 ( 2... g6? { weak } 3. Qxe5+ (3. Qf3 d6) 3... Qe7 )
3. Bc4 Nf6 $4 {[%eval #1]} 4. Qxf7# 1-0

[White "Bob"]
[Black "Ann"]

1. e4 e5 2. Ke3 *

[Event "960"]
[White "Ann"]
[Black "Cid"]
[Variant "Chess960"]
[FEN "bqnb1rkr/pp3ppp/3ppn2/2p5/5P2/P2P4/NPP1P1PP/BQ1BNRKR w HFhf - 2 9"]
[SetUp "1"]

1. Nf3 d5 2. e3 *
"""


COMMENT = re.compile(r"P ([\d.]+) % \((first choice|(\d+)\w\w of (\d+); (\S+) [\d.]+ %)\), surprise ([\d.]+)")


@pytest.fixture(scope="module")
def network() -> Network:
    return load()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "games.pgn"
    path.write_text(GAMES)
    return path


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, ["annotate", *map(str, arguments)], catch_exceptions=False)


def games_of(text: str) -> list[chess.pgn.Game]:
    stream, found = io.StringIO(text), []
    while (game := chess.pgn.read_game(stream)) is not None:
        found.append(game)
    return found


def moves_of(node: chess.pgn.GameNode) -> list[object]:
    """A game's moves with all its variations."""
    return [(child.move, moves_of(child)) for child in node.variations]


def test_the_games_are_what_they_were_with_comments(file: Path, network: Network) -> None:
    result = run(file)
    assert result.exit_code == 0, result.output
    before, after = games_of(GAMES), games_of(result.stdout)
    assert len(after) == 3
    for one, other in zip(before, after, strict=True):
        assert dict(other.headers) == dict(one.headers)
        assert moves_of(other) == moves_of(one)
    first = after[0]
    assert first.comment.startswith("A miniature movemask: ")
    played = first.next()
    assert played is not None
    assert played.comment.startswith("[%clk 0:05:00] best by test P ")
    assert played.clock() == 300
    mate = first.end()
    assert mate.parent is not None
    assert mate.parent.eval() == chess.engine.PovScore(chess.engine.Mate(1), chess.WHITE)  # theirs, kept
    assert result.stdout.count("[%eval") == 1
    variation = first.variations[0].variations[0].variations[0].variations[1]
    assert (variation.san(), variation.comment, variation.nags) == ("g6", "weak", {chess.pgn.NAG_MISTAKE})
    for node in (one for game in (after[0], after[2]) for one in game.mainline()):
        board, elo = node.parent.board(), None
        if node.game() is first:
            elo = (1500.0, 1600.0) if board.turn else (1600.0, 1500.0)
        policy = network.policy(board, elo=elo)
        found = COMMENT.search(node.comment)
        assert found
        rank = list(policy.probabilities).index(node.move) + 1
        assert float(found[1]) == pytest.approx(100 * policy[node.move], rel=0.05, abs=0.05)
        assert (found[2] == "first choice") == (rank == 1)
        if rank > 1:
            assert policy.best is not None
            assert (int(found[3]), int(found[4]), found[5]) == (rank, board.legal_moves.count(), board.san(policy.best))


def test_a_game_that_cannot_be_played_through_is_kept_with_the_reason(file: Path) -> None:
    result = run(file)
    assert "left as it is: pgn: game 2: illegal san: 'Ke3'" in result.stderr
    broken = games_of(result.stdout)[1]
    assert broken.comment.startswith("movemask: pgn: game 2: illegal san: 'Ke3'")
    assert [move.uci() for move in broken.mainline_moves()] == ["e2e4", "e7e5"]


def test_annotating_again_changes_nothing(file: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.pgn"
    first, _, last = GAMES.split("\n\n[")
    file.write_text(f"{first}\n\n[{last}")
    assert run(file, "--out", out).exit_code == 0
    once = out.read_text()
    assert run(out).stdout == once
    assert run(file, "--elo", "900", "2400").stdout != once


def test_players_are_summed_up_over_all_games(file: Path) -> None:
    rows = run(file).stderr.splitlines()
    table = {line.split()[0]: line.split()[1] for line in rows if line.startswith(("Ann", "Bob", "Cid"))}
    assert table == {"Ann": "6", "Bob": "3", "Cid": "1"}


def test_glyphs_follow_their_thresholds_and_leave_those_that_are_there(file: Path) -> None:
    everything = games_of(run(file, "--find", "1", "--make", "1", "--fall", "0").stdout)[0]
    nothing = games_of(run(file, "--find", "0", "--make", "0").stdout)[0]
    assert [node.nags for node in nothing.mainline()] == [node.nags for node in games_of(GAMES)[0].mainline()]
    marked = [node.nags for node in everything.mainline()]
    assert marked[2] == {chess.pgn.NAG_DUBIOUS_MOVE}  # its own
    assert marked[5] == {chess.pgn.NAG_BLUNDER}
    assert marked[6] == {chess.pgn.NAG_GOOD_MOVE}  # mate
    assert all(len(nags) == 1 for nags in marked)
    assert (
        "! at most 100% and the expected score does not fall, ?! at most 100% and it falls by 0;" in everything.comment
    )


def test_a_plot_is_a_picture(file: Path, tmp_path: Path) -> None:
    assert run(file, "--plot", tmp_path / "surprise.png").exit_code == 0
    assert (tmp_path / "surprise.png").read_bytes().startswith(b"\x89PNG")


def test_the_service_writes_the_same_pgn(file: Path, serve: Serve) -> None:
    client: TestClient = serve(shipped_models())
    answer = client.post("/v1/games", json={"pgn": GAMES}, headers={"Accept": "application/x-chess-pgn"})
    assert answer.headers["content-type"] == "application/x-chess-pgn"
    assert answer.text == run(file).stdout
    refused = client.post("/v1/games", json={"pgn": ""}, headers={"Accept": "application/x-chess-pgn"})
    assert refused.status_code == 200
    assert "there is no game in it" in refused.text


def test_comments_without_end_take_no_time_without_end() -> None:
    text = "1. e4 " + "{x} " * 50_000 + "e5 *"
    ((tree, game),) = list(read_trees(io.StringIO(text)))
    assert tree is not None
    assert not isinstance(game, Exception)
    assert len(tree.variations[0].comment) <= 10_010
