"""Greedy clients: a single request beside large ones, and several times the load that the service can take."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress

from benchmarks.hostile.clients import Connection, Service, Times, positions, repeat, request, service
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


async def capacity(port: int, clients: int = 16, seconds: float = 4) -> tuple[float, float]:
    """Single requests a second by clients that each wait for their answer, and their p99 in ms."""
    times = Times()
    end = time.monotonic() + seconds
    await asyncio.gather(*(repeat(port, SINGLE, end, times) for _ in range(clients)))
    return times.count(200) / seconds, times.ms(200, 0.99)


async def open_loop(port: int, rate: float, seconds: float, connections: int = 1500) -> Times:
    """Requests at a rate that does not depend on the answers, as far as so many connections and this process can."""
    times = Times()
    due: asyncio.Queue[bool] = asyncio.Queue()
    end = time.monotonic() + seconds

    async def send() -> None:
        connection = Connection(port)
        while await due.get() and time.monotonic() < end:
            started = time.monotonic()
            try:
                status, _ = await connection.ask(SINGLE)
            except (OSError, EOFError):
                status = 0
            times.add(status, time.monotonic() - started)
        connection.close()

    senders = [asyncio.create_task(send()) for _ in range(connections)]
    begun, sent = time.monotonic(), 0
    while (now := time.monotonic()) < end:
        while sent < rate * (now - begun):
            due.put_nowait(True)
            sent += 1
        await asyncio.sleep(0.005)
    for _ in range(connections):
        due.put_nowait(False)
    with suppress(TimeoutError):
        await asyncio.wait_for(asyncio.gather(*senders), 60)
    return times


def _open_loop(port: int, rate: float, seconds: float) -> Times:
    """`open_loop` in a process of its own, so that its work does not delay the probes."""
    return asyncio.run(open_loop(port, rate, seconds))


def fairness(seconds: float) -> Iterator[Trial]:
    """A single request beside eight clients with batches of 1,024."""
    with service() as tried:
        alone, _ = asyncio.run(beside_batches(tried.port, 0, 1024, 3))
        single, large = asyncio.run(beside_batches(tried.port, 8, 1024, seconds))
        p50 = single.ms(200, 0.5)
        seen = (
            f"alone {alone.ms(200, 0.5):.1f} ms; beside them p50 {p50:.1f} ms, p99 {single.ms(200, 0.99):.0f} ms, "
            f"{single.count(503)} of {sum(map(len, single.seconds.values()))} refused; "
            f"{large.count(200) * 1024 / seconds:.0f} positions/s answered to the others"
        )
        yield Trial("single requests beside eight clients with batches of 1,024", "p50 at most 20 ms", seen, p50 <= 20)


def overload(seconds: float) -> Iterator[Trial]:
    """Two, five and ten times the requests that the service can take, whether they are answered or not."""
    with service(max_connections_per_address="4000") as tried, ProcessPoolExecutor(1) as generator:
        rate, unloaded = asyncio.run(capacity(tried.port))
        for factor in (2, 5, 10):
            running = generator.submit(_open_loop, tried.port, factor * rate, seconds)
            alive = Times()
            asyncio.run(repeat(tried.port, ALIVE, time.monotonic() + seconds, alive, pause=0.1))
            times = running.result()
            sent, livez = sum(map(len, times.seconds.values())) / seconds, alive.ms(200, 0.99)
            seen = (
                f"{rate:.0f} requests/s when 16 clients wait for each answer (p99 {unloaded:.0f} ms); of "
                f"{factor * rate:.0f}/s {sent:.0f}/s could be sent: {times.count(200) / seconds:.0f}/s answered, p99 "
                f"{times.ms(200, 0.99):.0f} ms; {times.count(503) / seconds:.0f}/s refused, p50 "
                f"{times.ms(503, 0.5):.0f} ms, p99 {times.ms(503, 0.99):.0f} ms; {times.count(0)} failed; `/livez` p50 "
                f"{alive.ms(200, 0.5):.0f}, p99 {livez:.0f} ms; peak {tried.peak_mb:.0f} MB"
            )
            kept = tried.peak_mb < 600 and livez < 100 and times.count(0) == 0 and times.ms(200, 0.99) < 4 * unloaded
            promised = "answered p99 under 4 times the unloaded, none failed, `/livez` under 100 ms, under 600 MB"
            yield Trial(f"{factor} times the load, open loop, up to 1,500 connections", promised, seen, kept)


def many_batches(seconds: float) -> Iterator[Trial]:
    """Two hundred clients with large batches, impatient."""
    with service() as tried:
        raw = request("/v1/policy/batch", {"positions": [{"fen": fen} for fen in positions(256)]})
        times, alive = Times(), Times()

        async def trial(tried: Service) -> None:
            end = time.monotonic() + seconds
            probing = asyncio.create_task(repeat(tried.port, ALIVE, end, alive, pause=0.1))
            await asyncio.gather(*(repeat(tried.port, raw, end, times, patient=True) for _ in range(200)), probing)

        asyncio.run(trial(tried))
        seen = (
            f"{times.count(200)} answered, {times.count(503)} refused (p50 {times.ms(503, 0.5):.0f} ms, p99 "
            f"{times.ms(503, 0.99):.0f} ms), {times.count(0)} failed; `/livez` p99 {alive.ms(200, 0.99):.0f} ms; "
            f"peak {tried.peak_mb:.0f} MB"
        )
        kept = times.ms(503, 0.5) <= 50 and tried.peak_mb < 600 and alive.ms(200, 0.99) < 100
        promised = "503s within 50 ms (p50), `/livez` under 100 ms, under 600 MB"
        yield Trial("200 clients with batches of 256", promised, seen, kept)
