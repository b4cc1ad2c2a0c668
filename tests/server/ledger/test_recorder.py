"""The recorder: every answered position is written, waits, or is lost, and no answer waits for the database."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from movemask.board.position import Position
from movemask.errors import LedgerError
from movemask.evaluate import Answer, Query
from movemask.leakage.kinds import Plan
from movemask.policy.normalisation import Normalisation
from movemask.server.ledger import recorder
from movemask.server.ledger.entries import AnsweredBatch, LedgerTable
from movemask.server.ledger.ledger import Ledger
from movemask.server.ledger.reader import LedgerReader
from movemask.server.ledger.recorder import Recorder
from movemask.server.metrics import Metrics
from tests.processes import until
from tests.server.ledger.records import MODEL, numbered, opened, started, written


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with opened(f"sqlite:///{tmp_path}/audit.db") as ledger:
        yield ledger


@pytest.fixture
def either(database_url: str) -> Iterator[Ledger]:
    """A ledger in SQLite, and one in PostgreSQL."""
    with opened(database_url) as ledger:
        yield ledger


@contextmanager
def recording(ledger: Ledger, *options: Any, **more: Any) -> Iterator[Recorder]:
    own = Recorder(ledger, Metrics(), *options, **more)
    try:
        yield own
    finally:
        own.close(60)


def count(ledger: Ledger) -> int:
    return sum(figures.positions for figures in LedgerReader(ledger.database).summaries())


def told(own: Recorder, name: str) -> list[str]:
    return [line for line in own._metrics.exposition().decode().splitlines() if line.startswith(name)]


def test_positions_are_written_soon_and_at_close(ledger: Ledger) -> None:
    with recording(ledger) as own:
        for start in range(1, 4500, 900):  # more than goes into one transaction
            own.record(started(range(start, start + 900)))
        assert written(own)
        assert count(ledger) == 4500
        own.record(started([1]))
    assert count(ledger) == 4501


def test_answers_are_counted_in_metrics(ledger: Ledger) -> None:
    mate = Position.read("7k/6Q1/6K1/8/8/8/8/8 b - - 0 1")
    with recording(ledger, Plan(threshold=1e-4)) as own:
        own.record(started([1, 2, 3]))
        own.record(AnsweredBatch(MODEL, [Answer(MODEL, Query(), mate, Normalisation(), None)], None, 0.0))
        assert written(own)
        assert told(own, "movemask_positions_total") == [
            'movemask_positions_total{model="net",status="ongoing"} 3.0',
            'movemask_positions_total{model="net",status="checkmate"} 1.0',
        ]
        assert told(own, "movemask_batches_total") == ['movemask_batches_total{model="net"} 1.0']
        assert told(own, 'movemask_leakage_count{kind="raw"')[0].endswith(" 3.0")
        assert len(told(own, "movemask_illegal_mass_total")) > 1


def test_close_with_broken_database_reports_loss(
    ledger: Ledger, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with recording(ledger) as own:
        with sqlite3.connect(tmp_path / "audit.db") as other:
            other.execute("DROP TABLE position")
        other.close()
        own.record(started([1]))
    assert "1 positions were not written to the ledger: the ledger cannot be written: no such table" in caplog.text
    assert (own.waiting, own.lost) == (0, 1)


class Slow(Ledger):
    """A ledger whose writes end when they are let."""

    def __init__(self, *options: Any, **more: Any) -> None:
        super().__init__(*options, **more)
        self.begun, self.ends = threading.Event(), threading.Event()

    def write(self, table: LedgerTable) -> None:
        self.begun.set()
        assert self.ends.wait(60)
        super().write(table)


def test_record_does_not_wait_for_hanging_statement(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches once waited for room while the event loop handed them over, and it answered nobody for 1.5 s."""
    monkeypatch.setattr(recorder, "_MAX_BYTES", 300 * started([1]).nbytes)
    ledger = Slow(f"sqlite:///{tmp_path}/a.db", keep_seconds=1e12, keep_positions=10_000)
    with recording(ledger) as own:
        own.record(started([1]))
        assert ledger.begun.wait(60)
        for number in range(400):  # nobody else waits either: this thread is the one that would
            own.record(started([number]))
        assert (own.waiting, own.lost) == (301, 100)
        ledger.ends.set()
        assert written(own)
        assert (count(ledger), own.lost) == (301, 100)
        assert told(own, "movemask_ledger_lost_total") == ["movemask_ledger_lost_total 100.0"]
    ledger.close()


