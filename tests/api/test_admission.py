"""What everybody would lose: their place, to clients that send slowly or hold much, or to a queue that only grows."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from movemask.api.admission import GOAL, Admission, Held, InFlight
from movemask.api.metrics import Metrics
from movemask.api.request_context import RequestContext, request_context
from movemask.errors import Overloaded
from movemask.settings import Settings
from tests.networks import write_fake
from tests.processes import served


def fill(flight: InFlight) -> list[Held]:
    """As many requests as are let in."""
    taken: list[Held] = []
    while not flight.full:
        taken.append(Held(flight, "somebody"))
        taken[-1].enter()
    return taken


def test_fewer_requests_are_let_in_while_all_take_too_long_and_more_again_later() -> None:
    now = [0.0]
    flight = InFlight(Settings.read(max_requests=200), lambda: now[0])

    def room(seconds: float, rounds: int) -> int:
        """How many are let in after so many rounds in which each takes `seconds`."""
        for _ in range(rounds):
            taken = fill(flight)
            now[0] += seconds
            for one in taken:
                one.leave()
        return len(taken)

    assert room(0.001, 3) == 200
    assert room(2 * GOAL, 40) == 64
    assert room(0.01, 2000) == 200


def test_long_requests_alone_bring_back_what_short_ones_have_lost() -> None:
    now = [0.0]
    flight = InFlight(Settings.read(max_requests=100), lambda: now[0])
    for _ in range(20):
        for one in fill(flight):
            now[0] += 2 * GOAL
            one.leave()
    begun = fill(flight)
    assert len(begun) == 64
    for _ in range(40):
        begun += fill(flight)
        now[0] += 1
        request_context.set(RequestContext(positions=1024))
        for one in begun:
            one.leave()
        request_context.set(None)
        taken, begun = len(begun), []
    assert taken == 100


def test_a_few_slow_requests_keep_nobody_out() -> None:
    now = [0.0]
    flight = InFlight(Settings.read(max_requests=50), lambda: now[0])
    for _ in range(100):
        slow, quick = Held(flight, "slow"), Held(flight, "quick")
        slow.enter()
        now[0] += 1
        quick.enter()
        quick.leave()
        slow.leave()
    assert len(fill(flight)) == 50


def test_a_client_has_half_of_the_room_and_a_lone_request_all() -> None:
    flight = InFlight(Settings.read(max_in_flight_mb=8))
    first = Held(flight, "greedy")
    for _ in range(20):
        first.add(1 << 20)  # more than all, but nobody else is there
    first.release()
    parts = [Held(flight, "greedy") for _ in range(5)]
    for one in parts[:4]:
        one.add(1 << 20)
    with pytest.raises(Overloaded, match="4 MiB of yours"):
        parts[4].add(1 << 20)
    others = [Held(flight, f"other {number}") for number in range(4)]
    for one in others:
        one.add(1 << 20)
    with pytest.raises(Overloaded, match="8 MiB are in flight"):
        Held(flight, "another").add(1)
    for one in (*parts, *others):
        one.release()
    assert (flight.bytes, flight.requests) == (0, 0)


def test_answers_that_one_client_does_not_read_keep_nobody_else_out() -> None:
    flight = InFlight(Settings.read(max_in_flight_mb=8))
    answers = [Held(flight, "greedy") for _ in range(100)]
    for one in answers:
        one.keep(1 << 20)  # it is made, and must be somewhere
    other = Held(flight, "other")
    other.add(1 << 20)
    other.enter()
    assert not flight.full
    with pytest.raises(Overloaded, match="100 MiB of yours"):
        flight.make_room(0, "greedy", 0)
    flight.make_room(0, "another", 0)
    for one in (*answers, other):
        one.release()
    assert (flight.bytes, flight.requests) == (0, 0)


def test_a_request_counts_once_from_its_last_byte_to_the_first_of_its_answer() -> None:
    flight = InFlight(Settings.read(max_requests=1))
    one, two = Held(flight, "a"), Held(flight, "b")
    one.add(100)
    assert not flight.full
    one.enter()
    one.enter()
    assert flight.requests == 1
    with pytest.raises(Overloaded, match="1 requests"):
        two.enter()
    two.release()
    one.leave()
    assert (flight.requests, flight.bytes) == (0, 100)
    one.release()
    one.release()
    assert (flight.requests, flight.bytes) == (0, 0)


@pytest.mark.parametrize(
    ("clients", "head", "sent"),
    [
        (40, b"Content-Length: 8388608", b"{"),
        (40, b"Transfer-Encoding: chunked", b"1\r\n{\r\n"),
        (20, b"Content-Length: 36000", b"{" + b" " * 30_000),
    ],
)
def test_clients_that_do_not_finish_their_bodies_take_nobodys_place(
    tmp_path: Path, clients: int, head: bytes, sent: bytes
) -> None:
    write_fake(tmp_path)
    body = json.dumps({"moves": []}).encode()
    whole = b"POST /v1/policy HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\nConnection: close\r\n"

    async def trial(port: int) -> bytes:
        streams = []
        for _ in range(clients):
            streams.append(await asyncio.open_connection("127.0.0.1", port))
            begin = b"POST /v1/policy/batch HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\n"
            streams[-1][1].write(begin + head + b"\r\n\r\n" + sent)
            await streams[-1][1].drain()
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(whole + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        answer = await asyncio.wait_for(reader.read(), 20)
        for _, one in (*streams, (reader, writer)):
            one.transport.abort()
        return answer

    with served(tmp_path, "--max-requests", "10") as (_, port):
        assert asyncio.run(trial(port)).startswith(b"HTTP/1.1 200 ")


def test_a_body_that_nobody_reads_is_no_way_around_the_limit() -> None:
    async def main() -> list[int]:
        flight = InFlight(Settings.read(max_requests=1))
        inside: list[int] = []

        async def app(scope: Any, receive: Any, send: Any) -> None:
            inside.append(flight.requests)

        async def nothing(*_: Any) -> Any:
            raise AssertionError

        headers = [(b"content-length", b"5")]
        scope = {"type": "http", "method": "GET", "path": "/v1/models", "headers": headers, "client": ("h", 1)}
        await Admission(app, flight, Metrics())(scope, nothing, nothing)
        return [*inside, flight.requests]

    assert asyncio.run(main()) == [1, 0]
