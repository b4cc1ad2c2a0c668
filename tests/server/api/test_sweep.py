"""POST /v1/policy/sweep: ratings, models, limits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from movemask.schemas.answers import SweepOut
from tests.conftest import Serve
from tests.networks import write_fake
from tests.schemas.test_answers import held_to
from tests.server.asking import asked, refused

RATINGS = [800, 1100, 1500, 2000, 2500]


def swept(client: TestClient, **body: Any) -> Any:
    result = asked(client, "/v1/policy/sweep", **body)
    held_to(SweepOut, result)
    return result


@pytest.mark.parametrize("vary", ["both", "self", "opponent"])
@pytest.mark.parametrize(
    "position",
    [{"moves": ["e2e4", "c7c5"]}, {"fen": "8/P6k/8/8/8/8/7K/8 w - - 0 1"}, {"fen": "startpos", "temperature": 0.5}],
)
def test_points_equal_policies(shipped: TestClient, vary: str, position: dict[str, Any]) -> None:
    fixed = {} if vary == "both" else {"elo": {"self": 1300, "opponent": 1700}}
    sweep = swept(shipped, **position, **fixed, vary=vary, ratings=RATINGS, include=["san"])
    assert [point["elo"] for point in sweep["points"]] == [
        {"self": 1300.0 if vary == "opponent" else rating, "opponent": 1700.0 if vary == "self" else rating}
        for rating in RATINGS
    ]
    means = [sum(move["probabilities"]) for move in sweep["moves"]]
    assert means == sorted(means, reverse=True)
    for number, point in enumerate(sweep["points"]):
        query = {**position, "elo": point["elo"], "include": ["san"]}
        item = shipped.post("/v1/policy", json=query).json()
        # One row alone and a batch may be computed by different kernels.
        expected = {(move["uci"], move["san"]): move["probability"] for move in item["moves"]}
        result = {(move["uci"], move["san"]): move["probabilities"][number] for move in sweep["moves"]}
        assert result == pytest.approx(expected, abs=1e-5)
        assert sum(result.values()) == pytest.approx(1, abs=1e-12)
        for part in ("value", "leakage"):
            assert point[part] == pytest.approx(item[part], abs=1e-5)
        assert (point["model"], sweep["fen"], sweep["turn"]) == (item["model"], item["fen"], item["turn"])


def test_default_ratings(shipped: TestClient) -> None:
    points = swept(shipped, moves=[])["points"]
    (model,) = [model for model in shipped.get("/v1/models").json()["models"] if model["default"]]
    low, high = model["contract"]["elo"]["minimum"], model["contract"]["elo"]["maximum"]
    expected = [rating for rating in range(800, 2501, 100) if low <= rating <= high]
    assert [point["elo"]["self"] for point in points] == expected


def test_models(serve: Serve, tmp_path: Path) -> None:
    folder = tmp_path / "m"
    write_fake(folder, "mirrored")
    write_fake(folder, "leela", planes="lc0-112", vocabulary="lc0-1858")
    write_fake(folder, "rated", elo=True)
    client = serve(folder)
    names, elo = ["leela", "rated", "mirrored"], {"self": 1200, "opponent": 1300}
    sweep = swept(client, moves=["e2e4"], models=names, elo=elo)
    assert [point["model"]["name"] for point in sweep["points"]] == names
    assert ["elo" in point for point in sweep["points"]] == [False, True, False]
    assert [point["ignored"] for point in sweep["points"]] == [["elo"], ["history"], ["history", "elo"]]
    for number, name in enumerate(names):
        item = client.post("/v1/policy", json={"moves": ["e2e4"], "model": name, "elo": elo}).json()
        expected = {move["uci"]: move["probability"] for move in item["moves"]}
        result = {move["uci"]: move["probabilities"][number] for move in sweep["moves"]}
        assert result == pytest.approx(expected, abs=1e-5)


def test_finished_game_and_dropped_moves(shipped: TestClient) -> None:
    mate = swept(shipped, fen="r1bqkb1r/pppp1Qpp/2n2n2/4p3/2B1P3/8/PPPP1PPP/RNB1K1NR b KQkq - 0 4", ratings=RATINGS)
    assert (mate["status"], mate["moves"], len(mate["points"])) == ("checkmate", [], len(RATINGS))
    best = swept(shipped, moves=[], ratings=RATINGS, top_k=1)["moves"]
    for point in range(len(RATINGS)):
        assert sorted(move["probabilities"][point] for move in best) == [0.0] * (len(best) - 1) + [1.0]


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        ({"moves": [], "ratings": []}, 422, "ratings: "),
        ({"moves": [], "ratings": [1500, -1]}, 422, "ratings[1]: "),
        ({"moves": [], "ratings": [1500] * 1025}, 422, "ratings: 1025 ratings; at most 1024 are allowed"),
        ({"moves": [], "models": ["x"], "ratings": [1500]}, 422, "ratings: cannot be combined with models"),
        ({"moves": [], "models": ["x"]}, 404, "no model 'x'"),
        ({"moves": [], "elo": {"self": 1, "opponent": 2}}, 422, "needs vary"),
    ],
)
def test_invalid_sweeps_are_named(shipped: TestClient, body: dict[str, Any], status: int, message: str) -> None:
    response = shipped.post("/v1/policy/sweep", json=body)
    assert (response.status_code, response.headers["Content-Type"]) == (status, "application/problem+json")
    assert message in response.json()["detail"]


def test_network_without_ratings(client: TestClient) -> None:
    response = client.post("/v1/policy/sweep", json={"moves": [], "ratings": RATINGS})
    words = "model 'fake' plays at one rating only; name several in `models`"
    refused(response, 422, "invalid-sweep", words)


def test_largest_sweep(rated: TestClient) -> None:
    body = {"moves": ["g1f3", "g8f6", "f3g1", "f6g8"] * 256, "ratings": [1500.0625 + n / 16 for n in range(1024)]}
    assert len(swept(rated, **body)["points"]) == 1024
