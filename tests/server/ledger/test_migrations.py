"""What an operator would lose at an upgrade: the audit. Each on a real SQLite file and on a real PostgreSQL.

The movemask of the next version is a copy of this one with one more revision, in a process of its own.
"""

from __future__ import annotations

import os
import re
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path

import psycopg
import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext

from movemask.errors import LedgerError
from movemask.server.ledger.reader import LedgerReader
from movemask.server.ledger.tables import METADATA, VERSION
from tests.conftest import ROOT, Serve
from tests.ground_truth import DATA
from tests.postgres import Server, binaries
from tests.processes import environment, run, started, until
from tests.server.ledger.records import opened, record, write

REVISION = f'''
import sqlalchemy as sa
from alembic import op

revision, down_revision = "{VERSION + 1}", "{VERSION}"


def upgrade() -> None:
    op.add_column("position", sa.Column("note", sa.Text))
    op.execute("UPDATE position SET note = fen")
'''

Next = Callable[..., list[str]]


@pytest.fixture
def audit(database_url: str) -> str:
    """A database of this version with three positions of two models."""
    return current(database_url)


def current(url: str) -> str:
    with opened(of_version_3(url)):
        pass
    if url.startswith("sqlite"):
        file_of(url).with_name("audit.db.version-3").unlink()
    return url


def of_version_3(url: str, more: str = "") -> str:
    """Fills a database with three positions of two models, as the last movemask without Alembic left it."""
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(file_of(url))) as connection:
            connection.executescript((DATA / "audit-v3.sqlite.sql").read_text() + more)
    else:
        with psycopg.connect(url) as server:
            server.execute((DATA / "audit-v3.postgresql.sql").read_bytes() + more.encode())
    return url


#: What the first movemask with Alembic added to tables of version 3.
WITH_ALEMBIC = """
CREATE TABLE alembic_version (
    version_num VARCHAR(32) NOT NULL, CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);
INSERT INTO alembic_version VALUES ('3');
"""


@pytest.fixture
def next_movemask(tmp_path: Path) -> Next:
    """The command line of `movemask …` of the next version; its revision may have more lines."""

    def command(*arguments: str, more: str = "") -> list[str]:
        package = tmp_path / "next" / "movemask"
        if not package.exists():
            shutil.copytree(ROOT / "service" / "movemask", package, ignore=shutil.ignore_patterns("__pycache__"))
            tables = package / "server" / "ledger" / "tables.py"
            tables.write_text(tables.read_text().replace(f"VERSION = {VERSION}", f"VERSION = {VERSION + 1}"))
        (package / "server" / "ledger" / "migrations" / "versions" / "next.py").write_text(REVISION + more)
        script = f"import sys; sys.path.insert(0, {str(package.parent)!r}); from movemask.__main__ import main; main()"
        return [sys.executable, "-c", script, *arguments]

    return command


def done(command: list[str]) -> tuple[int, str]:
    finished = subprocess.run(command, env=environment(), capture_output=True, text=True, check=False)
    return finished.returncode, finished.stdout + finished.stderr


def file_of(url: str) -> Path:
    return Path(url.removeprefix("sqlite:///"))


def counted(url: str) -> dict[str, tuple[int, float | None]]:
    """Positions and the mean of `raw` of each model of an audit that this movemask opens."""
    with opened(url) as ledger:
        return {one.name: (one.positions, one.kinds["raw"].mean) for one in LedgerReader(ledger.database).summaries()}


BEFORE = {"net": (2, pytest.approx(0.13)), "other": (1, 0.5)}


@pytest.mark.parametrize("more", ["", WITH_ALEMBIC], ids=["before Alembic", "with Alembic"])
def test_a_database_of_version_3_keeps_its_figures_and_goes_on(more: str, database_url: str, serve: Serve) -> None:
    audit = of_version_3(database_url, more)
    for positions in (2, 3):
        models = serve(database_url=audit, audit_keep_days=1e6).get("/v1/leakage").json()["models"]
        assert (models["net"]["positions"], models["other"]["kinds"]["raw"]["mean"]) == (positions, 0.5)
        with opened(audit) as ledger:
            assert len(list(LedgerReader(ledger.database).positions(1_000_000))) == positions + 1
            assert len(list(LedgerReader(ledger.database).worst("raw", 10))) == positions + 1
            write(ledger, [record(0.1, fen="new")])
            with ledger.database.reading() as connection:
                assert compare_metadata(MigrationContext.configure(connection), METADATA) == []
                assert not sa.inspect(connection).has_table("schema_version")  # a movemask without Alembic refuses it
    if audit.startswith("sqlite"):
        with closing(sqlite3.connect(file_of(audit).with_name("audit.db.version-3"))) as copy:
            assert copy.execute("SELECT count(*) FROM position").fetchone() == (3,)


