"""POST /v1/games and /v1/games/split: reports, trees, evaluations, errors per game."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import chess
import numpy as np
import orjson
import pytest
from fastapi.testclient import TestClient

from movemask.schemas.answers import CostOut, EvaluatedOut, GamesOut, MomentsOut, ProgressOut
from tests.conftest import Serve
from tests.field import CASES
from tests.games.engines import program
from tests.server.asking import asked, refused, sample

PGN = """[Event "one"]
[WhiteElo "1400"]
[BlackElo "1700"]

1. e4 e5 (1... c5 2. Nf3) 2. Nf3 {a comment} Nc6 3. Bb5 a6 1/2-1/2
"""


def judged(client: TestClient, **body: Any) -> Any:
    return asked(client, "/v1/games", **body)


def test_games_match_policy_move_by_move(leela: TestClient) -> None:
    (game,) = judged(leela, pgn=PGN, temperature=1.3)["games"]
    board = chess.Board()
    played: list[str] = []
    surprises: dict[str, list[float]] = {"white": [], "black": []}
    for index, san in enumerate(["e4", "e5", "Nf3", "Nc6", "Bb5", "a6"]):
        turn = "white" if board.turn else "black"
        elo = {"self": 1400, "opponent": 1700} if board.turn else {"self": 1700, "opponent": 1400}
        move = board.push_san(san).uci()
        policy = asked(leela, moves=played, elo=elo, temperature=1.3)
        ranks = [entry["uci"] for entry in policy["moves"]]
        entry = game["moves"][index]
        assert (entry["ply"], entry["turn"], entry["uci"], entry["san"]) == (index + 1, turn, move, san)
        assert entry["rank"] == ranks.index(move) + 1
        assert entry["probability"] == policy["moves"][entry["rank"] - 1]["probability"]
        assert entry["surprise"] == pytest.approx(-np.log(entry["probability"]))
        assert (entry["leakage"], entry.get("value")) == (policy["leakage"], policy.get("value"))
        surprises[turn].append(entry["surprise"])
        played.append(move)
    for side, values in surprises.items():
        assert game[side]["moves"] == 3
        assert game[side]["cross_entropy"] == pytest.approx(np.mean(values))
        assert game[side]["perplexity"] == pytest.approx(np.exp(np.mean(values)))
        first = [entry["rank"] == 1 for entry in game["moves"] if entry["turn"] == side]
        assert game[side]["top1"] == pytest.approx(np.mean(first))
        raw = [entry["leakage"]["raw"] for entry in game["moves"] if entry["turn"] == side]
        assert game[side]["raw_leakage"] == pytest.approx(np.mean(raw))
    assert game["elo"] == {"white": 1400, "black": 1700}
    assert game["headers"]["Event"] == "one"
    assert game["opening"] == {"eco": "C70", "name": "Ruy Lopez: Morphy Defense"}
    assert game["ignored"] == []


def test_tree_has_comments_and_variations(client: TestClient) -> None:
    (game,) = judged(client, pgn=PGN.replace("Bb5 a6", "Bb5 (3. -- Nf6) a6 $4"), include=["tree"])["games"]
    nodes = [(node.get("parent"), node.get("san"), node["comment"], node.get("nags", [])) for node in game["tree"]]
    main = [(0, "e4", ""), (1, "e5", ""), (2, "Nf3", "a comment"), (3, "Nc6", ""), (4, "Bb5", "")]
    others = [(1, "c5", ""), (7, "Nf3", "")]
    plain: list[Any] = [(*node, []) for node in [*main, *others]]
    assert nodes == [(None, None, "", []), *plain[:5], (5, "a6", "", [4]), *plain[5:]]
    assert "tree" not in judged(client, pgn=PGN)["games"][0]


def test_invalid_game_is_an_error_in_its_place(client: TestClient) -> None:
    bad = '[Event "bad"]\n\n1. e4 e5 2. Ke3 *\n\n'
    atomic = '[Event "other"]\n[Variant "Atomic"]\n\n1. e4 *\n\n'
    empty = '[Event "none"]\n\n*\n\n'
    null = '[Event "null"]\n\n1. e4 -- *\n\n'
    answer = judged(client, pgn=bad + PGN + "\n" + atomic + empty + null + PGN)
    errors = [game.get("error", {}).get("detail", "") for game in answer["games"]]
    assert errors[0].startswith("pgn: game 1: 'Ke3' is not legal in '")
    assert errors[0].endswith(", at White's move 2")
    assert errors[1] == ""
    assert "game 3: the variant 'Atomic' is not standard chess or Chess960" in errors[2]
    assert errors[3] == "pgn: game 4: no moves"
    assert errors[4].startswith("pgn: game 5: '--' is a pass, which is not legal in '")
    assert len(answer["games"][5]["moves"]) == 6
    assert answer["games"][1]["ignored"] == ["elo", "history"]


@pytest.mark.parametrize("accept", ["application/json", "application/x-chess-pgn"])
def test_invalid_game_is_counted_in_every_format(serve: Serve, accept: str) -> None:
    client = serve()
    client.post("/v1/games", json={"pgn": "1. e4 e5 2. Ke3 *\n\n1. e4 *"}, headers={"Accept": accept})
    assert sample(client, 'movemask_invalid_total{problem="invalid-pgn"}') == 1


@pytest.mark.parametrize("temperature", [1e-3, 3e-307, 5e-324, 1e308])
def test_extreme_temperatures_keep_schema(client: TestClient, temperature: float) -> None:
    """A surprise is the logit's distance from the best over the temperature: null only where that is no number."""
    cold, answer = (judged(client, pgn=PGN, temperature=one) for one in (1e-3, temperature))
    GamesOut.model_validate(answer)
    (game,) = answer["games"]
    for entry, finite in zip(game["moves"], cold["games"][0]["moves"], strict=True):
        with np.errstate(over="ignore"):
            expected = np.float64(finite["surprise"]) * 1e-3 / temperature
        if entry["surprise"] is None:
            assert expected > 1e308
        elif temperature <= 1e-3:
            assert entry["surprise"] == pytest.approx(expected, rel=1e-6)
    for side in ("white", "black"):
        own = [entry["surprise"] for entry in game["moves"] if entry["turn"] == side]
        assert game[side]["cross_entropy"] is not None or None in own or max(own) > 1e307


