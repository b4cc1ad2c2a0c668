"""What a user would lose: answers that never wait for the database, and records that outlive a database in trouble."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from service.audit.figures import Figures
from service.audit.recorder import Recorder
from service.audit.store import Store
from tests.audit.records import record


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    made = Store(f"sqlite:///{tmp_path}/audit.db", keep_seconds=3600, keep_positions=10_000, keep_worst=10)
    yield made
    made.close()


def count(store: Store) -> int:
    return sum(figures.positions for figures in Figures(store.database).models())


def test_records_are_written_by_themselves_within_the_second(store: Store) -> None:
    recorder = Recorder(store, flush_seconds=0.05, max_waiting=100)
    recorder.record([record()])
    for _ in range(200):  # ten seconds on the slowest machine; no claim about time
        if count(store):
            break
        recorder._thread.join(0.05)
    assert count(store) == 1
    recorder.close()


def test_a_flush_writes_at_once_and_closing_writes_the_rest(store: Store) -> None:
    recorder = Recorder(store, flush_seconds=1.0, max_waiting=10_000)
    recorder.record([record(fen=str(n)) for n in range(5000)])
    assert recorder.flush(30)
    assert count(store) == 5000
    recorder.record([record()])
    recorder.close()
    assert count(store) == 5001


def test_a_locked_database_loses_nothing_and_writing_resumes(
    store: Store, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    told: list[tuple[int, int]] = []
    recorder = Recorder(store, flush_seconds=0.01, max_waiting=3, watch=lambda *now: told.append(now))

    other = sqlite3.connect(tmp_path / "audit.db", isolation_level=None)
    other.execute("ALTER TABLE position RENAME TO gone")  # the fault: writes fail at once
    recorder.record([record(fen="a"), record(fen="b")])
    assert not recorder.flush(30)
    assert recorder.failure is not None
    assert "no such table: position" in recorder.failure
    recorder.record([record(fen="c"), record(fen="d")])  # room for one more
    assert recorder.dropped == 1
    assert (3, 1) in told
    other.execute("ALTER TABLE gone RENAME TO position")
    other.close()
    for _ in range(200):
        if count(store) == 3:
            break
        recorder._thread.join(0.1)
    assert count(store) == 3
    assert recorder.flush(10)
    assert recorder.failure is None
    recorder.close()

    assert "the audit store can be written again" in caplog.text


def test_closing_on_a_broken_database_says_what_was_lost(
    store: Store, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    recorder = Recorder(store, flush_seconds=0.01, max_waiting=10)
    with sqlite3.connect(tmp_path / "audit.db") as other:
        other.execute("DROP TABLE position")
    other.close()
    recorder.record([record()])
    recorder.close(timeout=10)
    assert "1 audit records were not written" in caplog.text


def test_a_record_that_can_never_be_written_does_not_stop_the_others(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    recorder = Recorder(store, flush_seconds=0.01, max_waiting=10)
    recorder.record([record(fen=object())])  # type: ignore[arg-type]
    assert recorder.flush(10)
    assert recorder.dropped == 1
    recorder.record([record()])
    assert recorder.flush(10)
    assert count(store) == 1
    recorder.close()
    assert "1 audit records cannot be written and are dropped" in caplog.text
