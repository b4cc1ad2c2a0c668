"""What a client far away would lose: large answers that travel small, and streams that still come line by line."""

from __future__ import annotations

import gzip
import zlib
from typing import Any

import pytest
import zstandard
from fastapi.testclient import TestClient

from movemask.api.compression import LEAST, Gzip, Zstd, accepted

BATCH = {"positions": [{"fen": "startpos"}] * 64}


def raw(client: TestClient, coding: str, path: str = "/v1/policy/batch", **options: Any) -> tuple[Any, bytes]:
    """The response's headers, and its body as it travelled."""
    headers = {"Accept-Encoding": coding, **options.pop("headers", {})}
    with client.stream("POST", path, headers=headers, **options) as response:
        return response.headers, b"".join(response.iter_raw())


def without_timing(body: bytes) -> bytes:
    return body.partition(b'"timing"')[0]


def test_a_large_answer_is_compressed_when_asked(client: TestClient) -> None:
    _, plain = raw(client, "identity", json=BATCH)
    assert len(plain) > LEAST
    for coding, unpacked in (("gzip", gzip.decompress), ("zstd", lambda data: zstandard.decompress(data, 10**7))):
        headers, packed = raw(client, coding, json=BATCH)
        assert (headers["content-encoding"], headers["vary"]) == (coding, "Accept-Encoding")
        assert len(packed) < len(plain) / 5
        assert without_timing(unpacked(packed)) == without_timing(plain)


def test_small_answers_and_clients_that_do_not_ask_are_left_alone(client: TestClient) -> None:
    for coding, body in (
        ("gzip, zstd", {"positions": [{"fen": "startpos"}]}),
        ("gzip;q=0, zstd;q=0", BATCH),
        ("", BATCH),
    ):
        headers, packed = raw(client, coding, json=body)
        assert "content-encoding" not in headers
        assert packed.startswith(b'{"results":[')


def test_a_stream_is_compressed_line_by_line(client: TestClient) -> None:
    headers, packed = raw(client, "gzip", json=BATCH, headers={"Accept": "application/x-ndjson"})
    assert headers["content-encoding"] == "gzip"
    assert gzip.decompress(packed).count(b"\n") == 64


@pytest.mark.parametrize("coding", ["gzip", "zstd"])
def test_a_part_can_be_read_before_the_next_is_written(coding: str) -> None:
    compressor = Gzip() if coding == "gzip" else Zstd()
    reader: Any = zlib.decompressobj(31) if coding == "gzip" else zstandard.ZstdDecompressor().decompressobj()
    for line, last in ((b'{"a": 1}\n', False), (b'{"b": 2}\n', False), (b"", True)):
        assert reader.decompress(compressor.part(line, last=last)) == line


@pytest.mark.parametrize(
    ("header", "coding"),
    [
        ("gzip", "gzip"),
        ("gzip, deflate, br, zstd", "zstd"),
        ("zstd;q=0.5, gzip;q=0.8", "gzip"),
        ("GZIP;q=1", "gzip"),
        ("*", "zstd"),
        ("*, zstd;q=0", "gzip"),
        ("identity", None),
        ("br", None),
        ("gzip;q=0", None),
        ("gzip;q=x", None),
        ("", None),
    ],
)
def test_the_preferred_coding_is_taken(header: str, coding: str | None) -> None:
    assert accepted(header, ("zstd", "gzip")) == coding