def test_an_upgrade_migrates_and_leaves_a_copy_that_the_movemask_before_opens(
    audit: str, next_movemask: Next, tmp_path: Path
) -> None:
    flags = ("--database-url", audit)
    assert run("migrate", "--check", *flags).output.endswith(f": tables of version {VERSION}, nothing to migrate\n")
    code, told = done(next_movemask("migrate", "--check", *flags))
    assert (code, f"a start would migrate from version {VERSION} to {VERSION + 1}\n" in told) == (1, True)
    assert counted(audit) == BEFORE
    code, told = done(next_movemask("migrate", *flags))
    assert code == 0, told
    assert f": migrated from version {VERSION} to {VERSION + 1}" in told
    code, told = done(next_movemask("migrate", "--check", *flags))
    assert (code, told.endswith(f": tables of version {VERSION + 1}, nothing to migrate\n")) == (0, True)

    newer = f"has tables of version {VERSION + 1}, but this movemask uses {VERSION}. Start the newer movemask that "
    for arguments in (("migrate", "--check"), ("migrate",)):
        refused = run(*arguments, *flags)
        assert (refused.exit_code, newer in refused.output) == (1, True)
    with pytest.raises(LedgerError, match=newer), opened(audit):
        pass
    if audit.startswith("sqlite"):
        with closing(sqlite3.connect(file_of(audit))) as connection:
            assert connection.execute("SELECT count(*) FROM position WHERE note = fen").fetchone() == (3,)
        copy = tmp_path / f"audit.db.version-{VERSION}"
        assert counted(f"sqlite:///{copy}") == BEFORE


def test_a_migration_that_fails_changes_nothing_and_says_where_the_copy_is(
    audit: str, next_movemask: Next, tmp_path: Path
) -> None:
    command = next_movemask("migrate", "--database-url", audit, more='    op.execute("UPDATE position SET x = 1")\n')
    for _ in range(2):  # a service that is started again and again does not fill the disk with copies
        code, told = done(command)
        assert code == 1
        assert re.search(f"cannot be migrated from version {VERSION} to {VERSION + 1}: .*; it is unchanged", told), told
        if audit.startswith("sqlite"):
            copy = tmp_path / f"audit.db.version-{VERSION}"
            assert told.endswith(f"; a copy made before the migration is at {copy}\n")
            assert {file.name for file in tmp_path.glob("audit.db.*")} <= {copy.name, "audit.db-wal", "audit.db-shm"}
            assert counted(f"sqlite:///{copy}") == BEFORE
    assert counted(audit) == BEFORE


def test_a_copy_of_an_earlier_upgrade_is_not_overwritten(next_movemask: Next, tmp_path: Path) -> None:
    audit, copy = current(f"sqlite:///{tmp_path}/audit.db"), tmp_path / f"audit.db.version-{VERSION}"
    copy.write_bytes(b"of an earlier upgrade")
    code, told = done(next_movemask("migrate", "--database-url", audit))
    assert code == 0, told
    assert copy.read_bytes() == b"of an earlier upgrade"
    assert told.endswith(f"; a copy made before the migration is at {copy}.1\n")
    assert counted(f"sqlite:///{copy}.1") == BEFORE


def test_nothing_is_migrated_without_a_copy(next_movemask: Next, tmp_path: Path) -> None:
    audit = current(f"sqlite:///{tmp_path}/audit.db")
    (tmp_path / f"audit.db.version-{VERSION}.part").mkdir()  # as a disk that has no place for it
    code, told = done(next_movemask("migrate", "--database-url", audit))
    assert (code, f"cannot be copied to {tmp_path}/audit.db.version-{VERSION} before its migration: " in told) == (
        1,
        True,
    )
    assert counted(audit) == BEFORE


def test_of_two_processes_one_migrates_and_the_other_waits_for_it(postgres: Server, next_movemask: Next) -> None:
    audit = current(postgres.database())
    command = next_movemask("migrate", "--database-url", audit)
    with ExitStack() as stack:
        holder = stack.enter_context(closing(psycopg.connect(audit)))
        holder.execute("LOCK TABLE position IN ACCESS EXCLUSIVE MODE")  # which the migration waits for
        both = [stack.enter_context(started(command, stdout=subprocess.PIPE)) for _ in range(2)]
        waiting = "SELECT locktype FROM pg_locks WHERE NOT granted ORDER BY 1"

        def all_wait() -> bool:
            with psycopg.connect(audit) as looking:
                return looking.execute(waiting).fetchall() == [("advisory",), ("relation",)]

        until(all_wait, "one process migrates, and the other waits for it")
        holder.close()
        told = sorted(process.communicate(timeout=60)[0].decode() for process in both)
        assert [process.returncode for process in both] == [0, 0]
    assert f": migrated from version {VERSION} to {VERSION + 1}\n" in told[0]
    assert f": tables of version {VERSION + 1}, nothing to migrate\n" in told[1]
    with psycopg.connect(audit) as looking:
        assert looking.execute("SELECT count(*) FROM position WHERE note = fen").fetchone() == (3,)


def test_the_backups_of_the_guide_can_be_restored(database_url: str, tmp_path: Path) -> None:
    system = "SQLite" if database_url.startswith("sqlite") else "PostgreSQL"
    url = f"sqlite:///{tmp_path}/movemask.db" if system == "SQLite" else database_url
    guide = (ROOT / "docs" / "operations.md").read_text()
    commands = guide[guide.index(f"```sh\n# {system}: ") :].split("```")[1]
    _, _, backup, *restore = commands.splitlines()
    tools = os.pathsep.join([str(binaries()), os.environ["PATH"]])
    variables = environment(PATH=tools, MOVEMASK_DATABASE_URL=url)
    with opened(of_version_3(url)) as ledger:
        subprocess.run(["bash", "-euc", backup], cwd=tmp_path, env=variables, check=True)
        write(ledger, [record(0.1, fen="after the backup")])
    assert counted(url) != BEFORE
    subprocess.run(["bash", "-euc", "\n".join(restore)], cwd=tmp_path, env=variables, check=True)
    assert counted(url if system == "SQLite" else f"{url.rpartition('/')[0]}/movemask_restored") == BEFORE
