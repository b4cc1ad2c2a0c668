"""How long the figures take with many audited positions behind them: `python -m benchmarks.audit_store`.

Fills a database (an empty SQLite file, or the URL given) with made-up positions over a month, by the same writes as
the service's, prunes as the service does, then asks what `GET /v1/leakage` and its kin ask, as a Markdown table. Also
how long a write of a batch takes when the database is empty and when it is full.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from tqdm import tqdm

from movemask.leakage.causes import CAUSES, Cause
from movemask.leakage.explain import Explained
from movemask.leakage.kinds import MEASURED, Plan
from movemask.leakage.measure import Measured
from movemask.server.ledger.entries import LedgerTable
from movemask.server.ledger.ledger import Ledger
from movemask.server.ledger.reader import LedgerReader, Span

BATCH = 2000
MONTH = 30 * 86_400.0
ASKED = 30  # times each question is asked
FLUSH = (27, 3)  # positions with few kinds and with all: half a second of about sixty requests a second


def main() -> None:
    """Fills, asks and prints."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--positions", type=int, default=10_000_000)
    parser.add_argument("--share", type=float, default=0.05, help="of the batches that have all kinds")
    parser.add_argument("--url", help="of an empty database; a temporary SQLite file if left out")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        url = arguments.url or f"sqlite:///{folder}/audit.db"
        ledger = Ledger(url, keep_seconds=1e12, keep_positions=1_000_000)
        first, last = _fill(ledger, arguments.positions, arguments.share)
        reader = LedgerReader(ledger.database)
        now = time.time()
        questions: dict[str, Callable[[], object]] = {
            "`GET /v1/leakage`": lambda: reader.summaries(),
            "`?by=phase`": lambda: reader.summaries(by="phase"),
            "`?by=legal_moves`": lambda: reader.summaries(by="legal_moves"),
            "`?by=cause`": lambda: reader.summaries(by="cause"),
            "`?since=24h`": lambda: reader.summaries(span=Span(now - 86_400)),
            "`?since=30d`": lambda: reader.summaries(span=Span(now - MONTH)),
            "`?since=30d&by=phase`": lambda: reader.summaries(span=Span(now - MONTH), by="phase"),
            "`/history?bucket=1d`": lambda: reader.history(None, Span(), 86_400),
            "`/worst`": lambda: reader.worst("raw", 10),
            "`/positions`, the first page": lambda: reader.positions(100),
        }
        print(f"| {arguments.positions:,} positions, {ledger.database.dialect} | median ms | slowest of {ASKED} |")
        print("|---|---:|---:|")
        for name, ask in questions.items():
            took = [_timed(ask) for _ in range(ASKED)]
            print(f"| {name} | {statistics.median(took):.1f} | {max(took):.1f} |")
        print(f"| a write of {BATCH} positions, database empty | {first:.1f} | |")
        print(f"| a write of {BATCH} positions, database full | {last:.1f} | |")
        flush = f"{sum(FLUSH)} positions, {FLUSH[1]} of them with all kinds"
        print(f"| a write of {flush} (CPU time) | {_flush(ledger):.1f} | |")
        if not arguments.url:
            size = sum(file.stat().st_size for file in Path(folder).iterdir())
            print(f"\nThe file has {size / 1e6:.0f} MB, with the newest 1,000,000 single positions.")
        ledger.close()


def _fill(ledger: Ledger, positions: int, share: float) -> tuple[float, float]:
    """Writes them, oldest first; median ms of the first and of the last twenty writes."""
    rng = np.random.default_rng(0)
    begin = time.time() - MONTH
    took = []
    batches = positions // BATCH
    for number in tqdm(range(batches), unit=" batches"):
        at = begin + MONTH * number / batches
        table = _table(rng, BATCH, at, MONTH / batches, everything=rng.random() < share)
        took.append(_timed(lambda table=table: ledger.write(table)))  # type: ignore[misc]
        if number % 500 == 499:
            ledger.prune()
    ledger.prune()
    return statistics.median(took[:20]), statistics.median(took[-20:])


def _flush(ledger: Ledger) -> float:
    """Median ms of CPU time of the writes of a service with few clients."""
    rng = np.random.default_rng(1)
    took = []
    for number in range(25):
        few, all_kinds = (
            _table(rng, size, time.time() + number, 0.4, everything=everything)
            for size, everything in zip(FLUSH, (False, True), strict=True)
        )
        started = time.thread_time()
        ledger.write(few)
        ledger.write(all_kinds)
        took.append(1e3 * (time.thread_time() - started))
    return statistics.median(took)


def _table(rng: np.random.Generator, count: int, at: float, seconds: float, *, everything: bool) -> LedgerTable:
    """A batch of made-up positions, their leakage spread over nine powers of ten."""
    kinds = MEASURED if everything else Plan().always
    leaked = 10 ** rng.uniform(-9, 0, (len(kinds), count))
    by_cause = np.zeros((count, len(CAUSES)))
    by_cause[np.arange(count), rng.integers(0, 7, count)] = leaked[0] / 3
    by_cause[np.arange(count), rng.integers(7, len(CAUSES), count)] = leaked[0] / 2
    castling = np.full(count, CAUSES.index(Cause.CASTLING_PATH))
    fen = "r1bqkb1r/pppp1ppp/2n2n2/4p3/2B1P3/5N2/PPPP1PPP/RNBQK2R w KQkq - 4"
    return LedgerTable(
        model="net",
        digest="sha256:" + "0" * 64,
        trained_with_mask=False,
        times=at + seconds * np.sort(rng.random(count)),
        fens=[f"{fen} {number}" for number in rng.integers(10**9, size=count).tolist()],
        chess960=np.zeros(count, dtype=np.bool_),
        elos=rng.integers(800, 2600, count).astype(np.float64).tolist(),
        measured={kind: Measured(own, own > 0.5, own) for kind, own in zip(kinds, leaked, strict=True)},
        explained=Explained(by_cause, np.arange(count + 1), ["e1g1"] * count, leaked[0], castling),
        phases=np.arange(count) % 3,
        black=np.arange(count) % 2 == 1,
        in_check=np.arange(count) % 10 == 0,
        legal_moves=rng.integers(1, 60, count),
    )


def _timed(run: Callable[[], object]) -> float:
    started = time.perf_counter()
    run()
    return 1e3 * (time.perf_counter() - started)


if __name__ == "__main__":
    main()
