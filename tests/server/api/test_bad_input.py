"""Invalid bodies: errors that name the field, limits, memory."""

from __future__ import annotations

import gc
import gzip
import json
import logging
import re
import tracemalloc
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from fastapi.testclient import TestClient

from movemask.board.position import Position
from movemask.network.model import Array, Model
from movemask.server.api import routing
from movemask.server.api.body_reader import parsed
from tests.conftest import Serve
from tests.networks import FixedSession, batch_of
from tests.server.asking import asked, refused

JSON = {"Content-Type": "application/json"}
BARE = "4k3/8/8/8/8/8/8/4K2R w K -"


@pytest.fixture(autouse=True)
def no_crash_is_logged(caplog: pytest.LogCaptureFixture) -> Any:
    yield  # a network that gives no numbers is the operator's error
    crashes = [entry for entry in caplog.records if entry.levelno >= logging.ERROR or entry.exc_info]
    assert [entry for entry in crashes if "model fake" not in entry.getMessage()] == []


@pytest.mark.parametrize(
    ("body", "status", "name", "word"),
    [
        ({"fen": "x y z"}, 422, "invalid-fen", "'x y z' is not a FEN, such as"),
        ({"fen": "1. e4 e5"}, 422, "invalid-fen", "'1. e4 e5' looks like moves, not like a FEN; send them as `moves`"),
        ({"fen": "1. e4 e5 " * 30}, 422, "invalid-request", "; send them as `moves`, or a PGN to /v1/games"),
        ({"fen": "rnbqkbnr/pppppppp/8/8/8/8/PPPPPPPP/RNBQKBNR"}, 422, "invalid-fen", "cut short: no side to move"),
        ({"fen": "kk6/8/8/8/8/8/8/KK6 w - - 0 1"}, 422, "invalid-position", "TOO_MANY_KINGS"),
        ({"fen": "x" * 10_000}, 422, "invalid-request", "fen: String should have at most 200 characters"),
        ({"moves": ["e2e4", "e2e4"]}, 422, "illegal-move", "moves[1]: 'e2e4' is not legal"),
        ({"moves": ["Nf4"]}, 422, "illegal-move", "moves[0]: 'Nf4' is not legal"),
        ({"moves": ["g1f3", "g8f6", "f3g1", "f6g8"] * 300}, 422, "limit-exceeded", "1200 moves; at most 1024"),
        ({"moves": "e2e4"}, 422, "invalid-request", "moves: Input should be a valid array, got 'e2e4'; send a list"),
        ({"moves": ["1.", "e4"]}, 422, "illegal-move", "w KQkq - 0 1'; leave out move numbers"),
        ({"moves": [], "rating": 1500}, 422, "invalid-request", "rating: no such field (did you mean 'elo'?)"),
        ({"moves": [], "elo": "1500"}, 422, "invalid-request", "got '1500'; write a number without quotation marks"),
        ({"moves": [], "temperature": "1.5"}, 422, "invalid-request", "got '1.5'; write a number without quotation"),
        (b"", 422, "invalid-request", "body: is missing; send a JSON object"),
        ({"moves": [], "model": "maia-9"}, 404, "unknown-model", "'maia-9'; available: fake"),
        (
            {"temperature": -1},
            422,
            "invalid-request",
            "temperature: Input should be greater than or equal to 0, got -1",
        ),
        ({"elo": {"self": -1, "opponent": 1500}}, 422, "invalid-request", "elo.self"),
        ({"elo": {"self": 1500}}, 422, "invalid-request", "elo.opponent: is missing"),
        ({"elo": True}, 422, "invalid-request", "elo: Input should be a rating, or an object of two"),
        (
            {"fen": f"{BARE} 1000001 1"},
            422,
            "invalid-fen",
            "the half-move clock is 1000001; at most 1000000 is allowed",
        ),
        ({"fen": f"{BARE} 0 {10**60}"}, 422, "invalid-fen", f"the move number is {10**60}; at most 1000000"),
        (b'{"temperature": NaN}', 422, "invalid-request", "temperature: Input should be a finite number, got nan"),
        (b'{"temperature": 1e999}', 422, "invalid-request", "got inf"),
        (b'{"fen": ', 400, "malformed-json", "body: not valid JSON (line 1, column 8): it ends too early"),
        (b"nope", 400, "malformed-json", "body: not valid JSON (line 1, column 2)"),
        (b'{"moves": [],}', 400, "malformed-json", "body: not valid JSON (line 1, column 14): trailing comma"),
        (b"null", 422, "invalid-request", "body: Input should be an object, got null"),
        (b"[" * 64, 400, "malformed-json", "not valid JSON (line 1, column 64): it ends too early"),
        (
            b'{"temperature": ' + b"9" * 10_000 + b"}",
            400,
            "malformed-json",
            "body: number out of range (line 1, column ",
        ),
        (b'{"fen": "\\ud800"}', 400, "malformed-json", "hex escape"),
        (b'{"moves": ["e4", "\\ud83d"]}', 400, "malformed-json", "hex escape"),
        (b'{"moves": [], "model": "\\udc00"}', 400, "malformed-json", "hex escape"),
        ('{"fen": 1, "moves": []}'.encode("utf-16-le"), 400, "malformed-json", "not valid JSON (line 1, column 2)"),
        ('{"fen": 1, "moves": []}'.encode("utf-16"), 400, "malformed-json", "body: is not UTF-8: byte 0xff at 0"),
        ('{"moves": [], "model": "Müller"}'.encode("latin-1"), 400, "malformed-json", "not UTF-8: byte 0xfc at 25"),
        (b'\xef\xbb\xbf{"fen": "x"}', 422, "invalid-fen", "fen: 'x' is not a FEN"),
    ],
)
def test_invalid_policy_request(client: TestClient, body: Any, status: int, name: str, word: str) -> None:
    content = body if isinstance(body, bytes) else json.dumps(body)
    refused(client.post("/v1/policy", content=content, headers=JSON), status, name, word)


