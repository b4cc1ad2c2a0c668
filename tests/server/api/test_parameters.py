"""Query parameters and defaults: nothing is ignored silently."""

from __future__ import annotations

import re
from typing import Any

import chess
import pytest
from fastapi.testclient import TestClient

from movemask.server.app import create_app
from tests.server.asking import asked

BODY = {
    "/v1/policy/batch": {"positions": [{"moves": []}]},
    "/v1/games": {"pgn": "1. e4 *"},
    "/v1/games/split": {"pgn": ""},
}
BODY["/v1/audit"] = {"fen": chess.STARTING_FEN, "policy": {"e2e4": 1.0}}


#: A link to the page may be decorated.
OPERATIONS = [(way, path) for path, ways in create_app().openapi()["paths"].items() for way in ways if path != "/"]


def refused(client: TestClient, method: str, path: str, query: str) -> str:
    body = BODY.get(path, {"moves": []}) if method == "post" else None
    response = client.request(method, path.replace("{name}", "fake") + query, json=body)
    assert response.status_code == 422, response.text
    assert response.json()["type"] == "urn:movemask:problem:invalid-parameter"
    detail: str = response.json()["detail"]
    return detail


@pytest.mark.parametrize(("method", "path"), OPERATIONS)
def test_unknown_query_parameter_is_named(client: TestClient, method: str, path: str) -> None:
    for query in ("?zzz=1", "?zzz", "?zzz=", "?" + "z" * 2_000 + "=1"):
        detail = refused(client, method, path, query)
        assert detail.startswith("zzz")
        assert len(detail) < 300


@pytest.mark.parametrize(
    ("method", "path", "query", "message"),
    [
        ("get", "/v1/leakage/worst", "?Kind=multiplied", "did you mean 'kind'?"),
        ("get", "/v1/leakage", "?from=24h", "available: by, model, since, until, digest"),
        ("get", "/v1/leakage/positions", "?limit=5&curser=7", "did you mean 'cursor'?"),
        ("get", "/v1/leakage", "?by=phase&by=side", "by: is given 2 times"),
        ("get", "/v1/models", "?model=fake", "available: none"),
        (
            "post",
            "/v1/policy",
            "?temperature=2",
            "temperature: /v1/policy has no such query parameter; send it in the body",
        ),
        ("get", "/v1/policy", "?fen=startpos&moves=e4", "use POST /v1/policy, and send it in the body"),
        ("get", "/v1/policy", "?fen=startpos&top_k=3", "use POST /v1/policy, and send it in the body"),
    ],
)
def test_nearest_parameter_is_suggested(client: TestClient, method: str, path: str, query: str, message: str) -> None:
    assert message in refused(client, method, path, query)


def test_documented_parameters_are_accepted(client: TestClient) -> None:
    values = {"kind": "raw", "by": "phase", "bucket": "1h", "limit": "5", "cursor": "9", "format": "json"}
    values |= {
        "digest": "sha256:" + 64 * "0",
        "model": "fake",
        "since": "24h",
        "until": "1h",
        "fen": "startpos",
        "elo": "1500",
        "chess960": "true",
    }
    for path, result in create_app().openapi()["paths"].items():
        names = [item["name"] for item in result.get("get", {}).get("parameters", []) if item["in"] == "query"]
        if names:
            response = client.get(path, params={name: values[name] for name in names})
            assert response.status_code == 200, response.text


@pytest.mark.parametrize("number", ["1" + "0" * 20, "9" * 12, "-1", "0", "1e400", "9" * 5_000, "9" * 9 + "w"])
def test_huge_numbers_are_client_errors(client: TestClient, number: str) -> None:
    client.post("/v1/policy", json={"moves": []})
    for path, result in create_app().openapi()["paths"].items():
        for item in result.get("get", {}).get("parameters", []):
            if item["in"] == "query":
                for form in ("json", "csv") if path == "/v1/leakage/positions" else ("",):
                    query = {item["name"]: number, "format": form} if form else {item["name"]: number}
                    response = client.get(path, params=query)
                    assert response.status_code in (200, 404, 422), (path, query, response.text)
    assert client.get("/v1/leakage/positions?format=csv&limit=" + "1" + "0" * 20).status_code == 422
    for name in ("temperature", "alpha", "top_k", "top_p", "min_p", "elo"):
        if re.fullmatch("-?[0-9]+", number):
            body = f'{{"moves": [], "normalizer": "entmax", "{name}": {number}}}'
            response = client.post("/v1/policy", content=body, headers={"Content-Type": "application/json"})
            assert response.status_code in (200, 400, 422), response.text


@pytest.mark.parametrize("path", ["/v1/policy", "/v1/move", "/v1/policy/batch"])
@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({}, "fen: is missing, as are moves: no position is named"),
        ({"fen": None}, "fen: is null, which names no position; give a FEN, or 'startpos'"),
        ({"fen": None, "moves": ["e2e4"]}, "fen: is null"),
        ({"moves": None}, "moves: Input should be a valid {}, got null"),
    ],
)
def test_missing_position_is_rejected(client: TestClient, path: str, body: dict[str, Any], message: str) -> None:
    batch = path.endswith("batch")
    response = client.post(path, json={"positions": [body]} if batch else body)
    problem = response.json()["results"][0]["error"] if batch else response.json()
    assert (response.status_code, problem["status"]) == (200 if batch else 422, 422)
    assert message.format("list" if batch else "array") in problem["detail"]
    assert [item["positions"] for item in client.get("/v1/leakage").json()["models"].values()] in ([], [0])


def test_startpos(client: TestClient) -> None:
    forms: list[dict[str, Any]] = [{"moves": []}, {"fen": "startpos"}, {"fen": chess.STARTING_FEN}]
    responses = [asked(client, **item) for item in forms]
    responses += asked(client, "/v1/policy/batch", positions=forms * 4)["results"]
    for response in responses:
        del response["timing"]
        response.pop("index", None)
        assert response == responses[0]
    assert responses[0]["fen"] == chess.STARTING_FEN
    after = [asked(client, "/v1/move", **{**item, "moves": ["e2e4"]})["move"] for item in forms]
    assert after == after[:1] * 3


def test_documented_rule_defaults(client: TestClient) -> None:
    plain = asked(client)["moves"]
    assert asked(client, temperature=1, top_p=1, min_p=0, normalizer="softmax")["moves"] == plain
    positions = [{"fen": "startpos", "min_p": 0}, {"fen": "startpos"}]
    all_of_them, best = asked(client, "/v1/policy/batch", positions=positions, min_p=0.9)["results"]
    assert all_of_them["moves"] == plain
    assert len(best["moves"]) < len(plain)
