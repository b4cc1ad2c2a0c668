"""What everybody would lose to one request of rubbish; and what its sender is told."""

from __future__ import annotations

import json
import re
import threading
import tracemalloc
from typing import Any, ClassVar

import pytest
from fastapi import Request, Response
from fastapi.testclient import TestClient
from pydantic import BaseModel, field_validator

from movemask.api.routes import BodyLimits, Router
from movemask.api.state import AppServices

JSON = {"Content-Type": "application/json"}


def rubbish(field: str, item: str, size: int) -> bytes:
    return b'{"%s": [%s]}' % (field.encode(), ",".join([item] * (size // (len(item) + 1))).encode())


@pytest.mark.parametrize(
    ("path", "field", "size"),
    [
        ("/v1/policy", "moves", 36_000),
        ("/v1/policy", "include", 36_000),
        ("/v1/move", "moves", 36_000),
        ("/v1/policy/batch", "positions", 1_000_000),
        ("/v1/policy/batch", "include", 1_000_000),
        ("/v1/games", "pgn", 1_000_000),
        ("/v1/audit", "logits", 400_000),
        ("/v1/audit", "probabilities", 400_000),
        ("/v1/audit", "moves", 400_000),
    ],
)
@pytest.mark.parametrize("item", ["0", "[]", '"a"', "null"])
def test_rubbish_is_refused_with_one_error_and_little_memory(
    client: TestClient, path: str, field: str, size: int, item: str
) -> None:
    body = rubbish(field, item, size)
    client.post(path, content=b"{}", headers=JSON)  # what is made once is made now
    tracemalloc.start()
    try:
        answer = client.post(path, content=body, headers=JSON)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert answer.status_code == 422
    assert len(answer.json().get("errors", [0])) == 1
    assert re.search(f"{field}|objects and arrays|values", answer.json()["detail"])
    assert len(answer.content) < 1_000
    assert peak < 40 * len(body) + 2**20


def test_a_batchs_list_of_rubbish_is_one_error_in_its_place(client: TestClient) -> None:
    positions = [{"moves": [0] * 1_000}, {"moves": [0] * 1_025}, {str(i): 0 for i in range(64)}, {"moves": []}]
    answer = client.post("/v1/policy/batch", json={"positions": positions})
    few, many, unknown, good = answer.json()["results"]
    assert [error["field"] for error in few["error"]["errors"]] == ["moves[0]"]
    assert many["error"]["detail"] == "moves: 1025 moves, at most 1024 are taken"
    assert len(unknown["error"]["errors"]) == 20
    assert unknown["error"]["detail"].endswith("; and 59 more")
    assert good["status"] == "ongoing"


def test_an_object_of_countless_fields_is_refused(client: TestClient) -> None:
    countless = {str(i): 0 for i in range(65)}
    for path, body in (("/v1/policy", countless), ("/v1/policy/batch", {"positions": [countless]})):
        answer = client.post(path, json=body)
        assert answer.status_code == 422
        assert answer.json()["detail"] == "body: an object of 65 fields, at most 64 are taken"
        assert answer.json()["type"] == "urn:movemask:problem:limit-exceeded"


def test_what_a_route_may_need_is_taken_however_it_is_written(client: TestClient) -> None:
    """Not one honest request is too large: lists at their limits, indented, all text escaped."""

    def asked(path: str, body: Any) -> tuple[int, str]:
        answer = client.post(path, content=json.dumps(body, indent=8).encode(), headers=JSON)
        return answer.status_code, str(answer.json().get("detail", ""))

    moves = ["a7a8q", "e2e4"] * 512
    for path in ("/v1/policy", "/v1/move"):
        status, detail = asked(path, {"fen": "é" * 200, "moves": moves, "include": ["san", "logit", "statistics"]})
        assert (status, detail[:10]) == (422, "fen: 'éééé")
    status, detail = asked("/v1/games", {"pgn": "{" + "ж" * 499_980 + "} 1. e4 *"})
    assert status == 200
    clocks = " ".join(f"{{[%eval 0.1][%clk 0:03:{i % 60:02}]}}" for i in range(14_000))
    status, detail = asked("/v1/games", {"pgn": f"1. e4 {clocks} *"})
    assert status == 200
    logits = [1 / 3 + i * 1e-12 for i in range(1858)]
    there_and_back = ["g1f3", "g8f6", "f3g1", "f6g8"] * 256
    assert asked("/v1/audit", {"moves": there_and_back, "logits": logits, "vocabulary": "lc0-1858"})[0] == 200
    policy = {f"a1{i:05}": -0.1234567890123456e-300 for i in range(8_192)}
    assert asked("/v1/audit", {"fen": "startpos", "policy": policy})[1].startswith("policy")
    assert asked("/v1/policy/batch", {"positions": [{"moves": moves[:64]}] * 1024})[0] == 200


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        ("/v1/policy", '{"fen": "startpos", "fen": "8/8/8/8/8/8/8/8 w - - 0 1"}', "fen"),
        ("/v1/move", '{"moves": [], "elo": {"self": 1, "opponent": 2, "self": 3}}', "elo.self"),
        ("/v1/policy/batch", '{"positions": [{"moves": []}], "elo": 1, "elo": 1}', "elo"),
        ("/v1/policy/batch", '{"positions": [], "positions": [{"moves": []}]}', "positions"),
        ("/v1/policy", '{"fen": "startpos", "temperature": 1, "temperature": 1}', "temperature"),
        ("/v1/policy", '{"fen": "startpos", "elo": 1500, "elo": 1500}', "elo"),
        ("/v1/games", '{"pgn": "1. e4 *", "pgn": "1. d4 *"}', "pgn"),
        ("/v1/audit", '{"policy": {"e2e4": 0.5, "e2e4": 0.4}}', "policy.e2e4"),
        ("/v1/audit", '{"fen": null, "policy": {"e2e4": 1}, "\\u0066en": null}', "fen"),
    ],
)
def test_a_field_that_is_given_twice_is_named(client: TestClient, path: str, body: str, field: str) -> None:
    answer = client.post(path, content=body.encode(), headers=JSON)
    assert (answer.status_code, answer.json()["detail"]) == (422, f"{field}: is given twice")


def test_a_field_that_a_position_gives_twice_is_that_positions_error(client: TestClient) -> None:
    items = '{"moves": []}, {"moves": [], "moves": ["e2e4"]}, {"moves": [], "elo": {"self": 1, "self": 1}}'
    answer = client.post("/v1/policy/batch", content=f'{{"positions": [{items}]}}', headers=JSON)
    good, twice, within = answer.json()["results"]
    assert good["status"] == "ongoing"
    assert twice["error"]["errors"] == [{"field": "moves", "message": "is given twice"}]
    assert within["error"]["errors"][0] == {"field": "elo.self", "message": "is given twice"}


ONE = {"fen": "startpos"}


@pytest.mark.parametrize(
    ("path", "body", "fields"),
    [
        ("/v1/policy/sweep", {**ONE, "models": ["fake"], "vary": "both"}, ["vary"]),
        ("/v1/policy/sweep", {**ONE, "elo": 1500}, ["elo"]),
        ("/v1/audit", {**ONE, "policy": {"e2e4": 1}, "vocabulary": "lc0-1858"}, ["vocabulary"]),
        ("/v1/audit", {**ONE, "logits": [0.0]}, ["vocabulary"]),
        ("/v1/audit", {**ONE, "logits": [0.0], "policy": {"e2e4": 1}}, ["policy"]),
        ("/v1/audit", {**ONE, "logits": [0.0], "vocabulary": "lc0-1858", "castling": "king_takes_rook"}, ["castling"]),
        ("/v1/audit", ONE, ["body"]),  # any of three would do
        ("/v1/policy", [], ["body"]),
        ("/v1/move", {**ONE, "seed": 1}, ["seed"]),
    ],
)
def test_the_field_at_fault_is_named_and_once(client: TestClient, path: str, body: Any, fields: list[str]) -> None:
    problem = client.post(path, json=body).json()
    assert [error["field"] for error in problem["errors"]] == fields
    assert problem["detail"].count(f"{fields[0]}:") == 1


def test_depth_is_bounded(client: TestClient) -> None:
    for depth in (10, 60, 500, 20_000):
        body = b'{"positions": ' + b"[" * depth + b"]" * depth + b"}"
        answer = client.post("/v1/policy/batch", content=body, headers=JSON)
        assert answer.status_code in (200, 400)
        assert answer.status_code == 200 or answer.json()["detail"] == "body: nested too deeply"


class Noted(BaseModel):
    """A body that notes on which threads it is validated."""

    threads: ClassVar[list[str]] = []
    text: str

    @field_validator("text")
    @classmethod
    def note(cls, text: str) -> str:
        Noted.threads.append(threading.current_thread().name)
        return text


def test_a_large_body_is_validated_off_the_event_loop_and_each_once(client: TestClient) -> None:
    async def noted(request: Noted, http: Request, services: AppServices) -> Response:
        return Response(threading.current_thread().name)

    router = Router(tags=["tests"])
    router.post("/noted", limits=lambda _: BodyLimits(10_000_000, 100, 100, 100))(noted)
    client.app.state.posts["/noted"] = router.posts[0]  # type: ignore[attr-defined]
    for size, on_loop in ((10, True), (1_000_000, False)):
        Noted.threads.clear()
        loop = client.post("/noted", json={"text": "x" * size}).text
        assert (len(Noted.threads), Noted.threads[0] == loop) == (1, on_loop)