def test_games_rejects_huge_integers_per_game(client: TestClient) -> None:
    fen = "4k3/8/8/8/8/8/8/4K2R w K - 0 " + "9" * 4300
    glyph, position = "1. e4 $" + "1" * 4301 + " *", f'[SetUp "1"]\n[FEN "{fen}"]\n\n1. Kd2 *'
    first, second, good = judged(client, pgn=f"{glyph}\n\n{position}\n\n{PGN}")["games"]
    assert first["error"]["type"] == "urn:movemask:problem:invalid-pgn"
    assert "at most 200" in second["error"]["detail"]
    assert len(good["moves"]) == 6
    assert client.get("/v1/leakage").json()["models"]["fake"]["positions"] == 6


def test_chess960_and_fen_tag(client: TestClient) -> None:
    fen = "nrkbbqrn/pppppppp/8/8/8/8/PPPPPPPP/NRKBBQRN w GBgb - 0 1"
    pgn = f'[Variant "Chess960"]\n[SetUp "1"]\n[FEN "{fen}"]\n\n1. c4 c5 *\n'
    (game,) = judged(client, pgn=pgn)["games"]
    assert game["chess960"] is True
    assert game["opening"] is None
    mate = '[SetUp "1"]\n[FEN "7k/8/5KQ1/8/8/8/8/8 w - - 0 1"]\n\n1. Qg7# 1-0\n'
    (game,) = judged(client, pgn=mate)["games"]
    assert (game["black"], game["opening"]) == (None, None)
    assert game["white"]["moves"] == 1


def test_ratings_of_tags_reach_network(leela: TestClient) -> None:
    """Those of all files in one request, but for three that leave a comment or a game open; the reader's test has what
    is wrong with others."""
    whole = [case for case in CASES if case.good == case.games]
    alone = [case for case in whole if case.path.stem in ("pgn-P37", "pgn-P45", "pgn-signature")]
    together = [case for case in whole if case not in alone]
    texts = ["\n\n".join(case.text for case in together), *(case.text for case in alone)]
    games = [game for text in texts for game in judged(leela, pgn=text)["games"]]
    for game, expected in zip(games, (game for case in [*together, *alone] for game in case.games), strict=True):
        assert [move["uci"] for move in game["moves"]] == expected["moves"].split()
        for name, value in expected.get("tags", {}).items():
            assert game["headers"][name] == value
        if "elo" in expected:
            white, black = expected["elo"]
            assert game["elo"] == {"white": white, "black": black}


