"""Broken answers: cut, late, of another type, of a proxy; each raises a MovemaskError that says what happened."""

from __future__ import annotations

import gzip
import json
import re
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from itertools import repeat
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import movemask
from movemask.errors import InvalidParameter
from tests.client.hostile import (
    FAULTS,
    HEAD,
    LATE,
    MODELS,
    Behaviour,
    Connection,
    answer,
    both,
    busy,
    chunked,
    chunks,
    endless,
    misbehaving,
    silent,
    whole,
)
from tests.processes import certificate


def call(url: str, method: str, *arguments: Any, timeout: float = 60, **options: Any) -> Any:
    """What a method of the blocking client returns, a generator's results as a list. It runs the coroutine of the other
    client, so that what holds for one holds for both."""
    with movemask.Client(url, timeout=timeout) as client:
        result = getattr(client, method)(*arguments, **options)
        return list(result) if isinstance(result, Iterator) else result


def seconds(words: str) -> float:
    """A timeout: short if it is what is to happen."""
    return 0.3 if words == LATE else 60


@pytest.mark.parametrize("fault", FAULTS)
def test_broken_answer_raises_with_reason(fault: str) -> None:
    behaviour, words = FAULTS[fault]
    with misbehaving(behaviour) as url, pytest.raises(movemask.MovemaskError, match=re.escape(words)):
        call(url, "models", timeout=seconds(words))


UNREACHABLE = movemask.ServiceUnreachable

POLICY = {
    **{"model": {"name": "x", "digest": "y"}, "fen": "f", "turn": "white", "status": "ongoing"},
    **{"moves": [], "ignored": []},
}
LINE = json.dumps(POLICY).encode() + b"\n"


MOVED = json.dumps(POLICY | {"moves": [{"uci": "e2e4", "probability": 0.5}]}).encode() + b"\n"


def stream(*pieces: bytes, ends: bool = True) -> Behaviour:
    return chunks(*pieces, kind="application/x-ndjson", ends=ends)


ANSWERS: list[tuple[str, tuple[Any, ...], bytes]] = [
    ("models", (), whole(MODELS)),
    ("models", (), whole(gzip.compress(MODELS), "Content-Encoding: gzip")),
    ("models", (), chunked(MODELS[:7], MODELS[7:])),
    ("policy", ("startpos",), whole(MOVED)),
    ("policies", (["startpos"] * 2,), chunked(LINE, MOVED, kind="application/x-ndjson")),
]


def test_changed_bytes_raise_only_movemask_errors() -> None:
    """Bytes cut out, put in, or changed anywhere in an answer: nothing but a MovemaskError comes of it."""
    sent = [b""]

    def behave(connection: Connection) -> None:
        connection.send(sent[0])

    with misbehaving(behave) as url:

        @given(
            st.sampled_from(ANSWERS), st.lists(st.tuples(st.floats(0, 1), st.integers(0, 20), st.binary(max_size=8)))
        )
        def check(answered: tuple[str, tuple[Any, ...], bytes], changes: list[tuple[float, int, bytes]]) -> None:
            method, arguments, data = answered
            for place, cut, put in changes:
                start = int(place * len(data))
                data = data[:start] + put + data[start + cut :]
            sent[0] = data
            with suppress(movemask.MovemaskError):
                call(url, method, *arguments)

        check()


STREAMS: dict[str, tuple[Behaviour, str]] = {
    "one line without end": (stream(*repeat(b"x" * 100_000, 500)), "a line of more than 8,388,608 bytes"),
    "empty lines without end": (stream(*repeat(b"\n" * 1000, 5000)), "the answer is not JSON: "),
    "more results than positions": (stream(LINE * 4), "more results than the 3 positions"),
    "results without end": (stream(*repeat(LINE, 100_000)), "more results than the 3 positions"),
    "fewer results": (stream(LINE * 2), "2 results for 3 positions"),
    "half a result": (stream(LINE * 2, LINE[:40]), "the answer is not JSON: EOF"),
    "closed between results": (stream(LINE * 2, ends=False), "RemoteProtocolError: "),
    "silence between results": (both(stream(LINE, ends=False), silent), LATE),
    "no end after the results": (both(stream(LINE * 3, ends=False), silent), LATE),
    "other results": (stream(b"{}\n" * 3), "the answer is not movemask's: "),
    "an infinite probability": (
        stream(MOVED.replace(b"0.5", b"1e999")),
        "probability: Input should be a finite number",
    ),
    "no stream": (answer(b'{"results": []}'), "application/json in place of application/x-ndjson"),
}