@pytest.mark.parametrize("content_type", ["text/plain", "application/x-www-form-urlencoded", "application/jsonx", ""])
def test_wrong_content_type(client: TestClient, content_type: str) -> None:
    response = client.post("/v1/policy", content=b"{}", headers={"Content-Type": content_type})
    refused(response, 415, "unsupported-media-type", "send the body with Content-Type: application/json")


def test_unknown_content_encoding(client: TestClient) -> None:
    response = client.post("/v1/policy", content=b"{}", headers={**JSON, "Content-Encoding": "br"})
    refused(response, 415, "unsupported-media-type", "Content-Encoding is 'br'; send the body with gzip")
    assert response.headers["Accept-Encoding"] == "gzip"


def test_body_of_100_mb_is_rejected_early(client: TestClient) -> None:
    response = client.post("/v1/policy", content=b" " * 100_000_000, headers=JSON)
    refused(response, 413, "body-too-large", "100000000 bytes; at most 65536 are allowed")

    def chunks() -> Any:
        for _ in range(100):
            yield b" " * 1_000_000

    for path, size in (("/v1/policy", 65_536), ("/v1/policy/batch", 2_097_152)):
        refused(client.post(path, content=chunks(), headers=JSON), 413, "body-too-large", f"over {size} bytes")


def test_limits_are_settings(client: TestClient, serve: Serve) -> None:
    response = client.post("/v1/policy/batch", json={"positions": [{"moves": []}] * 1025})
    refused(response, 422, "limit-exceeded", "positions: 1025 positions; at most 1024")
    refused(client.post("/v1/policy/batch", json={"positions": []}), 422, "invalid-request", "positions: is empty")
    (item,) = client.post("/v1/policy/batch", json={"positions": ["startpos"]}).json()["results"]
    assert item["error"]["detail"].endswith("""got 'startpos'; send an object, such as {"fen": "startpos"}""")
    tight = serve(max_positions=2, max_moves=1, max_body_bytes=1024)
    for path, body, status, name, words in (
        ("/v1/policy/batch", {"positions": [{"moves": []}] * 3}, 422, "limit-exceeded", "at most 2"),
        ("/v1/policy", {"moves": ["e2e4", "e7e5"]}, 422, "limit-exceeded", "at most 1"),
        ("/v1/policy", {"fen": " " * 2000}, 413, "body-too-large", "at most 1024"),
    ):
        refused(tight.post(path, json=body), status, name, words)


