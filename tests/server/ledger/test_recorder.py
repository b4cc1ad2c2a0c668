"""What a user would lose: answers that never wait for the database, and records that outlive a database in trouble."""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from movemask.errors import LedgerError
from movemask.server.ledger import recorder
from movemask.server.ledger.entries import LedgerBatch, LedgerTable
from movemask.server.ledger.ledger import Ledger
from movemask.server.ledger.reader import LedgerReader
from tests.processes import until
from tests.server.ledger.records import audited, numbered, opened, recording, written


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with opened(f"sqlite:///{tmp_path}/audit.db") as ledger:
        yield ledger


@pytest.fixture
def either(database_url: str) -> Iterator[Ledger]:
    """A ledger in SQLite, and one in PostgreSQL."""
    with opened(database_url) as ledger:
        yield ledger


def count(ledger: Ledger) -> int:
    return sum(figures.positions for figures in LedgerReader(ledger.database).summaries())


def test_records_are_written_by_themselves_and_closing_writes_the_rest(ledger: Ledger) -> None:
    own = recording(ledger, max_waiting=10_000)
    own.record([audited(range(1, 4501))])  # more than goes into one transaction
    assert written(own)
    assert count(ledger) == 4500
    own.record([audited([1])])
    own.close()
    assert count(ledger) == 4501


def test_closing_on_a_broken_database_says_what_was_lost(
    ledger: Ledger, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    own = recording(ledger)
    with sqlite3.connect(tmp_path / "audit.db") as other:
        other.execute("DROP TABLE position")
    other.close()
    own.record([audited([1])])
    own.close(timeout=10)
    assert "1 audit records were not written" in caplog.text


def with_bad(made: LedgerBatch, bad: Sequence[int], kind: str) -> LedgerBatch:
    """A batch with positions that the database refuses."""
    rows = np.zeros(len(made), dtype=np.bool_)
    rows[list(bad)] = True
    raw = made.measured["raw"]
    match kind:
        case "too long a FEN":  # PostgreSQL names it as it names a full disk, which passes; this never does
            for row in bad:
                made.batch.positions[row].board.fullmove_number = 10**4000
        case "infinity that leaks" | "less than nothing":
            leaked = np.where(rows, math.inf if kind == "infinity that leaks" else -0.5, raw.leaked)
            made = replace(made, measured={**made.measured, "raw": replace(raw, leaked=leaked)})
        case "a divergence of NaN":
            kl = np.where(rows, math.nan, raw.kl)
            made = replace(made, measured={**made.measured, "raw": replace(raw, kl=kl)})
    return made


#: What cannot be recorded of a position.
IMPOSSIBLE = ["too long a FEN", "infinity that leaks", "less than nothing", "a divergence of NaN"]


@pytest.mark.parametrize("kind", IMPOSSIBLE)
def test_a_bad_position_costs_itself_alone_and_is_counted(either: Ledger, kind: str) -> None:
    own = recording(either)
    own.record([with_bad(audited(range(1, 81)), [70], kind)])
    own.record([with_bad(audited(range(101, 123)), [0, 21], kind)])
    own.close(60)
    assert (count(either), own.dropped, own.failure) == (99, 3, None)
    kept = {position["fen"] for position in LedgerReader(either.database).positions(1_000_000)}
    assert kept == {numbered(number) for number in (*range(1, 71), *range(72, 81), *range(102, 122))}


def test_what_the_database_committed_without_telling_is_not_written_again(database_url: str) -> None:
    class Untold(Ledger):
        told = True

        def write(self, table: LedgerTable) -> None:
            super().write(table)
            self.told = not self.told
            if not self.told:
                raise LedgerError("the reply was lost")

    ledger = Untold(database_url, keep_seconds=3600, keep_positions=10_000)
    own = recording(ledger)
    own.record([with_bad(audited(range(1, 65)), [40], "infinity that leaks")])
    until(lambda: written(own), "all is written")
    own.close()
    assert (count(ledger), own.dropped) == (63, 1)
    assert len(LedgerReader(ledger.database).positions(1_000_000)) == 63
    ledger.close()


def test_a_batch_that_the_database_always_refuses_costs_itself_alone(ledger: Ledger) -> None:
    """What no check foresees. Here: a text that is no text."""
    own = recording(ledger)
    bad = replace(audited([1, 2]), model=replace(audited([1]).model, name=object()))  # type: ignore[arg-type]
    own.record([bad])
    own.record([audited([3])])
    own.close(60)
    assert (count(ledger), own.dropped, own.failure) == (1, 2, None)


def test_positions_beyond_their_number_are_gone_soon_without_a_request(
    either: Ledger, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorder, "_PRUNE_SECONDS", 0.01)
    either.write(audited(range(1, 11)).table())
    with opened(database_url, keep_positions=3) as smaller:
        own = recording(smaller)
        until(lambda: len(LedgerReader(either.database).positions(100)) == 3, "a start deletes the surplus")
        either.write(audited(range(11, 15)).table())
        until(lambda: len(LedgerReader(either.database).positions(100)) == 3, "so does a service that nobody asks")
        own.close()
    assert count(either) == 14