def test_close_counts_unwritten_positions_as_lost_once(tmp_path: Path) -> None:
    """The write that `close` did not wait for once counted its positions again: -3 waited."""
    ledger = Slow(f"sqlite:///{tmp_path}/a.db", keep_seconds=1e12, keep_positions=10_000)
    with recording(ledger) as own:
        own.record(started([1, 2, 3]))
        assert ledger.begun.wait(60)
        own.close(timeout=0)
        assert (own.waiting, own.lost) == (0, 3)
        ledger.ends.set()
        own._thread.join(60)
        assert (own.waiting, own.lost) == (0, 3)
        assert told(own, "movemask_ledger_lost_total") == ["movemask_ledger_lost_total 3.0"]
    ledger.close()


def test_missing_database_keeps_max_waiting_positions(tmp_path: Path) -> None:
    folder = tmp_path / "later"
    ledger = Ledger(f"sqlite:///{folder}/a.db", keep_seconds=1e12, keep_positions=10_000)
    with recording(ledger, max_waiting=10) as own:
        until(lambda: own.failure, "the failure is told")
        for number in range(1, 16, 3):
            own.record(started(range(number, number + 3)))
            until(lambda: not own._batches, "it is measured")
        assert (own.waiting, own.lost) == (10, 5)
        assert len(own._tables) == 2, "the first, which is tried, and one with the others"
        assert told(own, "movemask_positions_total") == ['movemask_positions_total{model="net",status="ongoing"} 15.0']
        folder.mkdir()
        until(lambda: written(own), "what waited is written")
        assert (count(ledger), own.lost, own.failure) == (10, 5, None)
    ledger.close()


def with_long_fens(batch: AnsweredBatch, bad: list[int]) -> AnsweredBatch:
    """A batch with positions that PostgreSQL refuses as it does when a disk is full, which passes; this never does."""
    assert batch.evaluated is not None
    for row in bad:
        batch.evaluated.batch.positions[row].board.fullmove_number = 10**4000
    return batch


def test_unwritable_position_is_lost_alone(either: Ledger) -> None:
    with recording(either) as own:
        own.record(with_long_fens(started(range(1, 81)), [70]))
        own.record(with_long_fens(started(range(101, 123)), [0, 21]))
    assert (count(either), own.lost, own.failure) == (99, 3, None)
    fens = {position["fen"] for position in LedgerReader(either.database).positions(1_000_000)}
    assert fens == {numbered(number) for number in (*range(1, 71), *range(72, 81), *range(102, 122))}


def test_unconfirmed_commit_is_not_repeated(database_url: str) -> None:
    """The database has committed a table, and its reply was lost."""

    class Unconfirmed(Ledger):
        confirmed = True

        def write(self, table: LedgerTable) -> None:
            super().write(table)
            self.confirmed = not self.confirmed
            if not self.confirmed:
                raise LedgerError("the reply was lost")

    ledger = Unconfirmed(database_url, keep_seconds=3600, keep_positions=10_000)
    with recording(ledger) as own:
        own.record(with_long_fens(started(range(1, 65)), [40]))
        until(lambda: written(own), "all is written")
    assert (count(ledger), own.lost) == (63, 1)
    assert len(LedgerReader(ledger.database).positions(1_000_000)) == 63
    ledger.close()


def test_unwritable_batch_is_lost_alone(ledger: Ledger) -> None:
    """What no check foresees. Here: a text that is no text."""
    with recording(ledger) as own:
        own.record(started([1, 2], model=replace(MODEL, name=object())))  # type: ignore[arg-type]
        own.record(started([3]))
    assert (count(ledger), own.lost, own.failure) == (1, 2, None)


def test_unmeasurable_batch_is_lost(ledger: Ledger) -> None:
    class Broken(Plan):
        def draw_kinds(self, draw: float) -> tuple[str, ...]:
            raise MemoryError

    with recording(ledger, Broken()) as own:
        own.record(started([1, 2]))
    assert (own.lost, own.waiting) == (2, 0)


def test_surplus_positions_are_pruned_without_requests(
    either: Ledger, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorder, "_PRUNE_SECONDS", 0.01)

    def table(numbers: range) -> LedgerTable:
        return LedgerTable.of([started(numbers)], Plan().always, 1.0)

    either.write(table(range(1, 11)))
    with opened(database_url, keep_positions=3) as smaller, recording(smaller):
        until(lambda: len(LedgerReader(either.database).positions(100)), "a start deletes the surplus", equals=3)
        either.write(table(range(11, 15)))
        until(lambda: len(LedgerReader(either.database).positions(100)), "so does a service that nobody asks", equals=3)
    assert count(either) == 14