def test_batch_moves_are_limited_together(client: TestClient) -> None:
    """1,000 positions of 1,024 moves each kept a core busy for 40 s."""
    allowed = [{"moves": ["e2e5"] * 1024}] * 64  # the first is illegal, so that none is played
    results = client.post("/v1/policy/batch", json={"positions": [*allowed, {"x": 1}]}).json()["results"]
    assert len(results) == 65
    for accept in ("application/json", "application/x-ndjson"):
        positions = {"positions": [*allowed, {"moves": ["e2e4"]}]}
        response = client.post("/v1/policy/batch", json=positions, headers={"Accept": accept})
        refused(response, 422, "limit-exceeded", "65537 moves in all; at most 65536")


@pytest.mark.parametrize(
    ("method", "path", "status", "allowed", "next_step"),
    [
        ("POST", "/v1/nothing", 404, None, ""),
        ("POST", "/x", 404, None, "/docs lists the paths"),
        ("DELETE", "/readyz", 405, "GET, HEAD, OPTIONS", "use GET"),
        ("POST", "/", 405, "GET, HEAD, OPTIONS", "use GET"),
        ("GET", "/v1/move", 405, "POST, OPTIONS", "use POST"),
        ("DELETE", "/v1/policy", 405, "GET, HEAD, POST, OPTIONS", "use GET or POST"),
        ("GET", "/v1/models/", 404, None, "did you mean '/v1/models'?"),
        ("POST", "/v1/policy/", 404, None, "did you mean '/v1/policy'?"),
        ("POST", "/v1/polcy", 404, None, "did you mean '/v1/policy'?"),
        ("POST", "/policy", 404, None, "did you mean '/v1/policy'?"),
        ("GET", "/livez/", 404, None, "did you mean '/livez'?"),
        ("GET", "/docs/", 404, None, "did you mean '/docs'?"),
    ],
)
def test_unknown_query_parameter_comes_before_body_errors(
    client: TestClient, method: str, path: str, status: int, allowed: str | None, next_step: str
) -> None:
    response = client.request(
        method, path, content=b"x=1", headers={"Content-Type": "application/x-www-form-urlencoded"}
    )
    refused(response, status, "not-found" if status == 404 else "method-not-allowed", f"{method} {path}")
    assert response.headers.get("Allow") == allowed
    assert next_step in response.json()["detail"]


@pytest.mark.parametrize("path", ["/livez", "/readyz", "/metrics", "/v1/models", "/v1/move", "/"])
def test_options_lists_methods(client: TestClient, path: str) -> None:
    response = client.options(path)
    assert (response.status_code, response.content) == (204, b"")
    methods = response.headers["Allow"]
    assert methods == ("POST, OPTIONS" if path == "/v1/move" else "GET, HEAD, OPTIONS")
    refused(client.options("/nothing"), 404, "not-found")


def packed(body: bytes) -> tuple[bytes, dict[str, str]]:
    return gzip.compress(body), {**JSON, "Content-Encoding": "gzip"}


def test_gzip_body(client: TestClient) -> None:
    for body in ({"moves": ["e2e4"]}, {"moves": ["e2e4", "e7e5"] + ["g1f3", "g8f6", "f3g1", "f6g8"] * 200}):
        content, headers = packed(json.dumps(body).encode())
        response = client.post("/v1/policy", content=content, headers=headers)
        assert response.status_code == 200, response.text
        assert response.json()["moves"] == asked(client, moves=body["moves"])["moves"]
    large = json.dumps({"positions": [{"fen": "startpos"}] * 500}).encode() + b" " * 500_000
    content, headers = packed(large)
    for sent in (content, (content[at : at + 100] for at in range(0, len(content), 100))):
        response = client.post("/v1/policy/batch", content=sent, headers=headers)
        assert len(response.json()["results"]) == 500


def test_unpacked_gzip_is_limited(serve: Serve) -> None:
    client = serve(max_body_bytes=1 << 20)
    bomb, headers = packed(b"{" + b" " * (64 << 20))
    assert len(bomb) < 100_000
    tracemalloc.start()
    try:
        refused(client.post("/v1/policy/batch", content=bomb, headers=headers), 413, "body-too-large", "over 1048576")
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()
    endless = (gzip.compress(b"", mtime=0) for _ in range(100_000))
    refused(client.post("/v1/policy/batch", content=endless, headers=headers), 413, "body-too-large", "over 1048576")


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda body: body[:-4], "cut off"),
        (lambda body: body[: len(body) // 2], "cut off"),
        (lambda body: b"", "cut off"),
        (lambda body: b"{}", "is not gzip"),
        (lambda body: body[:-8] + b"12345678", "is not gzip"),
        (lambda body: body + b"more", "followed by other data"),
        (lambda body: body + body, "followed by other data"),
    ],
)
def test_damaged_gzip(client: TestClient, spoil: Callable[[bytes], bytes], words: str) -> None:
    content, headers = packed(b'{"moves": []}')
    refused(client.post("/v1/policy", content=spoil(content), headers=headers), 400, "malformed-json", words)