def test_body_that_is_not_utf_8(client: TestClient) -> None:
    body = '{"pgn":"[White \\"Müller\\"]\\n\\n1. e4 *"}'.encode("latin-1")
    answer = client.post("/v1/games", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == 400
    assert answer.json()["detail"] == "body: is not UTF-8: byte 0xfc at 18, counted from 0"


@pytest.mark.parametrize(("pgn", "message"), [("", ""), ("   \n\n", ""), ("hello, world", "line 1: 'hello,'")])
def test_pgn_without_game(client: TestClient, pgn: str, message: str) -> None:
    answer = judged(client, pgn=pgn)
    assert answer["games"][0]["error"]["type"] == "urn:movemask:problem:invalid-pgn"
    assert message in answer["games"][0]["error"]["detail"]
    assert answer["temperature"] is None


def test_too_long_games_are_rejected_early(serve: Serve) -> None:
    client = serve(max_positions=5)
    for pgn, words in (
        (PGN, ""),
        ("1. Nf3 Nf6 2. Ng1 Ng8 " * 20_000 + "*", ""),
        ('[Event "x"]\n\n*\n\n' * 1100, "more than 5 games"),
    ):
        refused(client.post("/v1/games", json={"pgn": pgn}), 422, "limit-exceeded", words)
    nested = judged(client, pgn="1. e4 " + "(" * 100_000 + " *")
    assert len(nested["games"][0]["moves"]) == 1
    assert client.post("/v1/games", json={}).json()["detail"] == "pgn: is missing"


def test_split(client: TestClient) -> None:
    """A page that shows a pasted PGN game by game needs each game's text, not only the reports."""
    pgn = '\n[White "Ann"]\r\n[White "Ann"]\n\n1. e4 *\n\nRound \N{CIRCLED DIGIT TWO}\n[White "Cid"]\n1. Qq9\n'
    parts = asked(client, "/v1/games/split", pgn=pgn)["parts"]
    assert [(part["role"], part["line"], part["tags"]) for part in parts] == [
        ("game", 2, {"White": "Ann"}),
        ("outside", 7, {}),
        ("game", 8, {"White": "Cid"}),
    ]
    assert "".join(part["text"] for part in parts) == pgn.replace("\r\n", "\n")
    (again,) = asked(client, "/v1/games/split", pgn=parts[0]["text"])["parts"]
    assert again == parts[0]
    assert asked(client, "/v1/games/split", pgn=" ") == {"parts": []}


def test_split_reads_games(client: TestClient) -> None:
    """A page shows a game's moves before a network has seen them."""
    pgn = f"Round 2\n{PGN}\n1. e4 e5 2. Qxh7 *\n"
    parts = asked(client, "/v1/games/split", pgn=pgn, include=["tree"])["parts"]
    assert [{**part, "game": None} for part in parts] == [
        {**part, "game": None} for part in asked(client, "/v1/games/split", pgn=pgn)["parts"]
    ]
    outside, game, error = (part["game"] for part in parts)
    reports = judged(client, pgn=pgn, include=["tree"])["games"]
    assert [outside, error] == [reports[0], reports[2]]
    assert game == {name: value for name, value in reports[1].items() if name in ("headers", "chess960", "tree")}
    assert asked(client, "/v1/games/split", pgn=" ", include=["tree"]) == {"parts": []}


def test_partial_game_is_read_up_to_its_illegal_move(client: TestClient) -> None:
    """A page that was sent a game with a slip of the pen in it once showed nothing of it."""
    pgn = "1. e4 e5 2. Qxh7 Nc6 *\n\n1. Ke3 *\n"
    first, second = judged(client, pgn=pgn, include=["partial"])["games"]
    assert [move["uci"] for move in first["moves"]] == ["e2e4", "e7e5"]
    assert first["notes"][0].startswith("'Qxh7' is not legal in ")
    assert second["error"]["detail"].startswith("pgn: game 2: 'Ke3' is not legal in ")
    (part, _) = asked(client, "/v1/games/split", pgn=pgn, include=["tree", "partial"])["parts"]
    assert part["game"]["notes"] == first["notes"]


def test_split_limits_moves_that_it_reads(serve: Serve) -> None:
    client = serve(max_positions=5)
    answer = client.post("/v1/games/split", json={"pgn": PGN, "include": ["tree"]})
    refused(answer, 422, "limit-exceeded", "pgn: more moves than are taken at once")
    assert asked(client, "/v1/games/split", pgn=PGN)["parts"]


def lines_of(client: TestClient, **body: Any) -> list[Any]:
    """The lines of a streamed answer."""
    answer = client.post("/v1/games", json=body, headers={"Accept": "application/x-ndjson"})
    assert answer.status_code == 200, answer.text
    return [orjson.loads(line) for line in answer.text.splitlines()]


TRAP = "1. e4 e5 2. Ke2 {[%eval -3.0]} d5 {[%eval -3.0]} *"


def test_report_streams_before_evaluations(serve: Serve, tmp_path: Path) -> None:
    client = serve(engine=program(tmp_path, "moves"))
    first, *rest = lines_of(client, pgn=TRAP, include=["evaluations", "reasons"])
    assert GamesOut.model_validate(first).engine == ProgressOut(done=0, of=3, deeper=0, of_deeper=None)
    assert [move.get("lost") for move in first["games"][0]["moves"]] == [None, None, None, 0]
    *quick, early, third, second, last = rest
    looks = [EvaluatedOut.model_validate(line) for line in (*quick, third, second)]
    # Forwards where there is no evaluation; then deeper around the blunder, from the end.
    assert [look.position for look in looks] == [0, 1, 2, 3, 2]
    assert [(look.engine.done, look.engine.deeper) for look in looks] == [(1, 0), (2, 0), (3, 0), (3, 1), (3, 2)]
    assert looks[-1].engine.of_deeper == 2
    assert [look.score for look in looks] == pytest.approx([0.5, 0.5, 0.5, 0.249, 0.5], abs=0.001)  # the PGN's counts
    assert looks[1].costs[0].nodes == 5_000
    assert [moment["ply"] for moment in early["moments"]] == [3]
    (moment,) = MomentsOut.model_validate(last).moments
    assert (moment.ply, moment.mark) == (3, "blunder")
    assert last["accuracy"] == {"white": pytest.approx(53.6, abs=30), "black": 100}
    assert last["summary"].startswith("Accuracy by lichess's formula: White ")
    costs = {cost.ply: cost for look in looks for cost in look.costs}
    whole = judged(client, pgn=TRAP, include=["evaluations", "reasons"])
    assert whole["engine"] == {"done": 3, "of": 3, "deeper": 2, "of_deeper": 2}
    (game,) = whole["games"]
    assert game["scores"] == pytest.approx([0.5, 0.5, 0.5, 0.249, 0.249], abs=0.001)
    for move in game["moves"][:3]:
        assert costs[move["ply"]] == CostOut.model_validate(move)
    assert game["moments"] == last["moments"]
    assert [move["san"] for move in game["moves"][2]["line"]] == ["a3", "a5"]
    short = judged(client, pgn=TRAP, include=["evaluations"])
    assert short["engine"] == {"done": 3, "of": 3, "deeper": 0, "of_deeper": None}  # the PGN's evaluations are enough
    assert short["games"][0]["moves"][2]["lost"] == game["moves"][2]["lost"]


def test_no_evaluations_without_engine_or_include(serve: Serve, tmp_path: Path) -> None:
    (only,) = lines_of(serve(), pgn=TRAP, include=["evaluations"])
    assert only["engine"] is None
    assert judged(serve(engine=program(tmp_path, "well")), pgn=TRAP)["engine"] is None
    assert not (tmp_path / "starts").exists()


def test_failing_engine_leaves_report_and_readiness(serve: Serve, tmp_path: Path) -> None:
    client = serve(engine=program(tmp_path, "dies"))
    assert judged(client, pgn=TRAP, include=["evaluations"])["engine"]["done"] == 1
    assert client.get("/readyz").status_code == 200
    assert judged(client, pgn=TRAP, include=["evaluations"])["engine"]["done"] == 0  # for a while


def test_evaluations_count_against_rate(serve: Serve, tmp_path: Path) -> None:
    def left(**body: Any) -> int:
        client = serve(engine=program(tmp_path, "well"), client_rate=0.001, client_burst=100)
        answer = client.post("/v1/games", json={"pgn": "1. e4 e5 *", **body})
        return int(answer.headers["RateLimit"].partition("r=")[2].partition(";")[0])

    assert left() - left(include=["evaluations"]) == 3
