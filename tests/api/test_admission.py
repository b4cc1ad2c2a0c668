"""What everybody would lose: their place, to clients that send slowly or hold much."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from movemask.api.admission import BytesInFlight, Reservation
from movemask.errors import Overloaded
from tests.networks import write_fake
from tests.processes import served


def test_a_client_has_half_of_the_room_and_a_lone_request_all() -> None:
    flight = BytesInFlight(8 << 20)
    first = Reservation(flight, "greedy")
    for _ in range(20):
        first.add(1 << 20)  # more than all, but nobody else is there
    first.release()
    parts = [Reservation(flight, "greedy") for _ in range(5)]
    for one in parts[:4]:
        one.add(1 << 20)
    with pytest.raises(Overloaded, match="4 MiB of yours"):
        parts[4].add(1 << 20)
    others = [Reservation(flight, f"other {number}") for number in range(4)]
    for one in others:
        one.add(1 << 20)
    with pytest.raises(Overloaded, match="8 MiB are in flight"):
        Reservation(flight, "another").add(1)
    for one in (*parts, *others):
        one.release()
    assert flight.total == 0


def test_answers_that_one_client_does_not_read_keep_nobody_else_out() -> None:
    flight = BytesInFlight(8 << 20)
    answers = [Reservation(flight, "greedy") for _ in range(100)]
    for one in answers:
        one.keep(1 << 20)  # it is made, and must be somewhere
    other = Reservation(flight, "other")
    other.add(1 << 20)
    with pytest.raises(Overloaded, match="100 MiB of yours"):
        flight.make_room(0, "greedy")
    flight.make_room(0, "another")
    for one in (*answers, other):
        one.release()
    assert flight.total == 0


@pytest.mark.parametrize(
    ("clients", "head", "sent"),
    [
        (40, b"Content-Length: 8388608", b"{"),
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

    with served(tmp_path) as (_, port):
        assert asyncio.run(trial(port)).startswith(b"HTTP/1.1 200 ")
