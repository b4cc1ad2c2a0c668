"""Slow and broken clients: half-sent requests, drips, answers nobody reads, thousands of connections, endless heads."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress

from benchmarks.hostile.clients import Service, Times, positions, repeat, request, service, source
from benchmarks.hostile.load import ALIVE, SINGLE
from benchmarks.hostile.trial import Trial

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]

_POST = b"POST /v1/policy HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
_BODY = _POST + b"Content-Length: 20000\r\n\r\n"
_SHORT = {"head_seconds": "2", "body_seconds": "2", "read_seconds": "2", "max_connections_per_address": "4000"}


async def _silent(streams: Streams) -> None:
    """Sends nothing."""


async def _half_head(streams: Streams) -> None:
    streams[1].write(b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\nX-")


async def _head_drip(streams: Streams) -> None:
    streams[1].write(b"GET /v1/models HTTP/1.1\r\nX: ")
    while True:
        streams[1].write(b"y")
        await asyncio.sleep(0.2)


async def _half_body(streams: Streams) -> None:
    streams[1].write(_BODY + b"{")


async def _large_body(streams: Streams) -> None:
    streams[1].write(_BODY.replace(b"20000", b"8388608").replace(b"/v1/policy", b"/v1/policy/batch") + b"{")


async def _body_drip(streams: Streams) -> None:
    streams[1].write(_BODY)
    while True:
        streams[1].write(b" ")
        await asyncio.sleep(0.2)


async def _unread(streams: Streams) -> None:
    streams[1].write(request("/v1/policy/batch", {"positions": [{"fen": fen} for fen in positions(200)]}))
    streams[1].transport.pause_reading()  # type: ignore[attr-defined]


KINDS: dict[str, Callable[[Streams], Awaitable[None]]] = {
    "say nothing": _silent,
    "send half a head": _half_head,
    "drip a head": _head_drip,
    "send half a body": _half_body,
    "drip a body": _body_drip,
    "announce a body of 8 MiB and send a byte": _large_body,
}


async def _behave(port: int, how: Callable[[Streams], Awaitable[None]]) -> float:
    """Seconds until the service ends the connection; infinite if it does not within 20."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=source())
    started = time.monotonic()

    async def act() -> None:
        with suppress(OSError):
            await how((reader, writer))

    acting = asyncio.create_task(act())
    try:
        with suppress(OSError):
            await asyncio.wait_for(reader.read(), 20)
        return time.monotonic() - started
    except TimeoutError:
        return float("inf")
    finally:
        acting.cancel()
        writer.transport.abort()


def slowloris(count: int) -> Iterator[Trial]:
    """Six kinds of clients that never finish their request, and those who ask properly meanwhile."""
    with service(**_SHORT) as server:
        before = server.log_bytes
        for name, how in KINDS.items():
            times, ended = asyncio.run(_beside(server, how, count))
            longest = max(ended)
            result = (
                f"the last was ended after {longest:.1f} s; proper requests: {times.count(200)} answered, p99 "
                f"{times.ms(200, 0.99):.0f} ms, {sum(map(len, times.seconds.values())) - times.count(200)} not"
            )
            passed = longest < 6 and times.count(200) == sum(map(len, times.seconds.values()))
            yield Trial(
                f"{count} clients that {name}", "ended within 2 s and a little; others are served", result, passed
            )
        result = f"{(server.log_bytes - before) / 1e3:.0f} kB of log, {server.peak_mb:.0f} MB at most"
        yield Trial(
            "the log and the memory of the above", "under 1 MB of log, under 600 MB", result, server.peak_mb < 600
        )


async def _beside(server: Service, how: Callable[[Streams], Awaitable[None]], count: int) -> tuple[Times, list[float]]:
    times = Times()
    asking = asyncio.create_task(repeat(server.port, SINGLE, time.monotonic() + 5, times, pause=0.02))
    ended = await asyncio.gather(*(_behave(server.port, how) for _ in range(count)))
    await asking
    return times, list(ended)


