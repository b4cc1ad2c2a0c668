"""Annotated PGN: comments, glyphs, evaluations, and what stays as it was."""

from __future__ import annotations

import asyncio
import gzip
import io
import re
from collections.abc import Callable
from pathlib import Path

import chess
import chess.pgn
import pytest
from fastapi.testclient import TestClient
from hypothesis import given
from hypothesis import strategies as st

from movemask.board.pgn import Game, read_trees
from movemask.errors import InvalidPgn
from movemask.evaluate import Direct
from movemask.games.annotation import Annotated, annotate
from movemask.games.reports import GameReport, reports_of
from movemask.games.sweep import Series, sweep
from movemask.local.network import Network
from movemask.network.files import shipped_models
from movemask.policy.normalisation import Normalisation
from movemask.schemas.answers import GameOut, PolicyOut, SweepOut
from movemask.server.api.responses import game_out, point_out, policy_out, sweep_out
from tests.conftest import ROOT, Serve
from tests.games.engines import program
from tests.networks import fake_model, write_fake
from tests.processes import run

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


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "games.pgn"
    path.write_text(GAMES)
    return path


def games_of(text: str) -> list[chess.pgn.Game]:
    stream, games = io.StringIO(text), []
    while (game := chess.pgn.read_game(stream)) is not None:
        games.append(game)
    return games


def moves_of(node: chess.pgn.GameNode) -> list[object]:
    """A game's moves with all its variations."""
    return [(child.move, moves_of(child)) for child in node.variations]


def test_annotate_adds_comments_only(file: Path, network: Network) -> None:
    result = run("annotate", file)
    assert result.exit_code == 0, result.output
    assert f"left as it is: {file}: game 2: 'Ke3' is not legal in" in result.stderr
    before, after = games_of(GAMES), games_of(result.stdout)
    assert len(after) == 3
    for one, other in zip(before, after, strict=True):
        opening = {"ECO": "C20", "Opening": "King's Pawn Game: Wayward Queen Attack"} if one is before[0] else {}
        assert dict(other.headers) == {**one.headers, **opening}
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
        match = COMMENT.search(node.comment)
        assert match
        rank = list(policy.probabilities).index(node.move) + 1
        assert float(match[1]) == pytest.approx(100 * policy[node.move], rel=0.05, abs=0.05)
        assert (match[2] == "first choice") == (rank == 1)
        if rank > 1:
            assert policy.best is not None
            assert (int(match[3]), int(match[4]), match[5]) == (rank, board.legal_moves.count(), board.san(policy.best))


@pytest.mark.parametrize("packed", [bytes, gzip.compress])
def test_annotate_keeps_line_ends(file: Path, tmp_path: Path, packed: Callable[[bytes], bytes]) -> None:
    models = str(write_fake(tmp_path / "m").parent)
    text = '[White "Ann"]\n\n1. e4 e5\n{two\nlines} *\n\nA remark\n\n[White "Ben"]\n\n1. Sf3 *\n'
    outputs = []
    for ends in ("\n", "\r\n"):
        file.write_bytes(packed(text.replace("\n", ends).encode()))
        assert run("annotate", file, "--models-dir", models, "--out", tmp_path / "out.pgn").exit_code == 0
        outputs.append((tmp_path / "out.pgn").read_bytes())
        assert run("annotate", file, "--models-dir", models).stdout_bytes == outputs[-1]
    assert b"\r" not in outputs[0]
    assert outputs[1] == outputs[0].replace(b"\n", b"\r\n")


def test_summary_of_players(file: Path, tmp_path: Path) -> None:
    rows = run("annotate", file).stderr.splitlines()
    table = {line.split()[0]: line.split()[1] for line in rows if not line.startswith("left")}
    assert table == {"player": "moves", "Ann": "6", "Bob": "3", "Cid": "1", "all": "10"}
    crowd = tmp_path / "crowd.pgn"
    crowd.write_text("".join(f'[White "P{n}"]\n[Black "Q"]\n\n1. e4 e5 *\n\n' for n in range(30)))
    rows = run("annotate", crowd).stderr.splitlines()
    assert [line.split("  ")[0] for line in rows[:4]] == ["player", "Q", "P0", "P1"]
    assert [line.split("  ")[0] for line in rows[-2:]] == ["21 others", "all"]
    assert len(rows) == 13


