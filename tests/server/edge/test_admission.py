"""Admission: bytes in flight, rates of clients and what requests cost."""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any

import pytest
from fastapi.testclient import TestClient
from opentelemetry.trace import get_tracer

from movemask.errors import Overloaded, RateLimited
from movemask.server.edge.context import RequestContext
from movemask.server.edge.limits import BytesInFlight, RateLimit
from movemask.server.edge.middleware import Edge
from movemask.server.edge.shared_rates import Rates
from movemask.server.edge.sites import Sites
from movemask.server.edge.traits import OTHER, Table
from tests.conftest import Serve
from tests.server.asking import refused


def asking(client: str) -> RequestContext:
    return RequestContext(id="1", traits=OTHER, client=client)


def add(flight: BytesInFlight, context: RequestContext, size: int = 1 << 20) -> None:
    flight.make_room(context, size)
    flight.hold(context, size)


def test_shares_of_bytes_in_flight() -> None:
    flight = BytesInFlight(8 << 20)
    first = asking("greedy")
    for _ in range(20):
        add(flight, first)  # more than all, but nobody else is there
    flight.release(first)
    responses = [asking("greedy") for _ in range(100)]
    for item in responses:
        flight.hold(item, 1 << 20)  # it is made, and must be somewhere; if it is not read, that keeps nobody else out
    others = [asking(f"other {number}") for number in range(4)]
    for item in others:
        add(flight, item)
    with pytest.raises(Overloaded, match="100 MiB of yours"):
        flight.make_room(asking("greedy"))
    for item in (*responses[4:], *others):
        flight.release(item)
    with pytest.raises(Overloaded, match="4 MiB of yours"):
        add(flight, asking("greedy"))
    for item in others:
        add(flight, item)
    little = [asking(f"little {number}") for number in range(2)]
    for item in little:  # who holds little has a quarter of the room beside
        add(flight, item)
    with pytest.raises(Overloaded, match="10 MiB are in flight"):
        add(flight, asking("another"), 4097)
    with pytest.raises(Overloaded, match="10 MiB are in flight"):
        add(flight, others[0], 1)
    for item in little:
        flight.release(item)
    for item in (*responses[:4], *others):
        flight.release(item)
    assert flight.total == 0


def test_small_requests_are_admitted_to_a_full_pool() -> None:
    """Twenty addresses and 80 MiB of unfinished bodies answered 503 to everybody."""
    flight = BytesInFlight(8 << 20)
    for number in range(30):
        flight.hold(asking(f"hostile {number}"), 1 << 20)
    small = asking("honest")
    flight.make_room(small)
    for _ in range(4):
        flight.take(small, 1024)
    with pytest.raises(Overloaded, match="30 MiB are in flight"):
        flight.take(small, 1)


@pytest.mark.parametrize(("megabytes", "pace"), [(3, 0), (4, 4096), (8, 4096), (9, 65_536)])
def test_slow_clients_give_way_as_the_pool_fills(megabytes: int, pace: int) -> None:
    flight = BytesInFlight(8 << 20)
    contexts = [asking(str(number)) for number in range(megabytes)]
    for context in contexts:
        flight.hold(context, 1 << 20)
    assert flight.least_pace == pace
    for context in contexts:
        flight.release(context)
    assert flight.least_pace == 0


