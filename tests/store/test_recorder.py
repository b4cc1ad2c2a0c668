"""What a user would lose: answers that never wait for the database, and records that outlive a database in trouble."""

from __future__ import annotations

import asyncio
import math
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from movemask.errors import StoreError
from movemask.leakage.audited import Audited, records_of
from movemask.leakage.causes import Cause
from movemask.leakage.record import AuditRecord, Figure
from movemask.pipeline import Query
from movemask.store.database import SQLITE
from movemask.store.figures import Figures
from movemask.store.recorder import Freshness, Recorder
from movemask.store.store import Store
from tests.networks import fake_model, pipeline
from tests.store.records import record


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    yield from opened(f"sqlite:///{tmp_path}/audit.db")


@pytest.fixture
def either(database_url: str) -> Iterator[Store]:
    """A store in SQLite, and one in PostgreSQL."""
    yield from opened(database_url)


def opened(url: str) -> Iterator[Store]:
    made = Store(url, keep_seconds=3600, keep_positions=10_000, keep_worst=10)
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
    recorder = Recorder(store, flush_seconds=0.01, max_waiting=3, on_waiting=lambda *now: told.append(now))

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


#: Each is one that some part of the way to the database refuses: JSON, the sketches, the driver, a column, an index.
IMPOSSIBLE: dict[str, Callable[[], AuditRecord]] = {
    "a NUL in a name": lambda: record(fen="bad", model="net\0"),
    "half of a character": lambda: record(fen="bad\ud800"),
    "no text": lambda: record(fen=object()),  # type: ignore[arg-type]
    "a count that no column holds": lambda: record(fen="bad", legal_moves=2**70),
    "NaN that leaks": lambda: record(math.nan, fen="bad"),
    "NaN where a figure is required": lambda: record(0.5, math.nan, fen="bad"),
    "infinity that leaks": lambda: record(math.inf, fen="bad"),
    "less than nothing": lambda: record(-0.5, fen="bad"),
    "a divergence of NaN": lambda: record(fen="bad", more={"rounded": Figure(0.1, kl=math.nan)}),
    "a cause of NaN": lambda: record(fen="bad", causes={Cause.BLOCKED: math.nan}),
    "a time that is none": lambda: record(fen="bad", at=math.nan),
    "a time far away": lambda: record(fen="bad", at=1e300),
}


@pytest.mark.parametrize("kind", IMPOSSIBLE)
def test_a_bad_record_costs_itself_alone_and_is_counted(either: Store, kind: str) -> None:
    recorder = Recorder(either, flush_seconds=1.0, max_waiting=1000)
    bad = IMPOSSIBLE[kind]
    if kind == "a NUL in a name" and either.database.dialect == SQLITE:
        pytest.skip("SQLite keeps a NUL")
    recorder.record(
        [record(fen=f"good {n}") for n in range(70)] + [bad()] + [record(fen=f"more {n}") for n in range(9)]
    )
    recorder.record([bad(), *[record(fen=f"last {n}") for n in range(20)], bad()])
    assert recorder.flush(60)
    recorder.close()
    assert (count(either), recorder.dropped, recorder.failure) == (99, 3, None)
    kept = {position.fen for position in Figures(either.database).all_positions()}
    assert len(kept) == 99
    assert not any(fen.startswith("bad") for fen in kept)


def test_a_position_too_long_for_an_index_does_not_stop_the_audit(either: Store) -> None:
    """PostgreSQL names it as it names a full disk, which passes; this never does."""
    digits = "".join(str(number) for number in np.random.default_rng(1).integers(0, 10, 20_000))
    recorder = Recorder(either, flush_seconds=1.0, max_waiting=1000)
    recorder.record([record(fen="a"), record(fen=digits), record(fen="b")])
    assert recorder.flush(60)
    recorder.close()
    assert count(either) + recorder.dropped == 3
    assert {"a", "b"} <= {position.fen for position in Figures(either.database).all_positions()}


@given(bad=st.sets(st.integers(0, 39)), batches=st.integers(1, 3))
@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_whichever_records_are_bad_all_others_are_written_once(tmp_path: Path, bad: set[int], batches: int) -> None:
    url = f"sqlite:///{tmp_path}/{uuid4().hex}.db"
    for store in opened(url):
        recorder = Recorder(store, flush_seconds=1.0, max_waiting=1000)
        for batch in range(batches):
            recorder.record([record(math.inf if n in bad else 0.1, fen=f"{batch} {n}") for n in range(40)])
        assert recorder.flush(60)
        recorder.close()
        assert (count(store), recorder.dropped) == (batches * (40 - len(bad)), batches * len(bad))


