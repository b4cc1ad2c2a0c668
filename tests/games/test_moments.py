"""What whoever looks through a game would lose: the moves that are worth a look, the most telling first."""

from __future__ import annotations

import asyncio
import io
import re
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import chess.pgn
import pytest
from fastapi.testclient import TestClient

from movemask.board.pgn import read_games
from movemask.games.reports import GameReport, moments_of, reports_of
from movemask.network.value import Value
from movemask.schemas.answers import GamesOut
from tests.games.test_evaluations import LEGAL, SAMPLE
from tests.networks import fake_model, pipeline
from tests.processes import run
from tests.server.asking import asked

UNEVALUATED = re.sub(r"\[%eval [^]]*\]", "", SAMPLE)

#: White moves the rook away and the queen takes it: a rare move, and the forecast sees the reply.
HANGS = '[SetUp "1"]\n[FEN "6k1/5ppp/8/3q4/8/8/5PPP/3R2K1 w - - 0 1"]\n[WhiteElo "2200"]\n\n1. Rd2 Qxd2 *'

#: Both sides give away a queen or a rook for a pawn or a rook, which hardly anyone plays.
GIVEN_AWAY = "1. d4 d5 2. Qd3 Nc6 3. Qxh7 Rxh7 4. e3 Rxh2 5. Rxh2 Qd6 6. Nf3 Qxh2 7. Nxh2 Nf6 *"


def judged(client: TestClient, pgn: str, **more: Any) -> dict[str, Any]:
    answer = asked(client, "/v1/games", pgn=pgn, **more)
    GamesOut.model_validate(answer)
    game: dict[str, Any] = answer["games"][0]
    return game


def weights(game: dict[str, Any]) -> list[float]:
    """How telling each moment is, by the moves that the answer has."""
    moments = [(one, game["moves"][one["ply"] - 1]) for one in game["moments"]]
    return [-one["change"] if one["change"] <= -0.1 else min(1, move["surprise"] / 10) for one, move in moments]


@pytest.mark.parametrize("pgn", [SAMPLE, LEGAL], ids=["a real game", "Légal's trap"])
def test_every_marked_move_of_an_evaluated_game_is_a_moment_the_most_telling_first(
    shipped: TestClient, pgn: str
) -> None:
    game = judged(shipped, pgn)
    marked = {move["ply"]: move for move in game["moves"] if "mark" in move}
    assert 0 < len(marked) <= 5
    assert {one["ply"] for one in game["moments"]} == marked.keys()
    assert weights(game) == sorted(weights(game), reverse=True)
    played = [move["uci"] for move in game["moves"]]
    for one in game["moments"]:
        move = marked[one["ply"]]
        assert max(0, -one["change"]) == pytest.approx(move["lost"])
        elo = {"white": game["elo"]["white"], "black": game["elo"]["black"]}
        elo = {"self": elo.pop(move["turn"]), "opponent": elo.popitem()[1]}
        policy = asked(shipped, moves=played[: one["ply"] - 1], elo=elo, include=["san"])["moves"]
        likely = move["mark"] == "mistake" and policy[0]["probability"] >= 0.5
        assert (one["kind"], one["best"]) == (("missed", policy[0]["uci"]) if likely else (move["mark"], None))
        number = f"{(one['ply'] + 1) // 2}{'.' if move['turn'] == 'black' else '. '}"
        assert one["text"].startswith(f"{number}{'..' if move['turn'] == 'black' else ''}{move['san']} ")
        assert one["text"].endswith(f" would play {policy[0]['san'] if likely else 'it'}")
        lost = f" loses {100 * move['lost']:.0f} points, and "
        assert (" holds, and " if move["mark"] == "gem" else lost) in one["text"]