@pytest.mark.parametrize("fault", STREAMS)
def test_broken_stream_raises_with_reason(fault: str) -> None:
    behaviour, words = STREAMS[fault]
    with misbehaving(behaviour) as url, pytest.raises(movemask.MovemaskError, match=re.escape(words)):
        call(url, "policies", ["startpos"] * 3, timeout=seconds(words))


def test_results_before_fault_are_yielded() -> None:
    with misbehaving(stream(LINE * 2, ends=False)) as url, movemask.Client(url) as client:
        results = client.policies(["startpos"] * 3)
        assert [next(results), next(results)] == [next(results_of(LINE)), next(results_of(LINE))]
        with pytest.raises(movemask.ServiceUnreachable):
            next(results)


def results_of(line: bytes) -> Iterator[Any]:
    from movemask.schemas.answers import PolicyOut

    yield PolicyOut.model_validate_json(line)


def test_slow_stream_is_read_while_results_come() -> None:
    """Eight results at intervals of 0.3 s take longer than the timeout of 1.5 s, which holds for each."""
    slow = chunks(*repeat(LINE, 8), kind="application/x-ndjson", pause=0.3)
    with misbehaving(slow) as url:
        assert len(call(url, "policies", ["startpos"] * 8, timeout=1.5)) == 8


def test_lines_end_at_line_feeds_only() -> None:
    """Unicode's other line ends may stand in a JSON text as they are."""
    odd = {"error": {"type": "t", "title": "t", "status": 422, "detail": "a\u2028b\x85c"}}
    line = json.dumps(odd, ensure_ascii=False).encode() + b"\n"
    with misbehaving(stream(line)) as url:
        (result,) = call(url, "policies", ["startpos"])
    assert result.error.detail == "a\u2028b\x85c"


def test_pgn_without_length_raises() -> None:
    pgn = "application/x-chess-pgn"
    head = HEAD.replace(b"application/json", pgn.encode()) + b"\r\n"
    refused: dict[str, Behaviour] = {
        "without its length": lambda connection: connection.send(head + b"1. e4"),
        "is not UTF-8: invalid start byte at 6": answer(b"1. e4 \xff", kind=pgn),
    }
    for words, behaviour in refused.items():
        with misbehaving(behaviour) as url, pytest.raises(movemask.InvalidResponse, match=words):
            call(url, "annotate", "1. e4")
    with misbehaving(answer(b"1. e4 e5", kind=pgn)) as url:
        assert call(url, "annotate", "1. e4") == "1. e4 e5"


def test_endless_pages_end() -> None:
    page = json.dumps({"positions": [], "next": "7"}).encode()
    with misbehaving(answer(page)) as url, pytest.raises(movemask.InvalidResponse, match="names a next one"):
        call(url, "leakage_positions")


def test_server_that_does_not_read_times_out() -> None:
    """The request has 8 MB, more than the sockets hold; a few bytes are read now and then."""

    def slow_reader(connection: Connection) -> None:
        while connection.goes_on(0.05):
            connection.socket.recv(100)

    with misbehaving(slow_reader, reads=False) as url, pytest.raises(movemask.ServiceUnreachable, match=LATE):
        call(url, "games", "x" * 8_000_000, timeout=0.3)