def unread(count: int) -> Iterator[Trial]:
    """Clients that ask for large answers, and read nothing."""
    with service(**_SHORT) as server:

        async def trial() -> tuple[float, int]:
            streams = []
            for _ in range(count):
                streams.append(await asyncio.open_connection("127.0.0.1", server.port, limit=1024, local_addr=source()))
                await _unread(streams[-1])
            most, end = 0.0, time.monotonic() + 20
            while time.monotonic() < end:
                await asyncio.sleep(0.5)
                most = max(most, server.rss_mb)
                if server.descriptors < baseline + 5 and time.monotonic() > end - 12:
                    break
            left = server.descriptors - baseline
            for _, writer in streams:
                writer.transport.abort()
            return most, left

        baseline = server.descriptors
        most, left = asyncio.run(trial())
        result = f"{most:.0f} MB at most; {left} descriptors more than before, 20 s later"
        done = f"{count} clients that ask for batches of 200 and read nothing"
        yield Trial(done, "cut off after 2 s; under 600 MB", result, most < 600 and left < 10)


def crowd(count: int) -> Iterator[Trial]:
    """Connections that are only open, as many as the service takes and more."""
    with service(max_connections="1500", max_connections_per_address="4000", head_seconds="30") as server:

        async def trial() -> tuple[int, Times]:
            opened = await asyncio.gather(
                *(asyncio.open_connection("127.0.0.1", server.port, local_addr=source()) for _ in range(count)),
                return_exceptions=True,
            )
            streams = [one for one in opened if not isinstance(one, BaseException)]
            await asyncio.sleep(1)
            refused = sum(bool(reader._buffer) for reader, _ in streams)  # type: ignore[attr-defined]
            for _, writer in streams[:600]:
                writer.transport.abort()
            await asyncio.sleep(0.2)
            times = Times()
            await repeat(server.port, SINGLE, time.monotonic() + 3, times, pause=0.01)
            for _, writer in streams:
                writer.transport.abort()
            return refused, times

        refused, times = asyncio.run(trial())
        result = f"{refused} got a 503; then p50 {times.ms(200, 0.5):.1f} ms, peak {server.peak_mb:.0f} MB"
        passed = abs(refused - (count - 1500)) <= 5 and times.count(200) == sum(map(len, times.seconds.values()))
        yield Trial(
            f"{count} connections, of which 1,500 are taken", "the rest is refused; others are served", result, passed
        )


#: Bytes of the unfinished bodies of one address, largest first, so that they fill what the larger ones leave.
_UNFINISHED = tuple(kilobytes << 10 for kilobytes in (512, 256, 64, 20, 8, 5) for _ in range(2))