def test_annotate_adds_glyphs_and_keeps_others(file: Path) -> None:
    (game, *_) = games_of(run("annotate", file).stdout)
    assert [node.nags for node in game.mainline()] == [node.nags for node in games_of(GAMES)[0].mainline()]
    file.write_text("1. f3 { [%eval -1] } e5 { [%eval -1] } 2. g4 Qh4# 0-1")
    (game,) = games_of(run("annotate", file).stdout)
    assert "; ?! cost 5 points or more of 100, ? 10, ?? 15; " in game.comment
    assert [node.nags for node in game.mainline()] == [set(), set(), {chess.pgn.NAG_BLUNDER}, set()]
    assert "; blunder: allows mate in one and cost 40 points, made by " in list(game.mainline())[2].comment


def test_annotate_writes_missing_evaluations(tmp_path: Path) -> None:
    file = tmp_path / "game.pgn"
    file.write_text("1. e4 { [%eval 0.3] } e5 2. Ke2 { [%eval -3.0] } 1-0")
    written = run("annotate", file, "--engine", program(tmp_path, "well")).stdout
    (game,) = games_of(written)
    scores = [node.eval() for node in (game, *game.mainline())]
    assert [None if one is None else one.white().score() for one in scores] == [0, 30, 0, -300]
    file.write_text(written)
    assert run("annotate", file, "--engine", program(tmp_path, "well")).stdout == written


def test_annotate_replaces_unreadable_evaluations(tmp_path: Path) -> None:
    """The file once held two evaluations of one position, and other programs read the first."""
    file = tmp_path / "game.pgn"
    file.write_text("1. e4 { [%eval abc] [%clk 0:01] } e5 { [%eval 0.3] } 2. Ke2 { [%eval -M5] } 1-0")
    result = run("annotate", file, "--engine", program(tmp_path, "well"))
    assert re.findall(r"\[%eval [^]]*\]", result.stdout) == ["[%eval 0.00]"] * 2 + ["[%eval 0.3]", "[%eval -M5]"]
    assert "[%clk 0:01]" in result.stdout
    note = "the evaluation 'eval abc' after 1. e4 cannot be read"
    assert f"{file}: game 1: {note}" in result.stderr
    assert f"?? 15; {note};" in " ".join(result.stdout.split())


def test_annotate_adds_missing_openings(tmp_path: Path) -> None:
    file = tmp_path / "games.pgn"
    headers = ['[ECO "A00"]', '[ECO "?"]\n[Opening ""]', '[Opening "Mine"]\n[ECO "Z99"]']
    standard = '[Variant "Chess960"]\n[FEN "rnbqkbnr/pppppppp/8/8/8/8/PPPPPPPP/RNBQKBNR w HAha - 0 1"]\n[SetUp "1"]'
    file.write_text("".join(f"{one}\n\n1. e4 e5 *\n\n" for one in [*headers, standard]))
    openings = [
        (game.headers.get("ECO"), game.headers.get("Opening")) for game in games_of(run("annotate", file).stdout)
    ]
    assert openings == [("A00", "King's Pawn Game"), ("C20", "King's Pawn Game"), ("Z99", "Mine"), (None, None)]


def test_documented_example_matches_annotate(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "uci.md").read_text().split("## Annotated games")[1]
    command, documented = re.findall(r"```(?:sh|)\n(.*?)```", page, re.S)[1:3]
    moves = re.search(r"echo '(.*)' \| movemask annotate -", command)
    assert moves
    (tmp_path / "game.pgn").write_text(moves[1])
    written = run("annotate", tmp_path / "game.pgn").stdout.split("\n\n", 1)[1].strip()
    assert figures(documented) == pytest.approx(figures(written), rel=0.1, abs=0.2), written
    assert FIGURE.sub("", documented).split() == FIGURE.sub("", written).split(), written


FIGURE = re.compile(r"\d+\.\d+")  # 8-bit integers may round the other way on another processor


def figures(text: str) -> list[float]:
    return [float(number) for number in FIGURE.findall(text)]


UNPLAYABLE = {
    "FEN": '[FEN "x"]\n\n1. e4 *',
    "variant": '[Variant "x"]\n\n1. e4 *',
    "long FEN": f'[SetUp "1"]\n[FEN "4k3/8/8/8/8/8/8/4K2R w K - 0 1{" " * 300}"]\n\n1. Kd2 *',
    "move number": f'[SetUp "1"]\n[FEN "4k3/8/8/8/8/8/8/4K2R w K - 0 {"9" * 4400}"]\n\n1. Kd2 *',
    "variation": "1. e4 (1. e5) e5 2. Nf3 (2. e4) *",
    "glyph": f"1. e4 ${'1' * 4400} e5 {{ kept }} *",
}


