"""POST /v1/policy, /v1/policy/batch and /v1/move: legal moves, order, sums, options."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import chess
import numpy as np
import pytest
from fastapi.testclient import TestClient

from movemask.schemas.answers import PolicyOut
from tests.conftest import Serve
from tests.ground_truth import perft, tricky
from tests.networks import write_fake
from tests.server.asking import asked, refused

JSON = "application/json"


def check(answer: Any, board: chess.Board) -> None:
    """The promises of every answer."""
    moves = [move["uci"] for move in answer["moves"]]
    assert sorted(moves) == sorted(move.uci() for move in board.legal_moves)
    probabilities = [move["probability"] for move in answer["moves"]]
    assert probabilities == sorted(probabilities, reverse=True)
    assert answer["turn"] == ("white" if board.turn else "black")
    if moves:
        assert abs(sum(probabilities) - 1) < 1e-12
        assert answer["leakage"]["served"] == 0.0
        assert answer["status"] == "ongoing"


@pytest.mark.parametrize(
    "fen",
    [
        "rnbqkbnr/pppppppp/8/8/4P3/8/PPPP1PPP/RNBQKBNR b KQkq {} 0 1",
        "8/8/8/8/k2Pp2Q/8/8/3K4 b - {} 0 1",  # the pawn is pinned
    ],
)
def test_unusable_en_passant_square_changes_nothing(shipped: TestClient, fen: str) -> None:
    square = "e3" if "KQkq" in fen else "d3"
    with_it, without = (asked(shipped, fen=fen.format(text)) for text in (square, "-"))
    assert with_it["moves"] == without["moves"]


def test_start_position(client: TestClient) -> None:
    response = asked(client)
    check(response, chess.Board())
    assert len(response["moves"]) == 20
    assert response["fen"] == chess.STARTING_FEN
    assert response["model"]["name"] == "fake"
    assert response["model"]["digest"].startswith("sha256:")
    assert set(response["moves"][0]) == {"uci", "probability"}
    assert set(response["leakage"]) == {"raw", "multiplied", "served", "trained_with_mask"}
    assert set(response["timing"]) == {"queue_ms", "inference_ms"}
    assert response["ignored"] == []
    assert "value" not in response
    assert "statistics" not in response


SHUFFLE = ["g1f3", "g8f6", "f3g1", "f6g8"]


@pytest.mark.parametrize(
    ("asking", "reason", "claimable"),
    [
        ({"fen": "8/8/4k3/8/8/3NK3/8/8 w - - 0 1"}, "insufficient_material", False),
        ({"fen": "8/8/4k3/8/8/3RK3/8/8 w - - 150 120"}, "seventyfive_moves", False),
        ({"fen": "8/8/4k3/8/8/3RK3/8/8 b - - 149 120"}, "fifty_moves", True),
        ({"moves": SHUFFLE * 2}, "threefold_repetition", True),
        ({"moves": SHUFFLE * 4}, "fivefold_repetition", False),
    ],
)
def test_drawn_position(client: TestClient, asking: dict[str, Any], reason: str, claimable: bool) -> None:
    response = asked(client, **asking)
    assert response["status"] == "ongoing"
    assert response["draw"] == {"reason": reason, "claimable": claimable}
    assert sum(move["probability"] for move in response["moves"]) == pytest.approx(1)
    assert asked(client, "/v1/move", **asking)["draw"] == response["draw"]
    (result,) = asked(client, "/v1/policy/batch", positions=[asking])["results"]
    assert result["draw"] == response["draw"]
    PolicyOut.model_validate(response)


@pytest.mark.parametrize(("planes", "words"), [("maia2-18", "movemask-1880"), ("lc0-112", "lc0-1858")])
def test_tricky_positions(serve: Serve, tmp_path: Path, planes: str, words: str) -> None:
    write_fake(tmp_path / "m", planes=planes, vocabulary=words)
    client = serve(tmp_path / "m")
    fens = [fen for fen, _, flags in tricky() if not any(flag.startswith("python-chess") for flag in flags)]
    fens.append(f"4k3/8/8/8/8/8/8/4K2R w K - {10**6} {10**6}")
    results = asked(client, "/v1/policy/batch", positions=[{"fen": fen} for fen in fens])["results"]
    for fen, response in zip(fens, results, strict=True):
        check(response, chess.Board(fen))


@pytest.mark.parametrize(
    ("fen", "status"),
    [
        ("r1bqkb1r/pppp1Qpp/2n2n2/4p3/2B1P3/8/PPPP1PPP/RNB1K1NR b KQkq - 0 4", "checkmate"),
        ("7k/5Q2/6K1/8/8/8/8/8 b - - 0 1", "stalemate"),
    ],
)
def test_finished_game(client: TestClient, fen: str, status: str) -> None:
    response = asked(client, fen=fen, include=["san", "statistics"])
    assert (response["status"], response["moves"]) == (status, [])
    assert "leakage" not in response
    assert asked(client, "/v1/move", fen=fen)["move"] is None


def test_moves(client: TestClient) -> None:
    board = chess.Board()
    for uci in ("e2e4", "c7c5"):
        board.push_uci(uci)
    response = asked(client, moves=["e2e4", "c7c5"])
    check(response, board)
    assert response["fen"] == board.fen()
    assert response["ignored"] == ["history"]
    later = asked(client, fen="4k3/P7/8/8/8/8/8/4K3 w - - 0 1", moves=["a7a8q", "e8e7"])
    assert later["fen"].startswith("Q7/4k3")


def test_chess960_castling(client: TestClient) -> None:
    castles = 0
    for row in perft("chess960")[:60]:
        board = chess.Board(row.fen, chess960=True)
        response = asked(client, fen=row.fen, chess960=True)
        check(response, board)
        ours = [move["uci"] for move in response["moves"]]
        castles += sum(move.uci() in ours for move in board.legal_moves if board.is_castling(move))
    assert castles > 0


def test_chess960_unsupported_by_network(serve: Serve, tmp_path: Path) -> None:
    write_fake(tmp_path / "m", vocabulary="maia2-1880")
    response = serve(tmp_path / "m").post("/v1/policy", json={"fen": perft("chess960")[0].fen, "chess960": True})
    refused(response, 422, "unsupported-variant")


def test_include(client: TestClient) -> None:
    response = asked(client, include=["san", "logit", "statistics"])
    board = chess.Board()
    logits = np.array([move["logit"] for move in response["moves"]])
    probabilities = np.array([move["probability"] for move in response["moves"]])
    for move in response["moves"]:
        assert board.parse_san(move["san"]) == chess.Move.from_uci(move["uci"])
    np.testing.assert_allclose(probabilities, np.exp(logits) / np.exp(logits).sum(), rtol=1e-12)
    statistics = response["statistics"]
    assert statistics["maximum"] == probabilities[0]
    assert statistics["entropy"] == pytest.approx(-(probabilities * np.log(probabilities)).sum())
    assert statistics["effective_moves"] == pytest.approx(np.exp(statistics["entropy"]))


def test_temperature(client: TestClient) -> None:
    response = asked(client, include=["logit"], temperature=2.5)
    weights = np.exp(np.array([move["logit"] for move in response["moves"]]) / 2.5)
    np.testing.assert_allclose([move["probability"] for move in response["moves"]], weights / weights.sum(), rtol=1e-12)


def test_elo_is_used_and_reported(rated: TestClient, client: TestClient) -> None:
    item, two = (asked(rated, elo={"self": 1100, "opponent": opponent}) for opponent in (1100, 1900))
    assert item["elo"] == {"self": 1100, "opponent": 1100}
    assert asked(rated, elo=1100)["moves"] == item["moves"] != two["moves"]
    assert asked(rated)["elo"] == {"self": 1500, "opponent": 1500}
    batch = asked(rated, "/v1/policy/batch", positions=[{"moves": []}, {"moves": [], "elo": 900}], elo=1600)
    assert [result["elo"]["self"] for result in batch["results"]] == [1600, 900]
    assert asked(client, elo={"self": 1100, "opponent": 1100})["ignored"] == ["elo"]


def test_value_of_side_to_move(serve: Serve, models: Path) -> None:
    value = asked(serve(models))["value"]
    assert set(value) == {"win", "draw", "loss", "score"}
    assert value["win"] + value["draw"] + value["loss"] == pytest.approx(1)
    assert value["score"] == pytest.approx(value["win"] + value["draw"] / 2)


def test_model_by_name(serve: Serve, tmp_path: Path) -> None:
    write_fake(tmp_path / "m", "a")
    write_fake(tmp_path / "m", "b", planes="lc0-112", vocabulary="lc0-1858")
    client = serve(tmp_path / "m", default_model="b")
    assert asked(client)["model"]["name"] == "b"
    assert asked(client, model="a")["model"]["name"] == "a"


def test_batch_with_one_bad_fen(client: TestClient) -> None:
    positions: list[dict[str, Any]] = [{"moves": [["e2e4"], ["d2d4"], ["c2c4"]][i % 3]} for i in range(1024)]
    positions[500] = {"fen": "not a fen"}
    results = asked(client, "/v1/policy/batch", positions=positions)["results"]
    assert len(results) == 1024
    assert results[500]["error"]["type"] == "urn:movemask:problem:invalid-fen"
    assert results[500]["error"]["detail"].startswith("fen: 'not a fen'")
    for index, response in enumerate(results):
        if index != 500:
            board = chess.Board()
            board.push_uci(positions[index]["moves"][0])
            check(response, board)


def test_invalid_batch_items_are_errors_in_their_place(client: TestClient) -> None:
    mate = "7k/5Q2/6K1/8/8/8/8/8 b - - 0 1"
    positions = [7, None, {"fenn": "x"}, {"fen": mate}, {"moves": ["e2e5"]}, {}]
    results = asked(client, "/v1/policy/batch", positions=positions)["results"]
    assert results.pop(3)["status"] == "stalemate"
    errors = [(result["error"]["type"].rpartition(":")[2], result["error"]["detail"]) for result in results]
    assert errors == [
        ("invalid-request", "position: Input should be an object, got 7"),
        ("invalid-request", "position: Input should be an object, got null"),
        ("invalid-request", "fenn: no such field (did you mean 'fen'?)"),
        ("illegal-move", errors[3][1]),
        ("invalid-request", "fen: is missing, as are moves: no position is named; give a FEN, or 'startpos'"),
    ]


@pytest.mark.parametrize("accept", ["application/json", "application/x-ndjson"])
def test_batch_results_have_index_and_id(client: TestClient, accept: str) -> None:
    names = ["start", None, '"]}', "ü", "start"]
    bad = [
        {"fen": "x", "id": "typo"},
        {"zzz": 1, "id": "field"},
        7,
        {"moves": [], "id": 7},
        {"moves": [], "id": "x" * 129},
    ]
    good: list[dict[str, Any]] = [{"moves": []} if name is None else {"moves": [], "id": name} for name in names]
    body = json.dumps({"positions": [*bad, *good * 20]})
    response = client.post("/v1/policy/batch", content=body, headers={"Accept": accept, "Content-Type": JSON})
    results = (
        response.json()["results"] if accept == JSON else [json.loads(line) for line in response.text.splitlines()]
    )
    assert [result["index"] for result in results] == list(range(len(bad) + 100))
    assert [result.get("id") for result in results] == ["typo", "field", None, None, None, *names * 20]
    assert ["error" in result for result in results] == [True] * len(bad) + [False] * 100


@pytest.mark.parametrize("moves", [["e4"], ["e4", "a6", "e5", "d5"], ["e4", "a6", "e5", "d5", "a3"]])
def test_fen_is_normalised(client: TestClient, moves: list[str]) -> None:
    board = chess.Board()
    for san in moves:
        board.push_san(san)
    (item,) = asked(client, "/v1/policy/batch", positions=[{"moves": moves}])["results"]
    judged = asked(client, "/v1/audit", moves=moves, policy={"e2e4": 1})
    result = [asked(client, path, moves=moves) for path in ("/v1/policy", "/v1/move")]
    assert {response["fen"] for response in (*result, item, judged)} == {board.fen()}


RATINGS: list[dict[str, Any]] = [{}, {"elo": 600}, {"elo": 1500}]


def test_rating_outside_range_is_reported(shipped: TestClient) -> None:
    assert asked(shipped, elo=300)["elo"] == {"self": 600, "opponent": 600, "clamped": True}
    assert asked(shipped, elo={"self": 1500, "opponent": 4000})["elo"]["clamped"]
    assert all("clamped" not in asked(shipped, **elo)["elo"] for elo in RATINGS)
    points = asked(shipped, "/v1/policy/sweep", ratings=[300, 1500])["points"]
    assert [point["elo"].get("clamped") for point in points] == [True, None]
    pgn = '[WhiteElo "{}"]\n[BlackElo "1500"]\n\n1. e4 *'
    games = [asked(shipped, "/v1/games", pgn=pgn.format(elo))["games"][0] for elo in (300, 1500)]
    assert [game.get("clamped") for game in games] == [True, None]


@pytest.mark.parametrize(
    ("path", "body", "field", "hint"),
    [
        ("/v1/policy", {"moves": [], "tempature": 1}, "tempature", "did you mean 'temperature'?"),
        ("/v1/policy", {"moves": [], "FEN": "startpos"}, "FEN", "did you mean 'fen'?"),
        ("/v1/policy", {"moves": [], "elo": {"self": 1, "oponent": 1}}, "elo.oponent", "did you mean 'opponent'?"),
        (
            "/v1/move",
            {"moves": [], "clock": {"remaining": 1, "incremnt": 1}},
            "clock.incremnt",
            "did you mean 'increment'?",
        ),
        ("/v1/games", {"pgn": "1. e4 *", "x": 1}, "x", "available: pgn, model, temperature, include"),
        ("/v1/audit", {"moves": [], "policy": {"e2e4": 1}, "treshold": 1}, "treshold", "did you mean 'threshold'?"),
    ],
)
def test_misspelt_field_gets_suggestion(
    client: TestClient, path: str, body: dict[str, Any], field: str, hint: str
) -> None:
    refused(client.post(path, json=body), 422, "invalid-request", f"{field}: no such field ({hint})")


def test_batch_defaults(rated: TestClient) -> None:
    defaults: dict[str, Any] = {"elo": {"self": 2000, "opponent": 2100}, "temperature": 3.0, "include": ["san"]}
    own = {"fen": "startpos", "elo": {"self": 900, "opponent": 950}, "temperature": 1.0}
    first, second = asked(rated, "/v1/policy/batch", positions=[{"moves": []}, own], **defaults)["results"]
    assert (first["elo"], second["elo"]) == (defaults["elo"], own["elo"])
    assert first["moves"] == asked(rated, **defaults)["moves"]


def test_greedy_and_seeded_moves(client: TestClient) -> None:
    assert asked(client, "/v1/move", include=["san"])["move"] == asked(client, include=["san"])["moves"][0]
    first = asked(client, "/v1/move", method="sample")
    assert asked(client, "/v1/move", method="sample", seed=first["seed"])["move"] == first["move"]


def test_sampled_moves_follow_probabilities(client: TestClient) -> None:
    policy = {move["uci"]: move["probability"] for move in asked(client)["moves"]}
    drawn = [asked(client, "/v1/move", method="sample", seed=seed)["move"]["uci"] for seed in range(400)]
    best = max(policy, key=lambda uci: policy[uci])
    share = drawn.count(best) / len(drawn)
    assert abs(share - policy[best]) < 4 * (policy[best] * (1 - policy[best]) / len(drawn)) ** 0.5


def test_san(client: TestClient) -> None:
    san, uci = asked(client, moves=["e4", "c5"]), asked(client, moves=["e2e4", "c7c5"])
    assert (san.pop("notation"), uci.pop("notation")) == ("san", "uci")
    del san["timing"], uci["timing"]
    assert san == uci
    assert "notation" not in asked(client)
    (result,) = asked(client, "/v1/policy/batch", positions=[{"moves": ["e4", "c7c5"]}])["results"]
    assert result["notation"] == "mixed"
    assert asked(client, "/v1/move", moves=["e4"])["notation"] == "san"
    checked = asked(client, "/v1/audit", moves=["e4"], policy={"e7e5": 1.0})
    assert checked["notation"] == "san"


def test_illegal_moves_add_up_to_raw(leela: TestClient) -> None:
    for fen in ("startpos", "r3k2r/8/8/8/8/8/8/R3K2R b KQkq - 0 1", "8/P6k/8/8/8/8/7K/8 w - - 0 1"):
        response = asked(leela, fen=fen, include=["illegal"])
        illegal = response["illegal"]
        assert illegal["slots"] == 1858 - len(response["moves"])
        assert sum(illegal["causes"].values()) == pytest.approx(response["leakage"]["raw"], rel=1e-9)
        assert len(illegal["moves"]) == 20
        shares = [move["probability"] for move in illegal["moves"]]
        assert shares == sorted(shares, reverse=True)
        assert not {move["uci"] for move in illegal["moves"]} & {move["uci"] for move in response["moves"]}
        assert {move["cause"] for move in illegal["moves"]} <= set(illegal["causes"])
        few = asked(leela, fen=fen, include=["illegal"], top_k=1)
        assert few["illegal"] == illegal  # leakage is the network's, whatever the rule
