"""Greedy clients: a single request beside large ones, several times the load that the service can take, and bodies that
cost most to parse."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager

from benchmarks.hostile.clients import Service, Times, positions, repeat, request, service
from benchmarks.hostile.generator import Sent, generate
from benchmarks.hostile.trial import Trial

SINGLE = request("/v1/policy", {"fen": "startpos"})
ALIVE = request("/livez")


async def beside_batches(port: int, clients: int, size: int, seconds: float) -> tuple[Times, Times]:
    """Single requests, one after another, beside clients that send batches all the time."""
    fens = positions(clients * size)
    batches = [
        request("/v1/policy/batch", {"positions": [{"fen": fen} for fen in fens[start : start + size]]})
        for start in range(0, len(fens), size)
    ]
    single, large = Times(), Times()
    end = time.monotonic() + seconds
    working = [asyncio.create_task(repeat(port, raw, end, large, patient=True)) for raw in batches]
    await asyncio.sleep(min(1.0, seconds / 4))
    await repeat(port, SINGLE, end, single, pause=0.01)
    await asyncio.gather(*working)
    return single, large


def fairness(seconds: float) -> Iterator[Trial]:
    """A single request beside eight clients with batches of 1,024."""
    with service() as server:
        alone, _ = asyncio.run(beside_batches(server.port, 0, 1024, 3))
        single, large = asyncio.run(beside_batches(server.port, 8, 1024, seconds))
        quiet, p50 = alone.ms(200, 0.5), single.ms(200, 0.5)
        result = (
            f"alone {quiet:.1f} ms; beside them p50 {p50:.1f} ms, p99 {single.ms(200, 0.99):.0f} ms, "
            f"{single.count(503)} of {sum(map(len, single.seconds.values()))} refused; "
            f"{large.count(200) * 1024 / seconds:.0f} positions/s answered to the others"
        )
        done = "single requests beside eight clients with batches of 1,024"
        yield Trial(done, "p50 at most 4 times as long as alone", result, p50 <= 4 * quiet)


def overload(seconds: float) -> Iterator[Trial]:
    """Two, five and ten times the requests that the service can take, whether they are answered or not. With two cores
    or more, the service has one and the generator another."""
    with (
        _on_one_core() as others,
        service(max_connections_per_address="4000", keep_alive_seconds="75") as server,
        ProcessPoolExecutor(1) as generator,
    ):

        def sent(rate: float, connections: int) -> Sent:
            time.sleep(1)  # the service may still be closing the connections of the last
            return generator.submit(generate, server.port, SINGLE, ALIVE, rate, seconds, connections, others).result()

        unloaded = sent(1e9, 1).times.ms(200, 0.99)
        rate = sent(1e9, 16).times.count(200) / seconds
        for connections, factor in ((256, 1), (256, 2), (256, 5), (256, 10), (1500, 2), (1500, 5), (1500, 10)):
            before = server.cpu_seconds
            got = sent(factor * rate, connections)
            cpu = 1e6 * (server.cpu_seconds - before) / max(1, got.times.count(200))
            times, alive = got.times, got.probes
            refused = f", p50 {times.ms(503, 0.5):.0f}, p99 {times.ms(503, 0.99):.0f} ms" if times.count(503) else ""
            result = (
                f"of {factor * rate:.0f}/s {got.count / seconds:.0f}/s sent: {times.count(200) / seconds:.0f}/s "
                f"answered, p50 {times.ms(200, 0.5):.0f}, p99 {times.ms(200, 0.99):.0f} ms; "
                f"{times.count(503) / seconds:.0f}/s refused{refused}; {times.count(0)} failed; "
                f"`/livez` p50 {alive.ms(200, 0.5):.0f}, p99 {alive.ms(200, 0.99):.0f} ms; "
                f"{cpu:.0f} µs of CPU each; peak {server.peak_mb:.0f} MB; "
                f"the generator's rounds p99 {got.rounds.ms(0, 0.99):.0f} ms"
            )
            passed = alive.ms(200, 0.99) < 150 and times.count(200) > 0.9 * rate * seconds
            promised = f"at least {0.9 * rate:.0f}/s answered; `/livez` p99 150 ms; none fails; 600 MB"
            done = f"{factor} times {rate:.0f}/s, {connections} connections (alone p99 {unloaded:.1f} ms)"
            yield Trial(done, promised, result, passed and times.count(0) == 0 and server.peak_mb < 600)


@contextmanager
def _on_one_core() -> Iterator[frozenset[int]]:
    """Keeps what is started meanwhile on one core, and gives the others; all cores if there is only one."""
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, cores[:1])
    try:
        yield frozenset(cores[1:] or cores)
    finally:
        os.sched_setaffinity(0, cores)


def many_batches(seconds: float) -> Iterator[Trial]:
    """Two hundred clients with large batches, impatient."""
    with service() as server:
        raw = request("/v1/policy/batch", {"positions": [{"fen": fen} for fen in positions(256)]})
        times, alive = Times(), Times()

        async def trial(server: Service) -> None:
            end = time.monotonic() + seconds
            probing = asyncio.create_task(repeat(server.port, ALIVE, end, alive, pause=0.1))
            await asyncio.gather(*(repeat(server.port, raw, end, times, patient=True) for _ in range(200)), probing)

        asyncio.run(trial(server))
        result = (
            f"{times.count(200)} answered, {times.count(503)} refused (p50 {times.ms(503, 0.5):.0f} ms, p99 "
            f"{times.ms(503, 0.99):.0f} ms), {times.count(0)} failed; `/livez` p99 {alive.ms(200, 0.99):.0f} ms; "
            f"peak {server.peak_mb:.0f} MB"
        )
        passed = not times.count(0) and server.peak_mb < 600 and alive.ms(200, 0.99) < 100
        promised = "answered or refused; `/livez` under 100 ms, under 600 MB"
        yield Trial("200 clients with batches of 256", promised, result, passed)


#: What costs most to parse for its bytes.
PIECES = {
    "emptylists": "[]",
    "dicts": '{"a":{"b":{}}}',
    "deep200": "[" * 190 + "]" * 190,
    "floats": "1.5",
    "keys": '{"k":1}',
}


def bodies(seconds: float) -> Iterator[Trial]:
    """Eight clients with bodies of 2 MiB that are refused."""
    with service() as server:

        async def trial(raw: bytes | None) -> tuple[Times, Times]:
            times, alive, end = Times(), Times(), time.monotonic() + seconds
            sending = [] if raw is None else [repeat(server.port, raw, end, times) for _ in range(8)]
            await asyncio.gather(*sending, repeat(server.port, ALIVE, end, alive, pause=0.01))
            return times, alive

        lone = asyncio.run(trial(None))[1].ms(200, 0.99)
        for name, piece in PIECES.items():
            body = f'{{"positions": [{",".join([piece] * ((2**21 - 20) // (len(piece) + 1)))}]}}'.encode()
            head = "POST /v1/policy/batch HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            raw = f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body
            before = server.cpu_seconds
            times, alive = asyncio.run(trial(raw))
            cpu = 1e3 * (server.cpu_seconds - before) / len(times.seconds.get(413, " "))
            p99, counts = alive.ms(200, 0.99), {status: len(durations) for status, durations in times.seconds.items()}
            result = (
                f"{sum(counts.values()) / seconds:.0f} bodies/s, by status {counts}, {cpu:.0f} ms of CPU each; "
                f"`/livez` p50 "
                f"{alive.ms(200, 0.5):.1f}, p99 {p99:.1f} ms (alone {lone:.1f}), {alive.count(0)} failed; "
                f"peak {server.peak_mb:.0f} MB"
            )
            passed = (
                p99 <= 10 * lone and server.peak_mb < 600 and not times.count(200) + times.count(0) + alive.count(0)
            )
            promised = "refused; `/livez` p99 at most 10 times its lone one; under 600 MB"
            yield Trial(f"eight clients with bodies of 2 MiB: {name}", promised, result, passed)


def tools(seconds: float) -> Iterator[Trial]:
    """Sixty connections that send nested lists to `/mcp`."""
    for size in (64_000, 500_000):
        with service(mcp="true") as server:
            piece = b"[" * 190 + b"]" * 190
            body = b"[" + b",".join([piece] * (size // (len(piece) + 1))) + b"]"
            head = "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            raw = f"{head}Accept: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body
            times, end = Times(), time.monotonic() + seconds

            async def trial(server: Service, raw: bytes, end: float, times: Times) -> None:
                await asyncio.gather(*(repeat(server.port, raw, end, times) for _ in range(60)))

            asyncio.run(trial(server, raw, end, times))
            result = f"by status { {status: len(durations) for status, durations in times.seconds.items()} }"
            result += f"; {server.grown_mb:.0f} MB more memory, {server.peak_mb:.0f} MB at most"
            passed = server.grown_mb < 200 and server.peak_mb < 600 and not times.count(200)
            done = f"60 connections with {size // 1000} kB of nested lists for `/mcp`"
            yield Trial(done, "refused; at most 200 MB more memory, under 600 MB", result, passed)
