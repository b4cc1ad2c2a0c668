"""Faults of the database: answers go on, and what was answered is recorded once.

Each fault on a real SQLite file and a real PostgreSQL. A fault that this machine cannot cause is skipped; the reason
says why.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import sqlite3
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager, nullcontext, suppress
from pathlib import Path
from subprocess import PIPE, STDOUT
from typing import Any

import psycopg
import pytest
from fastapi.testclient import TestClient

from movemask.errors import UnknownLedgerVersion
from movemask.server.ledger import postgresql, sqlite
from movemask.server.ledger.reader import LedgerReader
from movemask.server.ledger.tables import LEDGER_VERSION, VERSION
from tests.conftest import Serve
from tests.disks import as_root, file_system
from tests.parts import part_of
from tests.postgres import Proxy, Server, binaries, pooler, running
from tests.processes import call, free_port, served, started, stopped, until
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
    """Silence is noticed after a second or two, and an idle transaction ends as in the service."""
    monkeypatch.setattr(postgresql, "_IDLE_SECONDS", 3)
    monkeypatch.setitem(postgresql._OPTIONS, "tcp_user_timeout", 1_000)
    monkeypatch.setitem(postgresql._OPTIONS, "connect_timeout", 2)


@pytest.fixture(params=part_of(["sqlite", "postgresql"], 2))
def faults(request: pytest.FixtureRequest, tmp_path: Path) -> SqliteFaults:
    if request.param == "sqlite":
        return SqliteFaults(tmp_path)
    return PostgresqlFaults(tmp_path, request.getfixturevalue("postgres"))


def positions(client: TestClient) -> int:
    """How many the ledger counts; -1 if it cannot be read."""
    answer = client.get("/v1/leakage")
    if answer.status_code != 200:
        assert answer.json()["type"] == "urn:movemask:problem:ledger-unavailable"
        return -1
    return sum(model["positions"] for model in answer.json()["models"].values())


def counted(port: int) -> int:
    """How many positions the figures of a running service have."""
    return sum(int(model["positions"]) for model in call(port, "/v1/leakage")["models"].values())


def ledger(client: TestClient) -> Any:
    """The state of the ledger as operators see it."""
    return client.get("/readyz").json()["ledger"]


def until_written(client: TestClient, lost: int = 0) -> None:
    """Waits until nothing waits for the ledger, which may hold a position before the service knows that it does."""
    until(lambda: ledger(client), "all is written", equals={"waiting": 0, "lost": lost, "failure": None})


def closed(client: TestClient) -> None:
    """Ends the connections of a service to its database, before its server or its disk goes."""
    services = client.app.state.services  # type: ignore[attr-defined]
    services.recorder.close()  # whose thread may be using one
    services.ledger.close()


@pytest.mark.parametrize("fault", ["locked", "gone", "read_only", "full"])
def test_answers_go_on_and_records_are_written_later(
    fault: str, faults: SqliteFaults, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (sqlite, postgresql):
        monkeypatch.setattr(module, "_LOCK_SECONDS", 1)  # a lock is waited for in vain
    with faults.database(fault) as url:
        # Values as long as those of real positions, so that a full disk is felt at once.
        client = serve(database_url=url, ledger_share=1)
        client.app.state.services.recorder.max_waiting = 4  # type: ignore[attr-defined]
        for move in MOVES[:2]:
            assert client.post("/v1/policy", json={"moves": [move]}).status_code == 200
        assert positions(client) == 2

        with getattr(faults, fault)():
            answered = 2
            for count in range(400 if fault == "full" else 3):
                assert client.post("/v1/policy", json={"moves": [MOVES[count % 5]]}).status_code == 200
                answered += 1
                if fault == "full" and ledger(client)["failure"]:
                    break
            until(lambda: ledger(client)["failure"] is not None, f"{fault} is told")
            assert ledger(client)["waiting"] >= 1
            before = ledger(client)["lost"]
            lost = before
            while lost == before:  # until the buffer is full; records of several answers may take a place together
                assert client.post("/v1/policy", json={"moves": []}).status_code == 200
                answered += 1
                assert answered < 500
                lost = ledger(client)["lost"]
            assert ledger(client)["waiting"] == 4
            assert f"movemask_ledger_lost_total {float(lost)}" in client.get("/metrics").text
            assert positions(client) in (-1, *range(2, answered))
        until(lambda: positions(client), "everything that waited is written", equals=answered - lost)
        until_written(client, lost=lost)
        assert client.post("/v1/policy", json={"moves": []}).status_code == 200
        assert positions(client) == answered - lost + 1
        closed(client)


@pytest.mark.parametrize("where", part_of([0, 4096], 2))
def test_damaged_file_is_reported_and_replaced_after_move(
    serve: Serve, tmp_path: Path, where: int, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "x.db"
    client = serve(database_url=f"sqlite:///{file}")
    client.post("/v1/policy", json={"moves": []})
    assert positions(client) == 1
    with open(file, "r+b") as damaged:
        damaged.seek(where)
        damaged.write(b"\xde\xad" * 40_000)
    for _ in range(3):
        assert client.post("/v1/policy", json={"moves": []}).status_code == 200
    until(lambda: ledger(client)["failure"] is not None, "the damage is told")
    assert f"{file} is damaged, or another file; move it away, and a new one is made" in caplog.text
    file.rename(tmp_path / "damaged.db")
    until(lambda: positions(client), "a new file counts from nothing", equals=3)
    until_written(client)


@pytest.mark.deep
def test_removed_file_is_made_anew_beside_reader(models: Path, tmp_path: Path) -> None:
    """With a shell that had the file open, nothing was recorded any more."""
    folder = tmp_path / "db"
    folder.mkdir()
    file = folder / "x.db"
    with ExitStack() as stack:
        process, port = stack.enter_context(served(models, "--database-url", f"sqlite:///{file}", "--workers", "2"))

        def ask(seconds: float) -> int:
            end, answered = time.monotonic() + seconds, 0
            while time.monotonic() < end:
                call(port, "/v1/policy", {"moves": [MOVES[answered % 5]]})
                answered += 1
            return answered

        def read() -> None:
            reader = stack.enter_context(closing(sqlite3.connect(file)))
            until(lambda: reader.execute("SELECT count(*) FROM sqlite_master").fetchone()[0], "the file has tables")

        pool = stack.enter_context(ThreadPoolExecutor(4))
        load = [pool.submit(ask, 4) for _ in range(4)]
        until(lambda: counted(port) > 20, "the first answers are written")
        read()
        file.unlink()
        assert [one.name for one in folder.iterdir() if one.suffix != ".db"] in ([], ["x.db-journal"])
        until(file.exists, "there is a new file")
        read()
        assert all(one.result() for one in load)
        until(
            lambda: all(call(port, "/readyz")["ledger"]["waiting"] == 0 for _ in range(20)), "both workers have written"
        )
        before = counted(port)
        later = ask(1)
        until(lambda: counted(port), "everything is counted", equals=before + later)
        assert call(port, "/metrics").count("movemask_ledger_lost_total 0.0") == 1
        assert stopped(process) == 0
    with closing(sqlite3.connect(file)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_backup_renamed_onto_file_is_used(serve: Serve, tmp_path: Path) -> None:
    file, backup = tmp_path / "x.db", tmp_path / "backup.db"
    client = serve(database_url=f"sqlite:///{file}")
    client.post("/v1/policy", json={"moves": []})
    assert positions(client) == 1
    shutil.copy(file, backup)
    for move in MOVES:
        client.post("/v1/policy", json={"moves": [move]})
    assert positions(client) == 6
    backup.rename(file)
    client.post("/v1/policy", json={"moves": []})
    assert positions(client) == 2
    with closing(sqlite3.connect(file)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)


@pytest.mark.parametrize("wrong", ["folder", "name", "role", "schema", "port"])
def test_start_with_unopenable_database_reports_it(
    wrong: str, serve: Serve, tmp_path: Path, request: pytest.FixtureRequest, caplog: pytest.LogCaptureFixture
) -> None:
    if wrong == "folder":
        url, words = f"sqlite:///{tmp_path}/later/x.db", f"there is no folder {tmp_path}/later"
    else:
        server: Server = request.getfixturevalue("postgres")
        url = server.url("later")
        words = 'database "later" does not exist'
        if wrong == "role":
            url, words = server.database().replace("postgres@", "nobody@"), 'role "nobody" does not exist'
        if wrong == "schema":  # PostgreSQL 15: only the owner of a database may create tables in it
            server.execute("CREATE ROLE weak LOGIN")
            url, words = server.database().replace("postgres@", "weak@"), "permission denied for schema public"
        if wrong == "port":
            url, words = f"postgresql://postgres@127.0.0.1:{free_port()}/later", "Connection refused"
    client = serve(database_url=url)
    until(lambda: ledger(client)["failure"], "it is told without a request")
    assert words in caplog.text
    assert client.post("/v1/policy", json={"moves": []}).status_code == 200
    assert positions(client) == -1
    if wrong == "folder":
        (tmp_path / "later").mkdir()
    elif wrong == "name":
        server.execute("CREATE DATABASE later")
    elif wrong == "role":
        server.execute("CREATE ROLE nobody LOGIN SUPERUSER")
    elif wrong == "schema":
        server.execute("ALTER ROLE weak SUPERUSER")
    else:
        return
    until(lambda: positions(client), "the record that waited is written", equals=1)
    until_written(client)


def test_ledger_of_another_version_refuses_the_start(database_url: str, serve: Serve) -> None:
    """A service once started beside such a ledger, and lost at its stop whatever it had answered."""
    with opened(database_url) as ledger, ledger.database.writing() as connection:
        connection.execute(LEDGER_VERSION.update().values(version=VERSION + 1))
    with pytest.raises(UnknownLedgerVersion, match=f"has tables of version {VERSION + 1}, .*: move the database away"):
        serve(database_url=database_url)


def test_ledger_of_another_version_refuses_the_reload(models: Path, tmp_path: Path) -> None:
    """The workers that serve stay, and a start ends with the same sentence."""
    file = tmp_path / "audit.db"
    arguments = ("--database-url", f"sqlite:///{file}", "--workers", "1")
    words = rf"'sqlite:///{file}' has tables of version {VERSION + 1}, and this movemask writes version {VERSION}"
    with served(models, *arguments) as (process, port):
        with closing(sqlite3.connect(file)) as connection, connection:
            connection.execute("UPDATE ledger_version SET version = version + 1")
        process.send_signal(signal.SIGHUP)
        log = models / "log.txt"
        until(lambda: re.search(f"not reloaded: .*{words}", log.read_text()), "the reload is refused")
        assert call(port, "/v1/policy", {"moves": []})["turn"] == "white"
        assert stopped(process) == 0
    command = [sys.executable, "-m", "movemask", "serve", "--port", "0", "--models-dir", str(models), *arguments]
    with started(command, cwd=models, stdout=PIPE, stderr=STDOUT) as process:
        output = process.communicate(timeout=300)[0].decode()
    assert process.returncode == 1
    assert re.fullmatch(f"Error: --database-url: {words}.*", output.splitlines()[-1]), output
    assert "positions wait" not in output, "the fault is named once"


def test_ledger_writable_is_0_while_the_ledger_fails(serve: Serve, tmp_path: Path) -> None:
    client = serve(database_url=f"sqlite:///{tmp_path}/later/audit.db")

    def writable() -> str:
        client.app.state.services.looked(0)  # type: ignore[attr-defined]
        lines = client.get("/metrics").text.splitlines()
        return next(line for line in lines if line.startswith("movemask_ledger_writable"))

    until(writable, "the failure is a metric", equals="movemask_ledger_writable 0.0")
    (tmp_path / "later").mkdir()
    until(writable, "the ledger can be written again", equals="movemask_ledger_writable 1.0")


@pytest.fixture(scope="module")
def standby(postgres: Server) -> Iterator[Server]:
    """A second server, beside the first, with the databases of the tests here."""
    tools = binaries()
    assert tools is not None
    with running(tools) as server:
        yield server


def on_both(primary: Server, standby: Server, name: str) -> str:
    """Makes an empty database on both servers; its URL on the first."""
    for server in (primary, standby):
        server.execute(f"CREATE DATABASE {name}")
    return primary.url(name)


@contextmanager
def demoted(server: Server) -> Iterator[None]:
    """A server that stays up, and refuses to write. `pg_reload_conf` returns before the new setting holds."""
    server.execute("ALTER SYSTEM SET default_transaction_read_only = on", "SELECT pg_reload_conf()")
    until(lambda: server.setting("default_transaction_read_only"), "the old primary is read-only", equals="on")
    try:
        yield
    finally:
        server.execute(
            "SET default_transaction_read_only = off",
            "ALTER SYSTEM RESET default_transaction_read_only",
            "SELECT pg_reload_conf()",
        )


@pytest.mark.parametrize("way", part_of(["two hosts", "one address"], 2))
def test_switchover_writes_and_reads_new_primary(way: str, postgres: Server, standby: Server, serve: Serve) -> None:
    """The old primary stays up and turns read-only: its connections stay good for reading what is no longer true."""
    url = on_both(postgres, standby, f"switched_{way[:3]}")
    with Proxy(postgres) as proxy:
        there = f"127.0.0.1:{postgres.port},127.0.0.1:{standby.port}"
        client = serve(
            database_url=proxy.url(url) if way == "one address" else url.replace(f"127.0.0.1:{postgres.port}", there)
        )
        assert client.post("/v1/policy", json={"moves": []}).status_code == 200
        assert positions(client) == 1
        with demoted(postgres):
            proxy.server = standby
            for move in MOVES:
                assert client.post("/v1/policy", json={"moves": [move]}).status_code == 200
            until(lambda: positions(client), "the new primary has what was answered since", equals=5)
            until_written(client)
        closed(client)


@pytest.mark.deep
def test_transaction_pooler_loses_and_doubles_nothing(postgres: Server, serve: Serve) -> None:
    """The services share one connection to the server, so that whatever one leaves in its session meets the others."""
    url = postgres.database()
    with pooler(postgres) as port:
        clients = [serve(database_url=url.replace(f":{postgres.port}/", f":{port}/")) for _ in range(3)]
        for _ in range(10):
            for client in clients:
                assert client.post("/v1/policy", json={"moves": []}).status_code == 200
                assert positions(client) > 0
        until(lambda: positions(clients[0]), "each answer is counted once", equals=30)
        for client in clients:
            until_written(client)
            closed(client)


def test_later_database_gets_waiting_records(postgres: Server, serve: Serve) -> None:
    url = postgres.database()
    postgres.stop()
    client = serve(database_url=url)
    assert client.post("/v1/policy", json={"moves": []}).status_code == 200
    until(lambda: ledger(client)["failure"] is not None, "it is told")
    assert "the database does not answer" in ledger(client)["failure"]
    postgres.start()
    until(lambda: positions(client), "the record that waited is written", equals=1)


def test_lost_commit_reply_doubles_nothing(postgres: Server, serve: Serve) -> None:
    """800 answers were once counted as 1,068."""
    with Proxy(postgres) as proxy:
        client = serve(database_url=proxy.url(postgres.database()))
        for answered in range(1, 7):
            proxy.lose_replies = 2
            assert client.post("/v1/policy", json={"moves": [MOVES[answered % 5]]}).status_code == 200
            until(lambda: not proxy.lose_replies, "the replies to two commits are lost")
            until_written(client)
            assert positions(client) == answered
        assert proxy.lost == 12
        assert len(client.get("/v1/leakage/positions").json()["positions"]) == 6


@pytest.mark.deep
def test_forgotten_connection_is_replaced(postgres: Server, serve: Serve, quick: None) -> None:
    with Proxy(postgres) as proxy:
        client = serve(database_url=proxy.url(postgres.database()))
        for answered in range(1, 4):
            assert client.post("/v1/policy", json={"moves": [MOVES[answered]]}).status_code == 200
            until(lambda: ledger(client)["waiting"], "the position is written", equals=0)
            proxy.fall_silent()
        until(lambda: positions(client), "the figures are read by a new connection", equals=3)
        until_written(client)


@pytest.mark.deep
def test_locks_of_vanished_client_are_released_soon(postgres: Server, serve: Serve, quick: None) -> None:
    """The server would keep them until its TCP gives up, by default after two hours."""
    with Proxy(postgres) as proxy:
        client = serve(database_url=proxy.url(postgres.database()))
        assert client.post("/v1/policy", json={"moves": []}).status_code == 200
        until(lambda: ledger(client)["waiting"], "the position is written", equals=0)
        proxy.hold_commits = 2
        assert client.post("/v1/policy", json={"moves": []}).status_code == 200
        until(lambda: (ledger(client)["waiting"], proxy.hold_commits), "the position is written", equals=(0, 0))
        until(lambda: positions(client), "each position is counted once", equals=2)


@pytest.mark.deep
def test_silent_database_is_named_and_gets_records_later(postgres: Server, serve: Serve, quick: None) -> None:
    with Proxy(postgres) as proxy:
        client = serve(database_url=proxy.url(postgres.database()))
        assert client.post("/v1/policy", json={"moves": []}).status_code == 200
        assert positions(client) == 1
        proxy.fall_silent(new_too=True)
        for move in MOVES:
            assert client.post("/v1/policy", json={"moves": [move]}).status_code == 200
        until(lambda: ledger(client)["failure"] is not None, "the silence is told")
        assert "the database does not answer" in ledger(client)["failure"]
        with ThreadPoolExecutor(12) as pool:  # many readers wait no longer than one
            answers = list(pool.map(client.get, ["/v1/leakage", "/v1/leakage/worst", "/v1/leakage/positions"] * 4))
        for answer in answers:
            refused(answer, 503, "ledger-unavailable")
        proxy.speak()
        until(lambda: positions(client), "everything that waited is written", equals=6)
        until_written(client)


@pytest.mark.deep
@pytest.mark.parametrize("silent", ["before a commit", "between transactions"])
def test_stop_beside_silent_connection_loses_nothing(silent: str, postgres: Server, models: Path) -> None:
    """600 records were once lost. A new connection gets through."""
    database_url = postgres.database()
    with Proxy(postgres) as proxy:
        with served(models, "--database-url", proxy.url(database_url), "--workers", "1") as (process, port):
            call(port, "/v1/policy", {"moves": []})
            until(lambda: call(port, "/readyz")["ledger"]["waiting"], "the position is written", equals=0)
            if silent == "before a commit":
                proxy.hold_commits = 1
            else:
                proxy.fall_silent()
            for move in MOVES:
                call(port, "/v1/policy", {"moves": [move]})
            assert stopped(process) == 0
        assert "were not written" not in (models / "log.txt").read_text()
    with opened(database_url) as ledger:
        assert sum(model.positions for model in LedgerReader(ledger.database).summaries()) == 6


def test_kill_loses_last_moments_and_keeps_database_intact(models: Path, tmp_path: Path) -> None:
    database_url = f"sqlite:///{tmp_path}/audit.db"
    with served(models, "--database-url", database_url) as (process, port):
        for number in range(50):
            call(port, "/v1/policy", {"moves": [MOVES[number % 5]]})
        until(lambda: counted(port), "what was answered before is written", equals=50)
        for number in range(50):
            call(port, "/v1/policy", {"moves": [MOVES[number % 5]]})
        process.kill()
        process.wait()
    with served(models, "--database-url", database_url) as (process, port):
        recorded = counted(port)
        assert 50 <= recorded <= 100
        assert len(list(call(port, "/v1/leakage/positions?limit=1000")["positions"])) == min(recorded, 1000)
    with sqlite3.connect(tmp_path / "audit.db") as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    connection.close()