@pytest.mark.parametrize("text", ["", "8/8/8/8/8/2k5/8/K2r4 w - - 0 1\n", "Dear all,\n\nhere are no games.\n"])
def test_annotate_file_without_games(text: str, tmp_path: Path) -> None:
    file, out = tmp_path / "positions.epd", tmp_path / "x.pgn"
    file.write_text(text)
    result = run("annotate", file, "--out", out)
    assert result.exit_code == 1
    assert f"{file}: there is no game in it" in result.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["positions.epd"]
    assert run("annotate", file).stdout == ""


def test_annotate_unclosed_comment_keeps_text(tmp_path: Path) -> None:
    file, out = tmp_path / "notes.pgn", tmp_path / "x.pgn"
    file.write_text("{ an analysis without an end\n")
    assert run("annotate", file, "--out", out).exit_code == 1
    assert "an analysis without an end" in out.read_text()


@pytest.mark.parametrize("bad", UNPLAYABLE.values(), ids=UNPLAYABLE)
def test_annotate_keeps_unreadable_games(
    bad: str, serve: Serve, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    good = '[Event "good"]\n\n1. e4 e5 *'
    client = serve(shipped_models())
    answer = client.post(
        "/v1/games", json={"pgn": f"{good}\n\n{bad}\n\n{good}\n"}, headers={"Accept": "application/x-chess-pgn"}
    )
    assert answer.status_code == 200, answer.text
    assert answer.text.count("first choice 100 %") == 4
    for line in bad.splitlines():
        assert line in answer.text
    assert "{ movemask: pgn: game 2: " in answer.text
    assert not any("4k3" in record.getMessage() for record in caplog.records)
    (tmp_path / "bad.pgn").write_text(bad)
    (tmp_path / "once.pgn").write_text(run("annotate", tmp_path / "bad.pgn").stdout)
    assert run("annotate", tmp_path / "once.pgn").stdout == (tmp_path / "once.pgn").read_text()


@given(
    st.lists(
        st.sampled_from(["1. e4 ", "e5 ", "Nf3 ", "{", "}", "( ", ")", "\n", "\n\n", ";", "%", "$3 ", "[FEN "]),
        max_size=12,
    )
)
def test_any_text_can_be_annotated(words: list[str]) -> None:
    for text, tree, game in read_trees("".join(words)):
        assert str(Annotated(text, tree, InvalidPgn("")))
        assert (tree is None) == (not isinstance(game, Game))


def test_reports_leave_shared_boards_unchanged(monkeypatch: pytest.MonkeyPatch) -> None:
    """python-chess plays a move and takes it back to name it: whoever reads the board meanwhile gets a wrong FEN."""
    model = fake_model()
    own = Direct(model)
    ((_, tree, game),) = read_trees("1. e4 (1. d4) e5 2. Qh5 Nc6 *")
    assert isinstance(game, Game)
    (report,) = asyncio.run(reports_of(own, [game], 1.0))
    points = asyncio.run(sweep([Series(own, [None])], game.plies[1].position, Normalisation(), lambda answer: answer))
    assert isinstance(tree, chess.pgn.Game)
    assert isinstance(report, GameReport)
    for move in report.moves:
        monkeypatch.setattr(move.position.board, "push", None)
    annotate(tree, report, "fake")
    written = GameOut.model_validate(game_out(report, model))
    assert [move.san for move in written.moves] == ["e4", "e5", "Qh5", "Nc6"]
    swept = sweep_out([point_out(answer, []) for answer in points], points[0].position, san=True)
    assert "e5" in [move.san for move in SweepOut.model_validate(swept).moves]
    assert "e5" in [move.san for move in PolicyOut.model_validate(policy_out(points[0], ["san"])).moves]


def test_service_and_command_write_the_same_pgn(file: Path, serve: Serve) -> None:
    client: TestClient = serve(shipped_models())
    answer = client.post("/v1/games", json={"pgn": GAMES}, headers={"Accept": "application/x-chess-pgn"})
    assert answer.headers["content-type"] == "application/x-chess-pgn"
    assert answer.text == run("annotate", file).stdout
    refused = client.post("/v1/games", json={"pgn": ""}, headers={"Accept": "application/x-chess-pgn"})
    assert refused.status_code == 200
    assert "there is no game in it" in refused.text


def test_annotate_many_comments_in_linear_time() -> None:
    text = "1. e4 " + "{x} " * 50_000 + "e5 *"
    ((_, tree, game),) = list(read_trees(text))
    assert isinstance(tree, chess.pgn.Game)
    assert isinstance(game, Game)
    assert tree.variations[0].comment == " ".join(["x"] * 50_000)  # all are kept