def test_sent_bytes_are_released(client: TestClient) -> None:
    """Eight exports by two addresses held everybody off with bytes that had been read long ago."""
    sizes: list[int] = []
    app: Any = client.app
    in_flight: BytesInFlight = app.state.in_flight

    async def send(message: Any) -> None:
        sizes.append(in_flight.total)

    async def export(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for _ in range(100):
            await send({"type": "http.response.body", "body": b"x" * 300_000, "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    async def receive() -> Any:
        return {"type": "http.request", "body": b""}

    rate, tracer = RateLimit(0, 1, Rates()), get_tracer("test")
    edge = Edge(export, None, app.state.metrics, rate, in_flight, tracer, proxies=0, sites=Sites(["*"]), routes=Table())
    scope = {
        "type": "http",
        "method": "GET",
        "path": "/v1/x",
        "scheme": "http",
        "headers": [],
        "client": ("1.1.1.1", 1),
    }
    asyncio.run(edge(scope, receive, send))
    assert 0 < max(sizes) <= 300_000
    assert sizes[-1] == in_flight.total == 0


@pytest.mark.parametrize(
    ("clients", "head", "sent"),
    [(40, b"Content-Length: 2097152", b"{"), (20, b"Content-Length: 36000", b"{" + b" " * 30_000)],
)
def test_unfinished_bodies_block_nobody(service: int, clients: int, head: bytes, sent: bytes) -> None:
    body = json.dumps({"moves": []}).encode()
    whole = b"POST /v1/policy HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nConnection: close\r\n"

    async def trial(port: int) -> bytes:
        streams = []
        for _ in range(clients):
            streams.append(await asyncio.open_connection("127.0.0.1", port))
            begin = b"POST /v1/policy/batch HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            streams[-1][1].write(begin + head + b"\r\n\r\n" + sent)
            await streams[-1][1].drain()
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(whole + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        response = await asyncio.wait_for(reader.read(), 20)
        for _, item in (*streams, (reader, writer)):
            item.transport.abort()
        return response

    assert asyncio.run(trial(service)).startswith(b"HTTP/1.1 200 ")


def batch(size: int) -> dict[str, Any]:
    return {"positions": [{"fen": "startpos"}] * size}


def left(answer: Any) -> int:
    match = re.fullmatch(r'"positions";r=(\d+);t=(\d+)', answer.headers["RateLimit"])
    assert match is not None
    return int(match[1])


def test_rate_limit(serve: Serve) -> None:
    client = serve(client_rate=0.01, client_burst=10)
    first = client.post("/v1/policy", json={"moves": []})
    assert first.status_code == 200
    assert first.headers["RateLimit-Policy"] == '"positions";q=10;w=1000'
    assert left(first) == 9
    assert left(client.post("/v1/policy/batch", json=batch(6))) == 3
    assert client.post("/v1/policy/sweep", json={"moves": [], "ratings": [1000]}).status_code in (200, 422)
    more = client.post("/v1/policy/batch", json=batch(4))
    refused(more, 429, "rate-limited")
    assert int(more.headers["Retry-After"]) > 100
    assert left(more) == 1  # reading its body cost one
    assert client.get("/v1/models").status_code == 200
    assert client.get("/v1/models").status_code == 429
    for path in ("/livez", "/readyz", "/metrics"):
        assert client.get(path).status_code == 200
    assert 'movemask_rejected_total{reason="rate-limited"} 2.0' in client.get("/metrics").text


@pytest.mark.parametrize("body", [b"", b"{", b'{"fen": 1}', b'{"fen": "x"}'])
def test_invalid_request_costs_one(serve: Serve, body: bytes) -> None:
    client = serve(client_rate=0.01, client_burst=3)
    result = [
        client.post("/v1/policy", content=body, headers={"Content-Type": "application/json"}).status_code
        for _ in range(5)
    ]
    assert result[3:] == [429, 429]
    assert set(result[:3]) <= {400, 422}


def test_wrong_key_costs_its_address(serve: Serve) -> None:
    key = "a-key-of-some-length-and-more"
    client = serve(client_rate=0.01, client_burst=3, api_keys=key)

    def ask(path: str, **headers: str) -> int:
        return client.get(path, headers=headers).status_code

    wrong = [
        ask(path, Authorization=f"Bearer guess-{number}") for number in range(3) for path in ("/v1/models", "/metrics")
    ]
    assert wrong == [401, 401, 401, 429, 429, 429]
    assert ask("/v1/models") == 429  # nor without a key
    assert ask("/livez") == 200
    assert ask("/v1/models", Authorization=f"Bearer {key}") == 200


@pytest.mark.parametrize("accept", ["application/json", "application/x-chess-pgn"])
def test_cost_of_games(serve: Serve, accept: str) -> None:
    """Two moves and a comment of 10,000 characters cost 7,525 positions, and kept the client out for 25 minutes."""
    client = serve(client_rate=0.01, client_burst=100)

    def cost(pgn: str, *include: str) -> int:
        before = left(client.get("/v1/version")) - 1
        response = client.post("/v1/games", json={"pgn": pgn, "include": include}, headers={"Accept": accept})
        assert response.status_code == 200
        return before - left(response) + 1

    assert cost("1. e4 e5 *") == 1 + 2
    assert cost("1. e4 {" + "x" * 10_000 + "} e5 (1... c5 2. Nf3) *") == 1 + 2 + 2
    assert cost("1. e4 e5 2. Nf3 *\n\n1. d4 *", "forecast") == 1 + 4 * 4
    assert cost("1. Ke3 *") == 1
    refused(
        client.post("/v1/games", json={"pgn": "1. e4 e5 2. d4 d5 *\n\n" * 30}, headers={"Accept": accept}),
        429,
        "rate-limited",
    )


def test_cost_of_split(serve: Serve) -> None:
    """Half a million characters took 0.3 s and cost one position."""
    client = serve(client_rate=0.01, client_burst=1000)
    response = client.post("/v1/games/split", json={"pgn": "1. e4 e5 Nf3 " * 1_000})
    assert left(response) == 1000 - 1 - 13_000 // 4096


def test_bucket_refills() -> None:
    now = 0.0
    limit = RateLimit(5, 5, Rates(), clock=lambda: now)
    limit.charge(asking("one"), 5)
    with pytest.raises(RateLimited, match=r"exceeded: 5 positions requested, limit 5/s \(burst 5\)") as refused:
        limit.charge(asking("one"), 5)
    now = refused.value.retry_after
    limit.charge(asking("one"), 5)


def test_request_above_burst(serve: Serve) -> None:
    client = serve(client_rate=0.01, client_burst=5)
    assert left(client.post("/v1/policy/batch", json=batch(20))) == 0
    refused = client.post("/v1/policy", json={"moves": []})
    assert refused.status_code == 429
    assert int(refused.headers["Retry-After"]) >= 1500


FIRST, SECOND = "first-key-of-some-length", "second-key-of-some-length"


@pytest.mark.parametrize(
    ("header", "clients", "statuses"),
    [
        ("X-Forwarded-For", ["1.1.1.1", "1.1.1.1", "2.2.2.2"], [200, 429, 200]),
        ("X-Forwarded-For", ["2001:db8::1", "2001:db8::ffff", "2001:db8:0:1::1"], [200, 429, 200]),
        ("X-Forwarded-For", ["1.1.1.1, 9.9.9.9", "2.2.2.2, 9.9.9.9"], [200, 429]),
        ("X-Forwarded-For", ["::ffff:1.1.1.1", "::ffff:2.2.2.2", "1.1.1.1"], [200, 200, 429]),
        ("X-Forwarded-For", ["1.1.1.1:40001", "1.1.1.1:40002", "2.2.2.2:40001"], [200, 429, 200]),
        ("X-Forwarded-For", ["[2001:db8::1]:40001", "[2001:db8::1]:40002", "2001:db8::1"], [200, 429, 429]),
        ("Authorization", [f"Bearer {FIRST}", f"Bearer {FIRST}", f"Bearer {SECOND}"], [200, 429, 200]),
    ],
)
def test_keys_and_addresses_have_own_buckets(
    serve: Serve, header: str, clients: list[str], statuses: list[int]
) -> None:
    keys = f"{FIRST},{SECOND}" if header == "Authorization" else None
    client = serve(client_rate=0.01, client_burst=2, proxies=1, api_keys=keys)
    path, two = "/v1/policy/batch", batch(2)
    assert [client.post(path, json=two, headers={header: item}).status_code for item in clients] == statuses
