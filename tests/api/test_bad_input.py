"""What a user would lose: an error that names what is wrong, whatever is sent, and a log without crashes."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from fastapi.testclient import TestClient
from numpy.typing import NDArray

from movemask.api.schemas.answers import TYPE_PREFIX
from movemask.board.position import Position
from movemask.network.model import Model
from tests.api.asking import refused
from tests.conftest import Serve
from tests.networks import FixedSession, batch_of

JSON = {"Content-Type": "application/json"}
BARE = "4k3/8/8/8/8/8/8/4K2R w K -"


@pytest.fixture(autouse=True)
def no_crash_is_logged(caplog: pytest.LogCaptureFixture) -> Any:
    yield
    assert [entry for entry in caplog.records if entry.levelno >= logging.ERROR or entry.exc_info] == []


@pytest.mark.parametrize(
    ("body", "status", "name", "word"),
    [
        ({"fen": "x y z"}, 422, "invalid-fen", "'x y z'"),
        ({"fen": ""}, 422, "invalid-fen", "fen"),
        ({"fen": "rnbqkbnr/pppppppp/8/8/8/8/PPPPPPPP/RNBQKBNR"}, 422, "invalid-fen", "cut short: no side to move"),
        ({"fen": "kk6/8/8/8/8/8/8/KK6 w - - 0 1"}, 422, "invalid-position", "TOO_MANY_KINGS"),
        ({"fen": "P3k3/8/8/8/8/8/8/4K3 w - - 0 1"}, 422, "invalid-position", "PAWNS_ON_BACKRANK"),
        ({"fen": "x" * 10_000}, 422, "invalid-request", "fen: String should have at most 200 characters"),
        ({"moves": ["e2e4", "e2e4"]}, 422, "illegal-move", "moves[1]: 'e2e4' is not legal"),
        ({"moves": ["Nf4"]}, 422, "illegal-move", "moves[0]: 'Nf4' is not legal"),
        ({"moves": ["0000"]}, 422, "illegal-move", "moves[0]: '0000'"),
        ({"moves": ["g1f3", "g8f6", "f3g1", "f6g8"] * 300}, 422, "limit-exceeded", "1200 moves; at most 1024"),
        ({"moves": "e2e4"}, 422, "invalid-request", "moves: Input should be a valid list, got 'e2e4'"),
        ({"moves": [], "model": "maia-9"}, 404, "unknown-model", "'maia-9'; available: fake"),
        ({"temperature": 0}, 422, "invalid-request", "temperature: Input should be greater than 0, got 0"),
        ({"temperature": "hot"}, 422, "invalid-request", "temperature: Input should be a valid number, got 'hot'"),
        ({"temperature": True}, 422, "invalid-request", "temperature: Input should be a valid number, got true"),
        ({"elo": {"self": -1, "opponent": 1500}}, 422, "invalid-request", "elo.self"),
        ({"elo": {"self": 1500}}, 422, "invalid-request", "elo.opponent: is missing"),
        ({"elo": -1}, 422, "invalid-request", "elo: Input should be a rating from 0 to 5000, got -1"),
        (
            {"elo": True},
            422,
            "invalid-request",
            "elo: Input should be a rating, or an object of two: self and opponent",
        ),
        (
            {"fen": f"{BARE} 1000001 1"},
            422,
            "invalid-fen",
            "the half-move clock is 1000001; at most 1000000 is allowed",
        ),
        ({"fen": f"{BARE} 0 {10**60}"}, 422, "invalid-fen", f"the move number is {10**60}; at most 1000000"),
        ({"include": ["sans"]}, 422, "invalid-request", "include[0]"),
        ({"fenn": "x"}, 422, "invalid-request", "fenn: no such field"),
        ([], 422, "invalid-request", "body"),
    ],
)
def test_policy(client: TestClient, body: Any, status: int, name: str, word: str) -> None:
    refused(client.post("/v1/policy", json=body), status, name, word)


@pytest.mark.parametrize(
    ("body", "status", "name", "word"),
    [
        (b'{"temperature": NaN}', 422, "invalid-request", "temperature: Input should be a finite number, got nan"),
        (b'{"temperature": 1e999}', 422, "invalid-request", "got inf"),
        (b'{"fen": ', 400, "malformed-json", "Expecting value at character"),
        (b"", 422, "invalid-request", "body: is missing"),
        (b"null", 422, "invalid-request", "body: Input should be an object, got null"),
        (b"\xff\xfe", 400, "malformed-json", "body"),
        (b"[" * 64, 400, "malformed-json", "Expecting value at character 64"),
        (b"[" * 65, 422, "limit-exceeded", "body: more than 64 objects and arrays"),
        (('["\\"",' + "[" * 65).encode("utf-16"), 422, "limit-exceeded", "body: more than 64 objects and arrays"),
        (b'{"temperature": ' + b"9" * 10_000 + b"}", 400, "malformed-json", "body"),
        (b'{"fen": "\\ud800"}', 422, "invalid-", "fen"),
        ('{"fen": 1, "moves": []}'.encode("utf-16"), 422, "invalid-request", "fen: Input should be a valid string"),
    ],
)
def test_bytes_that_are_not_json_or_not_quite(
    client: TestClient, body: bytes, status: int, name: str, word: str
) -> None:
    answer = client.post("/v1/policy", content=body, headers=JSON)
    assert answer.status_code == status
    assert answer.json()["type"].startswith(TYPE_PREFIX + name)
    assert word in answer.json()["detail"]


@pytest.mark.parametrize("content_type", ["text/plain", "application/x-www-form-urlencoded", "application/jsonx", ""])
def test_a_wrong_content_type_says_which_to_send(client: TestClient, content_type: str) -> None:
    answer = client.post("/v1/policy", content=b"{}", headers={"Content-Type": content_type})
    refused(answer, 415, "unsupported-media-type", "send the body with Content-Type: application/json")


def test_a_compressed_body_is_refused_by_its_header(client: TestClient) -> None:
    answer = client.post("/v1/policy", content=b"{}", headers={**JSON, "Content-Encoding": "gzip"})
    refused(answer, 415, "unsupported-media-type", "Content-Encoding is 'gzip'")


def test_a_body_of_100_mb_is_refused_by_its_length_or_as_it_comes(client: TestClient) -> None:
    answer = client.post("/v1/policy", content=b" " * 100_000_000, headers=JSON)
    refused(answer, 413, "body-too-large", "100000000 bytes; at most 36864 are allowed")

    def chunks() -> Any:
        for _ in range(100):
            yield b" " * 1_000_000

    refused(client.post("/v1/policy", content=chunks(), headers=JSON), 413, "body-too-large", "over 36864 bytes")
    refused(
        client.post("/v1/policy/batch", content=chunks(), headers=JSON), 413, "body-too-large", "over 8388608 bytes"
    )


def test_1025_positions(client: TestClient) -> None:
    answer = client.post("/v1/policy/batch", json={"positions": [{"moves": []}] * 1025})
    refused(answer, 422, "limit-exceeded", "1025 positions; at most 1024")
    refused(client.post("/v1/policy/batch", json={"positions": []}), 422, "invalid-request", "positions")
    refused(client.post("/v1/policy/batch", json={"positions": "x"}), 422, "invalid-request", "positions")
    refused(client.post("/v1/policy/batch", json={"positions": [{"moves": []}], "model": "x"}), 404, "unknown-model")


def test_limits_are_settings(serve: Serve) -> None:
    client = serve(max_positions=2, max_moves=1, max_body_bytes=1024)
    refused(
        client.post("/v1/policy/batch", json={"positions": [{"moves": []}] * 3}), 422, "limit-exceeded", "at most 2"
    )
    refused(client.post("/v1/policy", json={"moves": ["e2e4", "e7e5"]}), 422, "limit-exceeded", "at most 1")
    refused(client.post("/v1/policy", json={"fen": " " * 2000}), 413, "body-too-large", "at most 1024")


def test_the_moves_of_a_whole_request_have_a_budget(client: TestClient) -> None:
    """1,000 positions of 1,024 moves each kept a core busy for 40 s."""
    allowed = [{"moves": ["e2e5"] * 1024}] * 64  # the first is illegal, so that none is played
    results = client.post("/v1/policy/batch", json={"positions": [*allowed, {"x": 1}]}).json()["results"]
    assert len(results) == 65
    for accept in ("application/json", "application/x-ndjson"):
        positions = {"positions": [*allowed, {"moves": ["e2e4"]}]}
        answer = client.post("/v1/policy/batch", json=positions, headers={"Accept": accept})
        refused(answer, 422, "limit-exceeded", "65537 moves in all; at most 65536")


@pytest.mark.parametrize(
    ("method", "path", "status", "allowed"),
    [
        ("POST", "/v1/nothing", 404, None),
        ("GET", "/v2/policy", 404, None),
        ("POST", "/v1/models", 405, "GET, HEAD"),
        ("DELETE", "/readyz", 405, "GET, HEAD"),
        ("POST", "/", 405, "GET, HEAD"),
        ("GET", "/v1/policy", 405, "POST"),
        ("PUT", "/v1/policy/batch", 405, "POST"),
    ],
)
def test_what_no_route_takes_is_told_before_what_a_body_lacks(
    client: TestClient, method: str, path: str, status: int, allowed: str | None
) -> None:
    answer = client.request(method, path, content=b"x=1", headers={"Content-Type": "application/x-www-form-urlencoded"})
    refused(answer, status, "not-found" if status == 404 else "method-not-allowed", f"{method} {path}")
    assert answer.headers.get("Allow") == allowed


def test_a_path_with_a_slash_is_sent_on_and_names_that_are_not_there_are_told(client: TestClient) -> None:
    assert client.post("/v1/policy/", json={"moves": []}).status_code == 200
    refused(client.get("/v1/models/x"), 404, "unknown-model", "'x'; available: fake")
    refused(client.get("/v1/leakage/worst", params={"kind": "served"}), 422, "unknown-kind", "'served'")
    refused(client.get("/v1/leakage/worst", params={"limit": 0}), 422, "invalid-request", "limit")
    refused(client.get("/v1/leakage", params={"model": "x"}), 404, "unknown-model")


def test_what_a_hostile_client_sends_is_not_echoed_whole(client: TestClient) -> None:
    answer = client.post("/v1/policy", json={"model": 5, "temperature": "9" * 15_000, "9" * 15_000: 0})
    assert len(answer.content) < 2_000


class TestFaultyNetworks:
    """A network that gives no usable logits is a 502 that names the slot."""

    @pytest.fixture(autouse=True)
    def no_crash_is_logged(self) -> None:
        """Here errors are logged: they are the operator's."""

    @pytest.mark.parametrize("bad", [np.nan, np.inf])
    def test_legal_logits_that_are_no_numbers(self, serve: Serve, bad: float) -> None:
        client = serve(prepare=lambda model: fixed(model, np.full(1880, bad, dtype=np.float32)))
        body = refused(
            client.post("/v1/policy", json={"moves": []}), 502, "model-error", "model fake", "slot", "legal move"
        )
        assert "rnbqkbnr" in body["detail"]

    def test_one_bad_row_spoils_only_itself(self, serve: Serve) -> None:
        def spoilt(model: Model) -> Model:
            logits = np.zeros(1880, dtype=np.float32)
            logits[batch_of(model, [Position.read()]).slots[0]] = np.nan
            return fixed(model, logits)

        client = serve(prepare=spoilt)
        bare = "7k/8/8/8/8/8/8/K7 w - - 0 1"
        results = client.post(
            "/v1/policy/batch", json={"positions": [{"fen": bare}, {"moves": []}, {"fen": bare}]}
        ).json()
        kinds = ["error" if "error" in result else result["status"] for result in results["results"]]
        assert kinds == ["ongoing", "error", "ongoing"]


def fixed(model: Model, logits: NDArray[np.float32]) -> Model:
    """The model with a network that always says this."""
    return replace(model, session=FixedSession(model.contract, logits))