def test_unpacked_gzip_counts_as_bytes_in_flight(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("movemask.server.app.MOST_BYTES", 1 << 20)
    client = serve()
    sizes: list[int] = []
    in_flight = client.app.state.in_flight  # type: ignore[attr-defined]

    def noted(*arguments: Any) -> Any:
        sizes.append(in_flight.total)
        return parsed(*arguments)

    monkeypatch.setattr(routing, "parsed", noted)
    content, headers = packed(json.dumps({"positions": [{"fen": "startpos"}]}).encode() + b" " * 300_000)
    assert client.post("/v1/policy/batch", content=content, headers=headers).status_code == 200
    assert sizes[0] >= 300_000
    assert in_flight.total == 0


def test_unknown_names(client: TestClient) -> None:
    refused(client.get("/v1/models/x"), 404, "unknown-model", "'x'; available: fake")
    refused(client.get("/v1/leakage/worst", params={"kind": "served"}), 422, "unknown-kind", "'served'")
    refused(client.get("/v1/leakage/worst", params={"limit": 0}), 422, "invalid-request", "limit")
    refused(client.get("/v1/leakage", params={"model": "x"}), 404, "unknown-model")


def test_long_values_come_back_shortened(client: TestClient) -> None:
    response = client.post("/v1/policy", json={"model": 5, "temperature": "9" * 15_000, "9" * 15_000: 0})
    assert len(response.content) < 2_000


@pytest.mark.parametrize("length", [200, 60_000])
def test_long_model_name_comes_back_shortened(client: TestClient, length: int) -> None:
    """A name of 2,000,000 characters came back twice."""
    name = "a" * length
    responses = [
        client.post("/v1/policy", json={"moves": [], "model": name}),
        client.post("/v1/policy/batch", json={"positions": [{"moves": []}], "model": name}),
        client.post("/v1/policy/sweep", json={"moves": [], "models": [name]}),
        client.post("/v1/games", json={"pgn": "1. e4 *", "model": name}),
        client.get("/v1/policy", params={"fen": "startpos", "model": name}),
        client.get("/v1/leakage", params={"model": name}),
        client.get(f"/v1/models/{name}"),
        client.get(f"/v1/vocabularies/{name}"),
    ]
    for response in responses:
        assert response.status_code in (404, 422)
        assert len(response.content) < 1_000


class Crashing(FixedSession):
    """A runtime that has no memory left."""

    def logits_of(self, inputs: Sequence[Array]) -> Array:
        raise RuntimeError("out of memory")


@pytest.mark.parametrize(
    ("session", "words"),
    [(FixedSession, ("slot", "legal move", "rnbqkbnr")), (Crashing, ("RuntimeError: out of memory",))],
)
def test_failing_network_is_502(serve: Serve, session: type[FixedSession], words: tuple[str, ...]) -> None:
    nothing = np.full(1880, np.nan, dtype=np.float32)
    client = serve(prepare=lambda model: replace(model, session=session(model.contract, nothing)))
    refused(client.post("/v1/policy", json={"moves": []}), 502, "model-error", "model fake", *words)


def test_nan_row_fails_alone(serve: Serve) -> None:
    def spoilt(model: Model) -> Model:
        logits = np.zeros(1880, dtype=np.float32)
        logits[batch_of(model, [Position.read()]).slots[0]] = np.nan
        return replace(model, session=FixedSession(model.contract, logits))

    bare = {"fen": "7k/8/8/8/8/8/8/K7 w - - 0 1"}
    results = asked(serve(prepare=spoilt), "/v1/policy/batch", positions=[bare, {"moves": []}, bare])["results"]
    kinds = ["error" if "error" in result else result["status"] for result in results]
    assert kinds == ["ongoing", "error", "ongoing"]


def rubbish(field: str, item: str, size: int) -> bytes:
    return b'{"%s": [%s]}' % (field.encode(), ",".join([item] * (size // (len(item) + 1))).encode())


#: Pieces of bodies that cost most to parse for their bytes, as often as a body holds them.
HUGE = {
    "emptylists": "[]",
    "dicts": '{"a":{"b":{}}}',
    "deep200": "[" * 190 + "]" * 190,
    "floats": "1.5",
    "keys": '{"k":1}',
    "texts": '""',
}


def huge(shape: str, size: int) -> bytes:
    piece = HUGE[shape]
    return ('{"x": [' + f"{piece}," * ((size - 20) // (len(piece) + 1)) + "0]}").encode()


@pytest.mark.parametrize(
    ("path", "field", "size"),
    [
        ("/v1/policy", "moves", 36_000),
        ("/v1/policy/batch", "positions", 1_000_000),
        ("/v1/policy/batch", "include", 1_000_000),
        ("/v1/games", "pgn", 1_000_000),
        ("/v1/audit", "logits", 400_000),
        ("/v1/audit", "moves", 400_000),
    ],
)
@pytest.mark.parametrize("item", ["0", "[]", '"a"'])
def test_hostile_bodies_use_little_memory(client: TestClient, path: str, field: str, size: int, item: str) -> None:
    body = rubbish(field, item, size)
    client.post(path, content=b"{}", headers=JSON)  # what is made once is made now
    tracemalloc.start()
    try:
        response = client.post(path, content=body, headers=JSON)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert response.status_code in (413, 422)
    assert len(response.json().get("errors", ())) <= 2  # of each list, the first; and that a batch has no positions
    assert re.search(f"{field}|brackets and commas", response.json()["detail"])
    assert len(response.content) < 1_000
    assert peak < 40 * len(body) + 2**20


@pytest.mark.parametrize("shape", HUGE)
@pytest.mark.parametrize("path", ["/v1/policy/batch", "/v1/policy/sweep", "/v1/games", "/v1/games/split", "/v1/audit"])
def test_too_many_values_are_rejected_before_parsing(
    client: TestClient, monkeypatch: pytest.MonkeyPatch, path: str, shape: str
) -> None:
    """One client's bodies of 2 MiB held every worker for half a second each, and took 500 MB."""
    monkeypatch.setattr(routing, "parsed", None)
    size = 2**19 if path in ("/v1/policy/sweep", "/v1/audit") else 2**21
    body = huge(shape, size)
    detail = refused(client.post(path, content=body, headers=JSON), 413, "body-too-large")["detail"]
    assert re.fullmatch(r"body: \d+ brackets and commas; at most \d+ are allowed \(what a .* can need\)", detail)


def test_brackets_in_texts_are_not_counted(client: TestClient) -> None:
    comment = r"\"[[{{,," * 20_000
    response = client.post("/v1/games/split", json={"pgn": f'[Event "\\"]\n1. e4 {{{comment}}} *'})
    assert response.status_code == 200


def test_rejected_bodies_leave_no_garbage(client: TestClient) -> None:
    """One connection's refused bodies took 2.7 GB in 12 s: each was held by a cycle of its error's traceback."""
    shapes = {
        "open": b'{"positions": [' + b'{"fen":"x"},' * 40_000,
        "strings": json.dumps({"positions": ["x" * 30] * 10_000}).encode(),
        "badjson": b'{"fen": "' + b"x" * 500_000,
        "unknown": json.dumps({"positions": [], "zzz": "x" * 500_000}).encode(),
        "fields": json.dumps({f"z{i}": 0 for i in range(5_000)}).encode(),
        "large": b" " * 3_000_000,
    }
    unpacked = {"Content-Encoding": "gzip"}
    for name, body in shapes.items():
        packed = (gzip.compress(body, 1), JSON | unpacked)
        for content, headers in ((body, JSON), packed) if name == "unknown" else (packed,):
            assert client.post("/v1/policy/batch", content=content, headers=headers).status_code in (400, 413, 422)
            gc.collect()
            tracemalloc.start()
            gc.disable()
            try:
                for _ in range(4):
                    client.post("/v1/policy/batch", content=content, headers=headers)
                sizes, _ = tracemalloc.get_traced_memory()
            finally:
                gc.enable()
                tracemalloc.stop()
            assert sizes < 2 * len(content) + 2**20, name  # of four; the client keeps some


def test_invalid_list_in_batch_is_one_error(client: TestClient) -> None:
    positions = [{"moves": [0] * 1_000}, {"moves": [0] * 1_025}, {str(i): 0 for i in range(63)}, {"moves": []}]
    response = client.post("/v1/policy/batch", json={"positions": positions})
    few, many, unknown, good = response.json()["results"]
    assert [error["field"] for error in few["error"]["errors"]] == ["moves[0]"]
    assert many["error"]["detail"] == "moves: 1025 moves; at most 1024 are allowed"
    assert len(unknown["error"]["errors"]) == 20
    assert unknown["error"]["detail"].endswith("; and 58 more")
    assert good["status"] == "ongoing"


def test_object_with_too_many_fields(client: TestClient) -> None:
    countless = {str(i): 0 for i in range(65)}
    refused(client.post("/v1/policy", json=countless), 422, "limit-exceeded", "body: 65 errors, such as unknown fields")
    (item,) = client.post("/v1/policy/batch", json={"positions": [countless]}).json()["results"]
    assert item["error"]["detail"].startswith("position: 65 errors, such as unknown fields")


def test_largest_valid_bodies_are_accepted(client: TestClient) -> None:
    """Not one honest request is too large: lists at their limits, indented, all text escaped."""

    def told(path: str, body: Any) -> tuple[int, str]:
        response = client.post(path, content=json.dumps(body, indent=8).encode(), headers=JSON)
        return response.status_code, str(response.json().get("detail", ""))

    moves = ["a7a8q", "e2e4"] * 512
    for path in ("/v1/policy", "/v1/move"):
        status, detail = told(path, {"fen": "é" * 200, "moves": moves, "include": ["san", "logit", "statistics"]})
        assert (status, detail[:10]) == (422, "fen: 'éééé")
    status, detail = told("/v1/games", {"pgn": "{" + "ж" * 300_000 + "} 1. e4 *"})
    assert status == 200
    clocks = " ".join(f"{{[%eval 0.1][%clk 0:03:{i % 60:02}]}}" for i in range(14_000))
    status, detail = told("/v1/games", {"pgn": f"1. e4 {clocks} *"})
    assert status == 200
    logits = [1 / 3 + i * 1e-12 for i in range(1858)]
    there_and_back = ["g1f3", "g8f6", "f3g1", "f6g8"] * 256
    assert told("/v1/audit", {"moves": there_and_back, "logits": logits, "vocabulary": "lc0-1858"})[0] == 200
    policy = {f"a1{i:05}": -0.1234567890123456e-300 for i in range(8_192)}
    assert told("/v1/audit", {"fen": "startpos", "policy": policy})[1].startswith("policy")
    assert told("/v1/policy/batch", {"positions": [{"moves": moves[:40]}] * 1024})[0] == 200


ONE = {"fen": "startpos"}


@pytest.mark.parametrize(
    ("path", "body", "fields"),
    [
        ("/v1/policy/sweep", {**ONE, "models": ["fake"], "vary": "both"}, ["vary"]),
        ("/v1/policy/sweep", {**ONE, "elo": 1500}, ["elo"]),
        ("/v1/audit", {**ONE, "logits": [0.0]}, ["vocabulary"]),
        ("/v1/audit", {**ONE, "logits": [0.0], "policy": {"e2e4": 1}}, ["policy"]),
        ("/v1/audit", {**ONE, "logits": [0.0], "vocabulary": "lc0-1858", "castling": "king_takes_rook"}, ["castling"]),
        ("/v1/audit", ONE, ["body"]),  # any of three would do
        ("/v1/policy", [], ["body"]),
        ("/v1/move", {**ONE, "seed": 1}, ["seed"]),
    ],
)
def test_errors_name_each_field_once(client: TestClient, path: str, body: Any, fields: list[str]) -> None:
    problem = client.post(path, json=body).json()
    assert [error["field"] for error in problem["errors"]] == fields
    assert problem["detail"].count(f"{fields[0]}:") == 1


def test_deep_nesting(client: TestClient) -> None:
    for depth in (10, 60, 500, 20_000):
        body = b'{"positions": ' + b"[" * depth + b"]" * depth + b"}"
        response = client.post("/v1/policy/batch", content=body, headers=JSON)
        assert response.status_code in (200, 400)
        assert response.status_code == 200 or response.json()["detail"].startswith(
            "body: nested too deeply (line 1, column "
        )
