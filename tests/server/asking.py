"""What tests of the web ask, and what an answer must be."""

from __future__ import annotations

from typing import Any

from fastapi.testclient import TestClient

from movemask.schemas.answers import TYPE_PREFIX
from movemask.server import problems


def asked(client: TestClient, path: str = "/v1/policy", **body: Any) -> Any:
    """The answer to a request that is valid; about the start position if it names none."""
    if not {"fen", "moves", "positions", "pgn"} & set(body):
        body["moves"] = []
    answer = client.post(path, json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


def refused(answer: Any, status: int, name: str, *words: str) -> Any:
    """The problem of an answer, which has this status and name, and these words in its detail."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == problems.CONTENT_TYPE
    body = answer.json()
    assert (body["type"], body["status"]) == (TYPE_PREFIX + name, status)
    assert body["title"]
    for word in words:
        assert word in body["detail"]
    return body


def sample(client: TestClient, line: str) -> float:
    """The value of one metric line."""
    for row in client.get("/metrics").text.splitlines():
        if row.startswith(line + " "):
            return float(row.rpartition(" ")[2])
    raise AssertionError(f"no {line}")
