"""What an operator would lose when the database is in trouble: answers, and the count of what was answered.

Each fault on a real SQLite file and a real PostgreSQL. What cannot be brought about on this machine is skipped by name.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest
from fastapi.testclient import TestClient

from movemask.server.ledger import postgresql, sqlite
from movemask.server.ledger.reader import AuditReader
from tests.conftest import Serve
from tests.disks import as_root, file_system
from tests.postgres import Proxy, Server
from tests.processes import call, served, stopped, until
from tests.server.asking import refused
from tests.server.ledger.records import opened

MOVES = ["e2e4", "d2d4", "c2c4", "g1f3", "b1c3"]


class SqliteFaults:
    """Troubles of a file: a database that can get into one of them, and each while it lasts."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "db"

    @contextmanager
    def database(self, fault: str) -> Iterator[str]:
        self.folder.mkdir()
        with file_system(self.folder, "size=1m") if fault == "full" else nullcontext():
            yield f"sqlite:///{self.folder}/audit.db"

    @contextmanager
    def locked(self) -> Iterator[None]:
        other = sqlite3.connect(self.folder / "audit.db", isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        yield
        other.execute("ROLLBACK")
        other.close()

    @contextmanager
    def gone(self) -> Iterator[None]:
        away = self.folder.with_name("away")
        self.folder.rename(away)
        yield
        away.rename(self.folder)

    @contextmanager
    def read_only(self) -> Iterator[None]:
        files = [str(file) for file in [*self.folder.iterdir(), self.folder]]
        if not as_root("chattr", "+i", *files):
            as_root("chattr", "-i", *files)
            pytest.skip("files cannot be made immutable here (chattr +i): a read-only disk cannot be made")
        yield
        as_root("chattr", "-i", *files)

    @contextmanager
    def full(self) -> Iterator[None]:
        with open(self.folder / "junk", "wb", buffering=0) as junk:
            for size in (65_536, 512, 1):
                with suppress(OSError):
                    while junk.write(b"\0" * size):
                        pass
        yield
        (self.folder / "junk").unlink()


class PostgresqlFaults(SqliteFaults):
    """The same troubles of a server."""

    def __init__(self, folder: Path, server: Server) -> None:
        super().__init__(folder)
        self.server = server
        self.name = ""

    @contextmanager
    def database(self, fault: str) -> Iterator[str]:
        with self._small_disk() if fault == "full" else nullcontext("") as options:
            url = self.server.database(options)
            self.name = url.rsplit("/", 1)[1]
            yield url

    @contextmanager
    def _small_disk(self) -> Iterator[str]:
        with file_system(self.server.folder / f"disk{os.getpid()}", "size=16m") as self.folder:
            space = self.folder / "space"
            space.mkdir()
            if os.geteuid() == 0:
                shutil.chown(space, "postgres")
            self.server.execute(f"CREATE TABLESPACE small LOCATION '{space}'")
            yield "TABLESPACE small"
            self.server.execute(f"DROP DATABASE {self.name} WITH (FORCE)", "CHECKPOINT", "DROP TABLESPACE small")

    @contextmanager
    def locked(self) -> Iterator[None]:
        with psycopg.connect(self.server.url(self.name)) as other:
            other.execute("LOCK TABLE position IN ACCESS EXCLUSIVE MODE")
            yield

    @contextmanager
    def gone(self) -> Iterator[None]:
        self.server.stop()
        yield
        self.server.start()

    @contextmanager
    def read_only(self) -> Iterator[None]:
        reconnect = f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{self.name}'"
        self.server.execute(f"ALTER DATABASE {self.name} SET default_transaction_read_only = on", reconnect)
        yield
        self.server.execute(f"ALTER DATABASE {self.name} SET default_transaction_read_only = off", reconnect)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Silence is noticed after a second."""
    monkeypatch.setattr(postgresql, "_ANSWER_SECONDS", 1.0)
    monkeypatch.setattr(postgresql, "_CONNECT_SECONDS", 2)


@pytest.fixture(params=["sqlite", "postgresql"])
def faults(request: pytest.FixtureRequest, tmp_path: Path) -> SqliteFaults:
    if request.param == "sqlite":
        return SqliteFaults(tmp_path)
    return PostgresqlFaults(tmp_path, request.getfixturevalue("postgres"))


def positions(client: TestClient) -> int:
    """How many the audit counts; -1 if it cannot be read."""
    answer = client.get("/v1/leakage")
    if answer.status_code != 200:
        assert answer.json()["type"] == "urn:movemask:problem:audit-unavailable"
        return -1
    return sum(model["positions"] for model in answer.json()["models"].values())


def audit(client: TestClient) -> Any:
    """The state of the audit as operators see it."""
    return client.get("/readyz").json()["audit"]


@pytest.mark.parametrize("fault", ["locked", "gone", "read_only", "full"])
def test_requests_are_answered_records_wait_and_writing_goes_on_by_itself(
    fault: str, faults: SqliteFaults, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (sqlite, postgresql):
        monkeypatch.setattr(module, "_LOCK_SECONDS", 1)  # a lock is waited for in vain
    with faults.database(fault) as url:
        # Values as long as those of real positions, so that a full disk is felt at once.
        client = serve(database_url=url, audit_share=1)
        client.app.state.services.recorder.max_waiting = 4  # type: ignore[attr-defined]
        for move in MOVES[:2]:
            assert client.post("/v1/policy", json={"moves": [move]}).status_code == 200
        assert positions(client) == 2

        with getattr(faults, fault)():
            answered = 2
            for count in range(400 if fault == "full" else 3):
                assert client.post("/v1/policy", json={"moves": [MOVES[count % 5]]}).status_code == 200
                answered += 1
                if fault == "full" and audit(client)["failure"]:
                    break
            until(lambda: audit(client)["failure"] is not None, f"{fault} is told")
            assert audit(client)["waiting"] >= 1
            before = audit(client)["dropped"]
            lost = before
            while lost == before:  # until the buffer is full; records of several answers may take a place together
                assert client.post("/v1/policy", json={"moves": []}).status_code == 200
                answered += 1
                assert answered < 500
                lost = audit(client)["dropped"]
            assert audit(client)["waiting"] == 4
            assert f"movemask_audit_dropped_total {float(lost)}" in client.get("/metrics").text
            assert positions(client) in (-1, *range(2, answered))
        until(lambda: positions(client) == answered - lost, "everything that waited is written")
        assert audit(client) == {"waiting": 0, "dropped": lost, "failure": None}
        assert client.post("/v1/policy", json={"moves": []}).status_code == 200
        assert positions(client) == answered - lost + 1
        client.app.state.services.store.close()  # type: ignore[attr-defined]  # before its disk goes


@pytest.mark.parametrize("where", [0, 4096])
def test_a_file_that_is_damaged_is_set_aside_and_made_anew(serve: Serve, tmp_path: Path, where: int) -> None:
    """Issue 17: the only fault of a database that the service did not recover from."""
    client = serve(database_url=f"sqlite:///{tmp_path}/x.db")
    client.post("/v1/policy", json={"moves": []})
    assert positions(client) == 1
    with sqlite3.connect(tmp_path / "x.db") as other:
        other.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    other.close()
    with open(tmp_path / "x.db", "r+b") as damaged:
        damaged.seek(where)
        damaged.write(b"\xde\xad" * 40_000)
    for _ in range(3):
        assert client.post("/v1/policy", json={"moves": []}).status_code == 200
    until(lambda: (tmp_path / "x.db").exists() and positions(client) == 3, "a new file counts from nothing")
    assert len([file for file in tmp_path.glob("x.db.damaged-*") if file.suffix not in (".wal", ".shm")]) >= 1
    assert client.get("/readyz").json()["audit"]["failure"] is None


def test_a_server_that_comes_up_after_the_service_gets_what_waited(postgres: Server, serve: Serve) -> None:
    url = postgres.database()
    postgres.stop()
    client = serve(database_url=url)
    assert client.post("/v1/policy", json={"moves": []}).status_code == 200
    readiness = client.get("/readyz")
    assert readiness.status_code == 200
    assert "cannot be" in readiness.json()["audit"]["failure"]
    postgres.start()
    until(lambda: positions(client) == 1, "the record that waited is written")


def test_what_was_written_is_not_written_again_when_the_reply_to_its_commit_is_lost(
    postgres: Server, serve: Serve
) -> None:
    """Issue 51: 800 answers were counted as 1,068."""
    with Proxy(postgres) as proxy:
        client = serve(database_url=proxy.url(postgres.database()))
        for answered in range(1, 7):
            proxy.lose_replies = 2
            assert client.post("/v1/policy", json={"moves": [MOVES[answered % 5]]}).status_code == 200
            until(lambda: not proxy.lose_replies, "the replies to two commits are lost")
            until(lambda: audit(client) == {"waiting": 0, "dropped": 0, "failure": None}, "the position is written")
            assert positions(client) == answered
        assert proxy.lost == 12
        assert len(client.get("/v1/leakage/positions").json()["positions"]) == 6


def test_what_was_answered_behind_a_firewall_that_forgot_the_connection_is_written_by_a_new_one(
    postgres: Server, serve: Serve, quick: None
) -> None:
    with Proxy(postgres) as proxy:
        client = serve(database_url=proxy.url(postgres.database()))
        for answered in range(1, 4):
            assert client.post("/v1/policy", json={"moves": [MOVES[answered]]}).status_code == 200
            until(lambda: audit(client)["waiting"] == 0, "the position is written")
            proxy.fall_silent()
        until(lambda: positions(client) == 3, "the figures are read by a new connection")
        assert audit(client) == {"waiting": 0, "dropped": 0, "failure": None}


def test_locks_of_a_transaction_whose_client_is_gone_hold_up_the_next_one_for_seconds_only(
    postgres: Server, serve: Serve, quick: None
) -> None:
    """The server would keep them until its TCP gives up, by default after two hours."""
    with Proxy(postgres) as proxy:
        client = serve(database_url=proxy.url(postgres.database()))
        assert client.post("/v1/policy", json={"moves": []}).status_code == 200
        until(lambda: audit(client)["waiting"] == 0, "the position is written")
        proxy.hold_commits = 2
        assert client.post("/v1/policy", json={"moves": []}).status_code == 200
        until(lambda: audit(client)["waiting"] == 0 and not proxy.hold_commits, "the position is written")
        until(lambda: positions(client) == 2, "each position is counted once")


def test_a_database_that_falls_silent_is_named_and_gets_what_waited_when_it_speaks_again(
    postgres: Server, serve: Serve, quick: None
) -> None:
    with Proxy(postgres) as proxy:
        client = serve(database_url=proxy.url(postgres.database()))
        assert client.post("/v1/policy", json={"moves": []}).status_code == 200
        assert positions(client) == 1
        proxy.fall_silent(new_too=True)
        for move in MOVES:
            assert client.post("/v1/policy", json={"moves": [move]}).status_code == 200
        until(lambda: audit(client)["failure"] is not None, "the silence is told")
        assert "the database does not answer" in audit(client)["failure"]
        with ThreadPoolExecutor(12) as pool:  # many readers wait no longer than one
            answers = list(pool.map(client.get, ["/v1/leakage", "/v1/leakage/worst", "/v1/leakage/positions"] * 4))
        for answer in answers:
            refused(answer, 503, "audit-unavailable")
        proxy.speak()
        until(lambda: positions(client) == 6, "everything that waited is written")
        assert audit(client) == {"waiting": 0, "dropped": 0, "failure": None}


@pytest.mark.parametrize("silent", ["between transactions", "before a commit"])
def test_a_stop_beside_a_silent_connection_loses_nothing(silent: str, postgres: Server, models: Path) -> None:
    """Issue 51: 600 records were lost. A new connection gets through."""
    database_url = postgres.database()
    with Proxy(postgres) as proxy:
        with served(models, "--database-url", proxy.url(database_url), "--workers", "1") as (process, port):
            call(port, "/v1/policy", {"moves": []})
            until(lambda: call(port, "/readyz")["audit"]["waiting"] == 0, "the position is written")
            if silent == "before a commit":
                proxy.hold_commits = 1
            else:
                proxy.fall_silent()
            for move in MOVES:
                call(port, "/v1/policy", {"moves": [move]})
            assert stopped(process) == 0
        assert "were not written" not in (models / "log.txt").read_text()
    with opened(database_url) as store:
        assert sum(model.positions for model in AuditReader(store.database).summaries()) == 6


def test_a_kill_loses_the_last_moments_at_most_and_the_database_is_intact(models: Path, tmp_path: Path) -> None:
    database_url = f"sqlite:///{tmp_path}/audit.db"
    with served(models, "--database-url", database_url) as (process, port):
        answered: list[float] = []
        end = time.monotonic() + 3
        while time.monotonic() < end:
            call(port, "/v1/policy", {"moves": [MOVES[len(answered) % 5]]})
            answered.append(time.monotonic())
        process.kill()
        killed = time.monotonic()
        process.wait()
    with served(models, "--database-url", database_url) as (process, port):
        kept = call(port, "/v1/leakage")["models"]["net"]["positions"]
        # half a second of gathering, and the time to write it where other tests have the machine too
        assert len([moment for moment in answered if moment < killed - 2]) <= kept <= len(answered)
        assert len(list(call(port, "/v1/leakage/positions?limit=1000")["positions"])) == min(kept, 1000)
    with sqlite3.connect(tmp_path / "audit.db") as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    connection.close()
