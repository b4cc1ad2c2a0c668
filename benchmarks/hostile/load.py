"""Greedy clients: a single request beside large ones, and several times the load that the service can take."""

from __future__ import annotations

import asyncio
import time

from benchmarks.hostile.clients import Times, positions, repeat, request

SINGLE = request("/v1/policy", {"fen": "startpos"})


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