@pytest.mark.parametrize("pgn", [GIVEN_AWAY, HANGS], ids=["queens given away", "a rook that hangs"])
def test_without_evaluations_rare_moves_count_by_the_forecasts_before_and_after(shipped: TestClient, pgn: str) -> None:
    game = judged(shipped, pgn, include=["forecast"])
    changes = {}
    for move, following in zip(game["moves"], game["moves"][1:], strict=False):
        change = 1 - following["forecast"]["score"] - move["forecast"]["score"]
        if move["probability"] <= 0.05 and abs(change) >= 0.1:
            changes[move["ply"]] = change
    assert changes
    assert {one["ply"]: one["change"] for one in game["moments"]} == pytest.approx(changes)
    assert weights(game) == sorted(weights(game), reverse=True)
    for one in game["moments"]:
        assert one["kind"] in (("missed", "mistake") if one["change"] < 0 else ("surprise",))
        points = f"{abs(100 * one['change']):.0f} points"
        assert f" {'lowers' if one['change'] < 0 else 'raises'} the forecast by {points}, and " in one["text"]
    plain = judged(shipped, pgn)
    assert plain["moments"] == game["moments"]
    assert not any("forecast" in move for move in plain["moves"])  # what was not asked for is not told


@pytest.mark.parametrize(("end", "change"), [("4. Qxf7#", 0.7), ("4. Qxf7# 1-0", 0.7), ("4. Qe2", None)])
def test_after_a_last_move_there_is_only_the_board(end: str, change: float | None) -> None:
    """A mate that few would find is a surprise that worked; of a game that was given up nobody knows."""
    with closing(pipeline(fake_model())) as own:
        (game,) = read_games(io.StringIO(f"1. e4 e5 2. Qh5 Nc6 3. Bc4 Nf6 {end}"))
        (report,) = asyncio.run(reports_of(own, [game], 1.0))
    assert isinstance(report, GameReport)
    last = replace(report.moves[-1], probability=0.01, forecast=Value(None, None, None, 0.3))
    found = moments_of(replace(report, moves=(*report.moves[:-1], last)))
    assert [(one.ply, one.label, one.change) for one in found] == ([(7, "surprise", change)] if change else [])


def test_a_game_has_five_moments_at_most(shipped: TestClient) -> None:
    blunders = (
        "1. e4 {[%eval 0]} e5 {[%eval 0]} 2. Ke2 {[%eval -9]} Ke7 {[%eval 9]} 3. Kd3 {[%eval -9]} Kd6 {[%eval 9]} "
    )
    blunders += "4. Kc4 {[%eval -9]} Kc6 {[%eval 9]} 5. a4 {[%eval -9]} a5 {[%eval 9]} *"
    game = judged(shipped, blunders)
    assert sum("mark" in move for move in game["moves"]) == 8
    assert len(game["moments"]) == 5


def test_an_only_move_is_no_moment(shipped: TestClient) -> None:
    only = '[SetUp "1"]\n[FEN "k7/8/8/8/8/8/1r6/7K w - - 0 1"]\n\n{[%eval 0]} 1. Kg1 {[%eval -9]} *'
    assert judged(shipped, only)["moves"][0]["lost"] > 0.4
    assert judged(shipped, only)["moments"] == []


def test_a_network_without_a_value_needs_evaluations(client: TestClient) -> None:
    assert judged(client, UNEVALUATED)["moments"] == []
    assert len(judged(client, SAMPLE)["moments"]) >= 3


def test_an_annotated_game_tells_the_same_moments_and_a_second_run_replaces_them(
    shipped: TestClient, tmp_path: Path
) -> None:
    file, other = tmp_path / "game.pgn", tmp_path / "other.pgn"
    file.write_text(SAMPLE)
    assert run("annotate", file, "--elo", "800", "--out", other).exit_code == 0
    again = run("annotate", other).stdout
    assert again == run("annotate", file).stdout
    game = chess.pgn.read_game(io.StringIO(again))
    assert game is not None
    told = re.findall(r"; moments: (.*?); White ", game.comment)
    moments = judged(shipped, SAMPLE)["moments"]
    assert told == ["; ".join(f"{one['text']} ({one['kind']})" for one in moments)]
    assert again.count("moments: ") == 1
    assert other.read_text() != again
