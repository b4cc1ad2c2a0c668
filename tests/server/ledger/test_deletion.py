"""Deleted positions and figures, and a ledger that keeps no positions."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from movemask.errors import LedgerError
from movemask.server.ledger.ledger import Deleted, Ledger, delete
from movemask.server.ledger.postgresql import lift_limits
from movemask.server.ledger.reader import LedgerReader
from movemask.server.ledger.tables import CELL
from tests.conftest import Serve
from tests.postgres import Server
from tests.processes import run, until
from tests.server.ledger.records import opened, record, write

DAY = 86_400


@pytest.fixture
def ledger(database_url: str) -> Iterator[Ledger]:
    """Three positions of `old` and two of `net`, half of them a month old."""
    now = time.time()
    old = [record(fen=f"old {days}", model="old", digest="sha256:b", at=now - days * DAY) for days in (1, 30, 40)]
    with opened(database_url) as ledger:
        write(ledger, old + [record(fen=f"net {days}", at=now - days * DAY) for days in (2, 31)])
        yield ledger


def left(ledger: Ledger) -> set[str]:
    figures = LedgerReader(ledger.database)
    positions = {position["fen"] for position in figures.positions(100)}
    worst = {position["fen"] for kind in ("raw", "multiplied") for position in figures.worst(kind, 100)}
    assert worst == positions
    return positions


def counts(ledger: Ledger) -> dict[str, int]:
    return {model.name: model.positions for model in LedgerReader(ledger.database).summaries()}


def test_delete_by_time_and_model_keeps_figures(ledger: Ledger) -> None:
    week = time.time() - 7 * DAY
    assert delete(ledger.database, before=week, model=None, only_count=True) == Deleted(3, 6, 0)
    assert len(left(ledger)) == 5
    assert delete(ledger.database, before=week, model="old") == Deleted(2, 4, 0)
    assert left(ledger) == {"old 1", "net 2", "net 31"}
    assert delete(ledger.database, before=week, model=None) == Deleted(1, 2, 0)
    assert delete(ledger.database, before=None, model="net") == Deleted(1, 2, 0)
    assert left(ledger) == {"old 1"}
    assert counts(ledger) == {"net": 2, "old": 3}


def test_delete_figures_of_model(ledger: Ledger) -> None:
    deleted = delete(ledger.database, before=None, model="old", figures=True)
    assert deleted.positions == 3
    assert deleted.figures > 0
    assert counts(ledger).get("old", 0) == 0
    assert counts(ledger)["net"] == 2
    write(ledger, [record(fen="again", model="old", digest="sha256:b")])
    assert counts(ledger)["old"] == 1
    with pytest.raises(LedgerError, match="no model 'none'; available: net, old"):
        delete(ledger.database, before=None, model="none")


def test_concurrent_write_does_not_restore_deleted_figures(postgres: Server) -> None:
    url = postgres.database()
    with opened(url) as ledger, opened(url) as other, ThreadPoolExecutor() as threads:
        write(ledger, [record(fen="one")])
        read, goes_on = threading.Event(), threading.Event()

        def before(connection: sa.Connection, cursor: Any, statement: str, *_: Any) -> None:
            """Stops the write when it has read the figures that it adds to."""
            if statement.startswith("INSERT INTO cell") and not read.is_set():
                lift_limits(connection)
                read.set()
                assert goes_on.wait(60)

        def waits() -> bool:
            with other.database.reading() as connection:
                return bool(connection.scalar(sa.text("SELECT count(*) FROM pg_locks WHERE NOT granted")))

        sa.event.listen(ledger.database._engine, "before_cursor_execute", before)
        writing = threads.submit(write, ledger, [record(fen="two")])
        assert read.wait(60)
        deleting = threads.submit(delete, other.database, before=None, model="net", figures=True)
        until(lambda: deleting.done() or waits(), "the figures are deleted, or wait for the write")
        goes_on.set()
        writing.result(60)
        deleting.result(60)
        with other.database.reading() as connection:
            assert connection.scalar(sa.select(sa.func.max(CELL.c.count))) is None


def test_deleted_positions_leave_the_file(tmp_path: Path) -> None:
    with opened(f"sqlite:///{tmp_path}/a.db") as ledger:
        write(ledger, [record(fen=f"secret-{number}") for number in range(100)])
        delete(ledger.database, before=None, model=None)
    for file in tmp_path.iterdir():
        assert b"secret-" not in file.read_bytes(), file.name


def test_ledger_positions_off_keeps_no_fen(serve: Serve, tmp_path: Path) -> None:
    client = serve(ledger_positions="off")
    fen = "rnb1kbnr/pppp1ppp/8/4p3/4P2q/5P2/PPPP2PP/RNBQKBNR w KQkq - 1 3"
    assert client.post("/v1/policy", json={"fen": fen}).status_code == 200
    assert client.get("/v1/leakage").json()["models"]["fake"]["positions"] == 1
    assert client.get("/v1/leakage/positions").json()["positions"] == []
    assert client.get("/v1/leakage/worst").json()["positions"] == []
    for file in tmp_path.glob("audit.db*"):
        assert fen.split()[0].encode() not in file.read_bytes(), file.name


def test_delete_command_output(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/a.db"
    with opened(url) as ledger:
        write(ledger, [record(fen="one"), record(fen="two", at=time.time() - 9 * DAY)])

    def delete(*arguments: str) -> tuple[int, str]:
        result = run("positions", "delete", "--database-url", url, *arguments)
        return result.exit_code, result.output

    deleted = "deleted: 1 positions, 2 of the worst, 0 rows of figures\n"
    assert delete("--before", "7d", "--dry-run") == (0, f"would be {deleted}")
    assert delete("--before", "7d") == delete("--all") == (0, deleted)
    for arguments in ([], ["--all", "--model", "net"], ["--figures", "--before", "7d"], ["--before", "soon"]):
        code, output = delete(*arguments)
        assert code == 1
        assert output.startswith("Error: ")