def test_a_database_that_fails_between_the_parts_of_a_batch_loses_and_repeats_nothing(
    store: Store, tmp_path: Path
) -> None:
    """A batch with a bad record is written in parts, and the database goes after the first of them."""
    calls: list[int] = []

    class Failing(Store):
        def write(self, records: Sequence[AuditRecord]) -> None:
            calls.append(len(records))
            if calls == [64, 32, 32]:
                raise StoreError("gone for a moment")
            super().write(records)

    failing = Failing(f"sqlite:///{tmp_path}/audit.db", keep_seconds=3600, keep_positions=10_000, keep_worst=10)
    recorder = Recorder(failing, flush_seconds=0.01, max_waiting=1000)
    recorder.record([record(math.inf if n == 40 else 0.1, fen=str(n)) for n in range(64)])
    while not recorder.flush(60):  # what failed is tried again a tenth of a second later
        pass
    recorder.close()
    assert (count(store), recorder.dropped) == (63, 1)
    assert len({position.fen for position in Figures(store.database).all_positions()}) == 63
    failing.close()


def test_figures_say_how_fresh_they_are(store: Store, tmp_path: Path) -> None:
    recorder = Recorder(store, flush_seconds=0.01, max_waiting=100)
    before = time.time()
    assert recorder.freshness().as_of >= before  # nothing waits: all that was answered is there
    with sqlite3.connect(tmp_path / "audit.db") as other:
        other.execute("ALTER TABLE position RENAME TO gone")
    recorder.record([record(fen="a", at=1000.0), record(fen="b", at=2000.0)])
    assert not recorder.flush(30)
    assert recorder.freshness() == Freshness(1000.0, 2)
    other.execute("ALTER TABLE gone RENAME TO position")
    other.close()
    recorder.close(60)


def audited(*moves: str) -> Audited:
    """What a pipeline hands over for the positions after these first moves."""
    made: list[Audited] = []
    asked = pipeline(fake_model(), made.extend)
    asyncio.run(asked.evaluate([Query(moves=(move,)) for move in moves], lambda answer: None))
    asked.close()
    (whole,) = made
    return whole


def test_figures_are_not_said_to_hold_answers_that_are_still_to_be_recorded(store: Store) -> None:
    recorder = Recorder(store, flush_seconds=0.01, max_waiting=100)
    before = time.time()
    recorder.expect(2)
    fresh = recorder.freshness()
    assert fresh.waiting == 2
    assert before <= fresh.as_of < recorder.freshness().as_of + 1
    assert recorder.freshness().as_of == fresh.as_of  # it stands still until they are there
    assert not recorder.flush(0.01)
    recorder.audit([audited("e2e4", "d2d4")])
    assert recorder.flush(30)
    assert recorder.freshness().as_of > fresh.as_of
    assert (count(store), recorder.freshness().waiting, recorder.dropped) == (2, 0, 0)
    recorder.close()


def test_what_was_expected_and_could_not_be_made_is_dropped_and_counted(store: Store) -> None:
    recorder = Recorder(store, flush_seconds=0.01, max_waiting=100)
    recorder.expect(3)
    recorder.audit([])
    assert recorder.flush(30)
    assert (recorder.dropped, recorder.waiting) == (3, 0)
    recorder.close()


def test_a_batch_of_which_every_answer_was_withheld_leaves_nothing_waiting(store: Store) -> None:
    recorder = Recorder(store, flush_seconds=0.01, max_waiting=100)
    recorder.expect(2)
    recorder.audit([replace(audited("e2e4", "d2d4"), unanswered=frozenset({0, 1}))])
    assert recorder.flush(30)
    assert (count(store), recorder.dropped, recorder.waiting) == (0, 0, 0)
    recorder.close()


def test_batches_of_one_network_are_recorded_as_if_each_were_alone(store: Store) -> None:
    together: list[AuditRecord] = []
    alone: list[AuditRecord] = []
    batches = [audited("e2e4", "d2d4"), audited("g1f3"), replace(audited("c2c4", "b1c3"), unanswered=frozenset({0}))]
    recorder = Recorder(store, flush_seconds=1.0, max_waiting=100, on_records=together.extend)
    recorder.audit(batches[:2])
    recorder.audit(batches[2:])
    assert recorder.flush(30)
    recorder.close()
    for batch in batches:
        alone += records_of(batch)
    assert together == alone
    assert len(together) == 4