def test_retries_end() -> None:
    requests: list[int] = []

    def behave(connection: Connection) -> None:
        requests.append(1)
        busy("0")(connection)

    with misbehaving(behave) as url, pytest.raises(movemask.ApiError, match="busy"):
        call(url, "models")
    assert len(requests) == 4


def test_wrong_certificate_or_protocol_is_named(tmp_path: Path) -> None:
    unknown = r"ConnectError: .*certificate verify failed"
    with misbehaving(answer(MODELS), certificate(tmp_path)) as url, pytest.raises(UNREACHABLE, match=unknown):
        call(url, "models")
    with misbehaving(answer(MODELS), reads=False) as url, pytest.raises(UNREACHABLE, match="it speaks http, not https"):
        call(url.replace("http", "https"), "models")
    with misbehaving(silent, reads=False) as url, pytest.raises(UNREACHABLE, match="not answered within 2 s"):
        call(url.replace("http", "https"), "models", timeout=2)


def test_tls_answers_time_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = certificate(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(files[0]))
    with misbehaving(answer(MODELS), files) as url:
        assert call(url, "models").models == []
    slow = endless(HEAD + b"Content-Length: 9999\r\n\r\n", b" ", 0.1)
    with misbehaving(slow, files) as url, pytest.raises(UNREACHABLE, match=LATE):
        call(url, "models", timeout=0.3)


def test_slow_name_lookup_times_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """The system's resolver takes no timeout: here it takes as long as the test."""
    ended = threading.Event()

    def look_up(*_: Any, **__: Any) -> Any:
        ended.wait(60)
        raise socket.gaierror

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    with pytest.raises(UNREACHABLE, match=LATE):
        call("http://x.example", "models", timeout=0.3)
    ended.set()
    monkeypatch.undo()
    with pytest.raises(UNREACHABLE, match=r"^http://no\.invalid/v1/models: ConnectError: "):
        call("http://no.invalid", "models")


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"url": "localhost:8000"}, "url: 'localhost:8000' is not an address, such as http://"),
    ({"url": "http://[::1"}, r"url: 'http://\[::1' is not an address: "),
    ({"url": "http://x:99999"}, "url: 'http://x:99999' is not an address, such as http://"),
    ({"url": "ftp://x"}, "url: 'ftp://x' is not an address, such as http://"),
    ({"url": "http://"}, "url: 'http://' is not an address, such as http://"),
    ({"url": ""}, "url: '' is not an address, such as http://"),
    ({"url": None}, "url: None is not a text, such as http://"),
    ({"url": "unix:"}, "url: 'unix:' names no socket"),
    ({"key": "se cret"}, "^key: is not one word of ASCII, as keys are$"),
    ({"key": "se\r\ncret: x"}, "^key: is not one word of ASCII, as keys are$"),
    ({"key": b"secret"}, "^key: is not one word of ASCII, as keys are$"),
    ({"timeout": 0}, "timeout: 0 is not a number of seconds above 0"),
    ({"timeout": None}, "timeout: None is not a number of seconds above 0"),
    ({"timeout": float("nan")}, "timeout: nan is not a number of seconds above 0"),
    ({"timeout": float("inf")}, "timeout: inf is not a number of seconds above 0"),
    ({"retries": -1}, "retries: -1 is not a whole number of at least 0"),
    ({"retries": 1.5}, "retries: 1.5 is not a whole number of at least 0"),
]


@pytest.mark.parametrize(("options", "words"), WRONG)
def test_invalid_client_arguments_raise(options: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidParameter, match=words):
        movemask.AsyncClient(**options)


def test_closed_client_raises() -> None:
    client = movemask.Client("http://127.0.0.1:9")
    client.close()
    with pytest.raises(movemask.ServiceUnreachable, match="this client was closed"):
        client.models()


def test_password_in_address_is_hidden() -> None:
    with misbehaving(lambda connection: None) as url, pytest.raises(movemask.ServiceUnreachable) as caught:
        call(url.replace("http://", "http://user:secret@"), "models")
    assert "secret" not in str(caught.value)