def held(addresses: int) -> Iterator[Trial]:
    """Bodies that never end and answers that nobody reads, from many addresses, which fill the pool of bytes in flight;
    and small and large requests of others meanwhile."""
    small = [SINGLE, request("/v1/version"), request("/"), request("/v1/policy?fen=startpos")]
    large = request("/v1/policy/batch", {"positions": [{"fen": "startpos", "id": "x" * 128}] * 64})
    with service() as server:

        async def unfinished(address: str, size: int) -> Streams | None:
            head = b"POST /v1/policy/batch HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            streams = await asyncio.open_connection("127.0.0.1", server.port, local_addr=(address, 0))
            with suppress(OSError):
                streams[1].write(head + b"Content-Length: %d\r\n\r\n{" % size + b" " * (size - 2))
                await streams[1].drain()
            return streams

        async def ignored(address: str) -> Streams:
            reading = socket.socket()
            reading.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            reading.bind((address, 0))
            reading.connect(("127.0.0.1", server.port))
            streams = await asyncio.open_connection(sock=reading, limit=1024)
            streams[1].write(request("/openapi.json") * 8)
            streams[1].transport.pause_reading()  # type: ignore[attr-defined]
            return streams

        async def trial() -> tuple[Times, Times, float]:
            streams: list[Streams | None] = [
                await unfinished(f"127.1.{greedy}.1", 2 << 20) for greedy in range(2) for _ in range(24)
            ]
            for number in range(addresses):
                streams += [await unfinished(f"127.2.{number}.1", size) for size in _UNFINISHED]
            streams += [await ignored(f"127.2.{number}.1") for number in range(addresses)]
            began = time.monotonic()
            times, larger, first = Times(), Times(), float("inf")
            asking = [asyncio.create_task(repeat(server.port, raw, began + 20, times, pause=0.2)) for raw in small]
            while time.monotonic() < began + 20:
                await repeat(server.port, large, time.monotonic() + 0.1, larger, pause=0.2)
                if larger.count(200) and first == float("inf"):
                    first = time.monotonic() - began
            await asyncio.gather(*asking)
            for one in filter(None, streams):
                one[1].transport.abort()
            return times, larger, first

        times, larger, first = asyncio.run(trial())
        requests = sum(map(len, times.seconds.values()))
        result = (
            f"{times.count(200)} of {requests} small requests answered; the first large one after {first:.1f} s, "
            f"{larger.count(503)} refused; peak {server.peak_mb:.0f} MB"
        )
        passed = times.count(200) == requests and first < 15 and server.peak_mb < 600
        done = f"{addresses} addresses with bodies that never end, and answers that nobody reads"
        promised = "small requests are answered, large ones after 15 s; under 600 MB"
        yield Trial(done, promised, result, passed)


async def _poured(port: int, begin: bytes, piece: bytes, megabytes: float) -> int:
    """Bytes that the service takes until it ends the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=source())
    reading = asyncio.create_task(reader.read())
    sent = 0
    with suppress(OSError):
        writer.write(begin)
        while sent < megabytes * 1e6 and not reading.done():
            writer.write(piece)
            await writer.drain()
            sent += len(piece)
        await asyncio.wait_for(reading, 60)
    reading.cancel()
    writer.transport.abort()
    return sent


def endless() -> Iterator[Trial]:
    """Requests and trailers without end, on connections that a head could have come by; `/livez` beside them."""
    chunked = _POST + b"Transfer-Encoding: chunked\r\n\r\n" + b"1\r\n \r\n0\r\n"
    pipelined = b"GET /v1/x HTTP/1.1\r\nHost: localhost\r\n\r\n"
    kinds = [
        (
            f"{count} connections with {262_144 // len(pipelined):,} pipelined requests",
            count,
            pipelined,
            pipelined * 1000,
            0.25,
        )
        for count in (16, 64, 250)
    ]
    kinds += [
        ("20 chunked bodies with 40 MB of trailers", 20, chunked, b"X: y\r\n" * 10_000, 40),
        ("20 chunked bodies with one trailer of 40 MB", 20, chunked + b"X: ", b"y" * 65_536, 40),
    ]
    for done, *how in kinds:
        with service(max_connections_per_address="4000") as server, ProcessPoolExecutor(1) as others:
            alive, end = Times(), time.monotonic() + 2
            pouring = others.submit(_pour, server.port, *how)
            while not pouring.done() or time.monotonic() < end:
                asyncio.run(repeat(server.port, ALIVE, time.monotonic() + 0.2, alive, pause=0.02))
            longest = alive.ms(200, 1)
            result = (
                f"{pouring.result() / 1e6:.0f} MB and {server.cpu_seconds:.1f} s of CPU were taken; `/livez` p50 "
                f"{alive.ms(200, 0.5):.0f}, at most {longest:.0f} ms, {alive.count(0)} failed; "
                f"{server.grown_mb:.0f} MB more memory"
            )
            passed = longest < 100 and not alive.count(0) and server.grown_mb < 50
            yield Trial(done, "`/livez` under 100 ms; at most 50 MB more memory", result, passed)


def _pour(port: int, count: int, begin: bytes, piece: bytes, megabytes: float) -> int:
    async def together() -> int:
        return sum(await asyncio.gather(*(_poured(port, begin, piece, megabytes) for _ in range(count))))

    return asyncio.run(together())
