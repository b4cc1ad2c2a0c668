"""What a client far away would lose: large answers that travel small, and streams that still come line by line."""

from __future__ import annotations

import gzip
from typing import Any

import pytest
from fastapi.testclient import TestClient

BATCH = {"positions": [{"fen": "startpos"}] * 64}


def raw(client: TestClient, coding: str, body: Any, **headers: str) -> tuple[Any, bytes]:
    """The response's headers, and its body as it travelled."""
    headers["Accept-Encoding"] = coding
    with client.stream("POST", "/v1/policy/batch", headers=headers, json=body) as response:
        return response.headers, b"".join(response.iter_raw())


def without_timing(body: bytes) -> bytes:
    return body.partition(b'"timing"')[0]


def test_a_large_answer_is_compressed_when_asked(client: TestClient) -> None:
    _, plain = raw(client, "identity", BATCH)
    assert len(plain) > 16_384
    headers, packed = raw(client, "gzip", BATCH)
    assert (headers["content-encoding"], headers["vary"]) == ("gzip", "Accept-Encoding")
    assert len(packed) < len(plain) / 5
    assert without_timing(gzip.decompress(packed)) == without_timing(plain)


@pytest.mark.parametrize(("coding", "size"), [("gzip", 1), ("", 64), ("br", 64)])
def test_small_answers_and_clients_that_do_not_ask_are_left_alone(client: TestClient, coding: str, size: int) -> None:
    headers, packed = raw(client, coding, {"positions": [{"fen": "startpos"}] * size})
    assert "content-encoding" not in headers
    assert packed.startswith(b'{"results":[')


def test_a_stream_is_compressed_line_by_line(client: TestClient) -> None:
    headers, packed = raw(client, "gzip", BATCH, Accept="application/x-ndjson")
    assert headers["content-encoding"] == "gzip"
    assert gzip.decompress(packed).count(b"\n") == 64
