"""What an operator would lose: finding the log lines of the one request that a user asks about."""

from __future__ import annotations

import logging

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from movemask.api.problems import CONTENT_TYPE
from tests.conftest import Serve

HEADER = "X-Request-ID"


@pytest.mark.parametrize("given", ["7", "6d0f3a1b-9c0e-4c7f-8a52-d1e07b3c9f44", "a" * 128, "a.b:c/d+e=f@g_h"])
def test_a_clients_id_comes_back(client: TestClient, given: str) -> None:
    for answer in (client.post("/v1/policy", json={"moves": []}, headers={HEADER: given}), client.get("/livez")):
        assert len(answer.headers.get_list(HEADER)) == 1
    assert client.get("/livez", headers={HEADER: given}).headers[HEADER] == given


@pytest.mark.parametrize("given", ["", "a" * 129, "a b", 'a"b', "a,b", "ä".encode(), "\x1b[31m"])
def test_an_id_that_could_harm_a_log_is_replaced(client: TestClient, given: str | bytes) -> None:
    found = client.get("/livez", headers=[(b"X-Request-ID", given if isinstance(given, bytes) else given.encode())])
    assert len(found.headers[HEADER]) == 32
    assert int(found.headers[HEADER], 16) >= 0


def test_each_request_has_an_id_of_its_own(client: TestClient) -> None:
    assert len({client.get("/livez").headers[HEADER] for _ in range(50)}) == 50


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("POST", "/v1/policy", b'{"fen": "x"}', 422),
        ("POST", "/v1/policy", b"{", 400),
        ("POST", "/v1/policy", b'{"model": "none", "moves": []}', 404),
        ("POST", "/v1/policy", b'{"fen": "' + b"x" * 4000 + b'"}', 413),
        ("GET", "/none", b"", 404),
        ("GET", "/v1/policy", b"", 405),
    ],
)
def test_every_problem_has_the_id_of_the_header(serve: Serve, method: str, path: str, body: bytes, status: int) -> None:
    client = serve(max_body_bytes=1024)
    answer = client.request(method, path, content=body, headers={"Content-Type": "application/json", HEADER: "mine"})
    assert answer.status_code == status
    assert answer.headers["Content-Type"] == CONTENT_TYPE
    assert answer.json()["request_id"] == answer.headers[HEADER] == "mine"


def test_an_item_of_a_batch_has_none_and_an_answer_is_as_it_was(client: TestClient) -> None:
    answer = client.post("/v1/policy/batch", json={"positions": [{"fen": "x"}, {"moves": []}]})
    bad, good = answer.json()["results"]
    assert "request_id" not in bad["error"]
    assert "request_id" not in good


def test_a_bug_has_an_id_too(client: TestClient, caplog: pytest.LogCaptureFixture) -> None:
    def broken() -> None:
        raise RuntimeError("a bug")

    assert isinstance(client.app, FastAPI)
    client.app.add_api_route("/broken", broken)
    with caplog.at_level(logging.INFO):
        answer = client.get("/broken", headers={HEADER: "mine"})
    assert answer.status_code == 500
    assert answer.json()["request_id"] == answer.headers[HEADER] == "mine"
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert "GET /broken 500" in caplog.text


def test_positions_are_logged_and_bodies_are_not(client: TestClient, caplog: pytest.LogCaptureFixture) -> None:
    mate = "7k/5Q2/6K1/8/8/8/8/8 b - - 0 1"
    pgn = "1. e4 e5 2. Nf3 *"
    asked = [
        ("/v1/policy", {"fen": mate}, 1),
        ("/v1/policy/batch", {"positions": [{"fen": "secret"}, {"fen": mate}, {"moves": ["e2e4"]}]}, 2),
        ("/v1/games", {"pgn": pgn}, 3),
        ("/v1/audit", {"policy": {"e2e4": 1.0}}, 0),
        ("/v1/policy", {"fen": "secret"}, 0),
        ("/none?key=secret", {}, 0),
    ]
    client.headers[HEADER] = "mine"  # a drawn id may hold e2e4
    with caplog.at_level(logging.DEBUG):
        for path, body, _ in asked:
            client.post(path, json=body)
        stream = {"Accept": "application/x-ndjson"}
        client.post("/v1/policy/batch", json={"positions": [{"moves": []}] * 70}, headers=stream)
    lines = [one for one in caplog.records if one.name == "access"]
    assert [one.args[4] for one in lines] == [*(count for _, _, count in asked), 70]  # type: ignore[index]
    own = [one.getMessage() for one in caplog.records if one.name.startswith(("access", "movemask"))]
    assert not [line for line in own if "secret" in line or "e2e4" in line or "Nf3" in line]
