"""The ledger's figures, worst positions, pages, pruning and errors.

Each on a real SQLite file and on a real PostgreSQL.
"""

from __future__ import annotations

import multiprocessing
import os
import sqlite3
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import numpy as np
import pytest
import sqlalchemy as sa

from movemask.board.boards import Phase
from movemask.errors import LedgerError, LedgerUnreachable
from movemask.leakage.causes import Cause
from movemask.leakage.cells import QUANTILES
from movemask.leakage.groups import DIMENSIONS, groups
from movemask.leakage.measure import Figure
from movemask.server.ledger.entries import LedgerTable
from movemask.server.ledger.ledger import Ledger
from movemask.server.ledger.reader import LedgerReader, Span, Summary
from movemask.server.ledger.tables import VERSION, WRITER
from tests.postgres import Server
from tests.server.ledger.records import opened, record, write

Open = Callable[..., Ledger]

NOON = 1_700_049_600.0  # a whole day, hour and ten minutes


@pytest.fixture
def reopened(database_url: str) -> Iterator[Open]:
    """Opens ledgers on one database."""
    with ExitStack() as stack:
        yield lambda **options: stack.enter_context(opened(database_url, **options))


@pytest.fixture
def ledger(reopened: Open) -> Ledger:
    return reopened()


def read(ledger: Ledger) -> LedgerReader:
    return LedgerReader(ledger.database)


def models(ledger: Ledger, name: str | None = None, **options: object) -> list[Summary]:
    return read(ledger).summaries(name, **options)  # type: ignore[arg-type]


def fens(ledger: Ledger) -> list[str]:
    """Of the single positions that are kept, oldest first."""
    return [position["fen"] for position in read(ledger).positions(1_000_000)][::-1]


def test_figures_are_exact_and_quantiles_within_2_percent(ledger: Ledger) -> None:
    rng = np.random.default_rng(1)
    raws, multiplieds = 10 ** rng.uniform(-9, 0, 5000), 10 ** rng.uniform(-6, -1, 5000)
    for start in range(0, 5000, 1234):
        span = slice(start, start + 1234)
        write(
            ledger,
            [record(r, m, fen=str(r)) for r, m in zip(raws[span].tolist(), multiplieds[span].tolist(), strict=True)],
        )
    (figures,) = models(ledger)
    assert figures.positions == 5000
    for kind, values in (("raw", raws), ("multiplied", multiplieds)):
        cell = figures.kinds[kind]
        assert cell.count == 5000
        assert cell.max == values.max()
        assert cell.mean == pytest.approx(values.mean(), rel=1e-12)
        for name, q in QUANTILES.items():
            true = np.quantile(values, q, method="inverted_cdf")
            assert true <= (cell.quantiles[name] or 0) <= min(1.0203 * true, values.max())
    assert figures.kinds["raw"].flips == (raws > 0.5).sum()
    assert figures.kinds["raw"].figures()["mean_kl"] == pytest.approx(raws.mean())
    assert figures.kinds["served"].max == 0.0


def test_unmeasured_positions_do_not_change_mean(ledger: Ledger) -> None:
    write(ledger, [record(None, fen="a"), record(0.5, fen="b")])
    (figures,) = models(ledger)
    assert figures.positions == 2
    assert (figures.kinds["raw"].count, figures.kinds["raw"].unmeasured) == (1, 1)
    assert figures.kinds["raw"].mean == 0.5
    write(ledger, [record(None, model="silent")])
    silent = models(ledger, "silent")[0].kinds["raw"].figures()
    assert {silent[name] for name in ("mean", "max", "p50", "p999", "mean_kl")} == {None}


def test_networks_of_one_name_are_kept_apart(ledger: Ledger) -> None:
    write(ledger, [record(0.9, digest="sha256:old", at=1000.0)])
    write(ledger, [record(0.1, digest="sha256:new", at=2000.0)])
    (figures,) = models(ledger)
    assert (figures.digest, figures.kinds["raw"].mean) == ("sha256:new", 0.1)
    write(ledger, [record(0.9, digest="sha256:old", at=3000.0)])
    assert models(ledger)[0].digest == "sha256:old"
    assert models(ledger)[0].kinds["raw"].count == 2


def test_figures_of_earlier_network_by_digest(ledger: Ledger) -> None:
    """After an upgrade with another file of the same name, 120 positions were nowhere to be found."""
    for at, digest in enumerate(("sha256:a", "sha256:b", "sha256:c")):
        write(ledger, [record(0.1 * (at + 1), fen=digest, digest=digest, at=1000.0 + at)])
    write(ledger, [record(0.5, model="other", digest="sha256:a")])
    (figures,) = models(ledger, "net")
    assert (figures.digest, figures.others) == ("sha256:c", ("sha256:b", "sha256:a"))
    (figures,) = models(ledger, "net", digest="sha256:a")
    assert (figures.kinds["raw"].mean, figures.others) == (0.1, ("sha256:c", "sha256:b"))
    assert {model.name for model in models(ledger, digest="sha256:a")} == {"net", "other"}
    (history,) = read(ledger).history("net", Span(), "sha256:b", seconds=600)
    assert (history[0].digest, history[1][0].kinds["raw"].mean) == ("sha256:b", 0.2)
    assert [position["fen"] for position in read(ledger).worst("raw", 9, "net", digest="sha256:b")] == ["sha256:b"]
    assert [position["fen"] for position in read(ledger).positions(9, digest="sha256:b")] == ["sha256:b"]


def test_figures_by_group_add_up(ledger: Ledger) -> None:
    rng = np.random.default_rng(2)
    phases, turns = list(Phase), ["white", "black"]
    written = [
        record(
            float(rng.random()),
            fen=str(n),
            turn=turns[n % 2],
            phase=phases[n % 3],
            legal_moves=int(rng.integers(1, 80)),
            elo=None if n % 5 == 0 else float(rng.integers(500, 3000)),
            causes={Cause.BLOCKED: 0.01 * (n % 4), Cause.EMPTY_SQUARE: 0.002} if n % 4 else {},
        )
        for n in range(300)
    ]
    write(ledger, written[:100])
    write(ledger, written[100:])
    for by in ("phase", "side", "in_check", "legal_moves", "elo"):
        (figures,) = models(ledger, by=by)
        assert figures.groups is not None
        parts = [kinds["raw"] for kinds in figures.groups.values()]
        assert sum(part.count for part in parts) == 300
        assert sum(part.sum for part in parts) == pytest.approx(figures.kinds["raw"].sum)
        for group, kinds in figures.groups.items():
            place, dimension = groups(by).index(group), DIMENSIONS.index(by)
            of_group = [one for one in written if one.groups()[dimension, 0] == place]
            own = [float(one.measured["raw"].leaked[0]) for one in of_group]
            assert kinds["raw"].count == len(own)
            assert kinds["raw"].max == max(own)
            true = np.quantile(own, 0.95, method="inverted_cdf")
            assert true <= (kinds["raw"].quantiles["p95"] or 0) <= 1.0203 * true
    assert list(models(ledger, by="phase")[0].groups or {}) == ["opening", "middlegame", "endgame"]
    assert next(iter(models(ledger, by="elo")[0].groups or {})) == "0-999"
    (figures,) = models(ledger, by="cause")
    assert figures.groups is not None
    assert list(figures.groups) == ["blocked", "empty_square"]  # by mass
    assert figures.groups["blocked"]["raw"].count == 225
    assert figures.groups["blocked"]["raw"].sum == pytest.approx(75 * 0.06)


def test_figures_of_time_spans_add_up(ledger: Ledger) -> None:
    for hour in range(30):
        write(ledger, [record(0.01 * hour, fen=str(hour), at=NOON + 3600 * hour)])
    (day,) = models(ledger, span=Span(NOON + 3600 * 10, NOON + 3600 * 20))
    assert day.kinds["raw"].count == 10
    assert day.kinds["raw"].mean == pytest.approx(0.145)
    assert day.covered == (NOON + 3600 * 10, NOON + 3600 * 19 + 600)
    before, after = (models(ledger, span=span)[0].kinds["raw"] for span in (Span(until=NOON + 7200), Span(NOON + 7200)))
    all_time = models(ledger)[0].kinds["raw"]
    assert (before.count + after.count, after.max) == (all_time.count, all_time.max)
    assert models(ledger, span=Span(since=NOON + 1e6)) == []


def test_old_spans_merge_without_loss(ledger: Ledger) -> None:
    now = time.time()
    ages = [60, 7200, 30 * 3600, 5 * 86400, 40 * 86400, 41 * 86400]
    for age in ages:
        write(ledger, [record(0.1, fen=str(age), at=now - age, causes={Cause.BLOCKED: 0.1})])
    before = read(ledger).history(None, Span(), seconds=600)[0][1]
    ledger.prune()
    ledger.prune()  # nothing more to do
    after = read(ledger).history(None, Span(), seconds=600)[0][1]
    assert [bucket.seconds for bucket in before] == [600] * 6
    lengths = {bucket.seconds for bucket in after}
    assert lengths == {600, 3600, 86400}
    assert sum(bucket.kinds["raw"].count for bucket in after) == len(ages)
    by_cause = models(ledger, span=Span(since=0), by="cause")[0].groups
    assert by_cause is not None
    assert by_cause["blocked"]["raw"].count == len(ages)
    assert models(ledger)[0].kinds["raw"].count == len(ages)
    hourly = read(ledger).history("net", Span(), seconds=3600)[0][1]
    assert {bucket.seconds for bucket in hourly} == {3600, 86400}


def test_worst_positions_are_ranked_unique_and_bounded(reopened: Open) -> None:
    ledger = reopened(keep_worst=3)
    for value in (0.1, 0.5, 0.3, 0.2, 0.4, 0.5):
        write(ledger, [record(value, 1 - value, fen=f"fen {value}")])
    assert [position["fen"] for position in read(ledger).worst("raw", 10)] == ["fen 0.5", "fen 0.4", "fen 0.3"]
    assert [position["fen"] for position in read(ledger).worst("multiplied", 2)] == ["fen 0.1", "fen 0.2"]
    worst = read(ledger).worst("raw", 1)[0]
    assert (worst["raw"], worst["multiplied"]) == (0.5, 0.5)
    assert worst["illegal"] == [{"uci": "e2e5", "probability": 0.25, "cause": "wrong_geometry"}]
    assert read(ledger).worst("raw", 10, model="other") == []
    write(ledger, [record(0.6, 0.0, fen="fen 0.3")])  # leaks more than before
    assert [position["fen"] for position in read(ledger).worst("raw", 10)] == ["fen 0.3", "fen 0.5", "fen 0.4"]


def test_prune_by_age_and_number_keeps_figures(
    reopened: Open,
) -> None:
    ledger = reopened(keep_seconds=60, keep_positions=3)
    ledger.prune()
    write(ledger, [record(fen="old", at=time.time() - 61), record(fen="new")])
    ledger.prune()
    assert fens(ledger) == ["new"]
    write(ledger, [record(fen=str(number)) for number in range(10)])
    ledger.prune()
    assert fens(ledger) == ["7", "8", "9"]
    assert models(ledger)[0].positions == 12


def test_prune_deletes_in_small_steps(reopened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    """A million positions deleted in one statement would take longer than a statement may, every time."""
    monkeypatch.setattr("movemask.server.ledger.ledger._PER_PRUNE", 4)
    ledger = reopened(keep_positions=3)
    write(ledger, [record(fen=str(number)) for number in range(13)])
    assert [ledger.prune() for _ in range(4)] == [True, True, False, False]
    assert fens(ledger) == ["10", "11", "12"]


def test_repeated_write_adds_nothing_and_writers_expire(reopened: Open) -> None:
    """A table that was written is not added again by its writer; ids of writers are forgotten after a week."""

    def writers() -> int:
        with ledgers[0].database.reading() as connection:
            return int(connection.execute(sa.select(sa.func.count()).select_from(WRITER)).scalar_one())

    ledgers = [reopened(), reopened()]
    tables = [record(fen="a"), record(fen="b")]
    for ledger, table in zip(ledgers, tables, strict=True):
        ledger.write(table)
        ledger.write(table)
    assert fens(ledgers[0]) == ["a", "b"]
    assert models(ledgers[0])[0].positions == 2
    ledgers[0].write(tables[0].rows(np.array([0])))  # a table made of another is a table of its own
    assert models(ledgers[0])[0].positions == 3
    ledgers[0].prune()
    assert writers() == 2
    with ledgers[0].database.writing() as connection:
        connection.execute(sa.update(WRITER).values(time=time.time() - 8 * 86_400))
    ledgers[1].prune()
    assert writers() == 0


def test_pages_neither_repeat_nor_miss_new_rows(ledger: Ledger) -> None:
    write(ledger, [record(fen=str(number)) for number in range(25)])
    fens_of_pages: list[str] = []
    before = None
    while page := read(ledger).positions(10, before=before):
        fens_of_pages += [position["fen"] for position in page]
        before = page[-1]["id"]
        write(ledger, [record(fen=f"new {len(fens_of_pages)} {number}") for number in range(7)])
    assert fens_of_pages == [str(number) for number in range(24, -1, -1)]


def test_position_round_trip(ledger: Ledger) -> None:
    more, causes = {"rounded": Figure(0.1, kl=None)}, {Cause.CASTLING_PATH: 0.25}
    write(ledger, [record(0.75, fen="f", at=NOON, trained_with_mask=True, elo=1500.0, causes=causes, more=more)])
    (position,) = read(ledger).positions(5)
    traits = [position[name] for name in ("fen", "time", "trained_with_mask", "elo", "phase")]
    assert traits == ["f", NOON, True, 1500, "opening"]
    assert position["causes"] == {"castling_path": 0.25}
    raw, rounded = position["kinds"]["raw"], position["kinds"]["rounded"]
    assert (raw.leaked, raw.flipped, raw.kl) == (0.75, True, 0.75)
    assert (rounded.leaked, rounded.flipped, rounded.kl) == (0.1, False, None)


def until_written(ledger: Ledger, table: LedgerTable) -> None:
    """Writes it, and again after a failure that may pass, as the recorder does: on a busy machine the others may have
    SQLite's lock for five seconds."""
    while True:
        with suppress(LedgerError):
            return ledger.write(table)


def write_many(url: str, name: str) -> None:
    with opened(url) as ledger:
        for value in range(40):
            table = record(0.001 * value, fen=f"{name} {value}", model=f"net{value % 2}", at=NOON + 60 * value)
            until_written(ledger, table)
            if value % 20 == 0:
                with suppress(LedgerError):
                    ledger.prune()


def test_concurrent_processes_lose_nothing(database_url: str, ledger: Ledger) -> None:
    context = multiprocessing.get_context("spawn")
    writers = [context.Process(target=write_many, args=(database_url, str(number)), daemon=True) for number in range(3)]
    for process in writers:
        process.start()
    for process in writers:
        process.join(120)
        assert process.exitcode == 0
    figures = models(ledger)
    assert [one.positions for one in figures] == [60, 60]
    assert sum(one.kinds["raw"].sum for one in figures) == pytest.approx(3 * sum(0.001 * value for value in range(40)))
    assert sum(one.kinds["raw"].count for one in models(ledger, span=Span(since=0))) == 120
    assert len(fens(ledger)) == 120
    if database_url.startswith("sqlite"):
        with sqlite3.connect(database_url.removeprefix("sqlite:///")) as connection:
            assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
            assert connection.execute("PRAGMA journal_mode").fetchone() == ("delete",)
        connection.close()


def test_readers_do_not_wait_for_writer(ledger: Ledger) -> None:
    write(ledger, [record()])
    with ledger.database.writing() as connection:
        connection.exec_driver_sql("UPDATE model SET last_time = 0")
        counts: list[int] = []
        reader = threading.Thread(target=lambda: counts.append(models(ledger)[0].positions))
        reader.start()
        reader.join(4)  # less than the five seconds that a writer would wait for the lock
        assert counts == [1]


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("audit.db", "is not a database URL; write sqlite:///audit.db"),
        ("postgresql://u:secret@h:54x2/d", r"'postgresql://u:\*\*\*@h:54x2/d' is not a database URL: its port is not"),
        ("postgresql://u:secret@h/d?nope=1", "is not a database URL: PostgreSQL takes no parameter 'nope'; write"),
        ("sqlite:///audit.db?nope=1", "is not a database URL: SQLite takes no parameter 'nope'; write"),
        ("postgresql:/u:secret@h/d", r"'postgresql:/u:\*\*\*@h/d' is not a database URL"),
        ("mysql://u:secret@h/d", r"'mysql://u:\*\*\*@h/d' is not a database URL; write sqlite:///FILE or postgresql"),
        ("postgresql+psycopg://u:secret@h/d", "is not a database URL; write sqlite:///FILE or postgresql"),
        ("sqlite+aiosqlite:///audit.db", "is not a database URL; write sqlite:///FILE or postgresql"),
        ("sqlite://", "names no file"),
        (
            "sqlite:////nonexistent/folder/audit.db",
            "cannot be opened: unable to open database file: there is no folder /nonexistent/folder, or this user",
        ),
        ("sqlite:////proc/version/audit.db", "there is no folder /proc/version, or"),
        ("sqlite:////proc", "/proc is a folder; name a file in it"),
    ],
)
def test_invalid_url_error_hides_password(url: str, words: str) -> None:
    with pytest.raises(LedgerError, match=f"MOVEMASK_DATABASE_URL: .*{words}"), opened(url):
        pass


@pytest.mark.parametrize("wrong", ["volume", "file"])
def test_permission_error_names_user_and_solution(wrong: str) -> None:
    # Not tmp_path: other users may not enter it.
    with tempfile.TemporaryDirectory() as volume:
        file = Path(volume) / "movemask.db"
        file.touch()
        file.chmod(0o444)
        if wrong == "volume":
            file.unlink()
        os.chmod(volume, 0o777 if wrong == "file" else 0o555)
        me = os.geteuid()
        user = 10001 if me == 0 else me
        path = volume if wrong == "volume" else file
        words = f"user {user} cannot read and write {path}; give it to that user \\(chown -R {user} {path}\\)"
        os.seteuid(user)
        try:
            with pytest.raises(LedgerError, match=f"MOVEMASK_DATABASE_URL: .*: {words}"), opened(f"sqlite:///{file}"):
                pass
        finally:
            os.seteuid(me)


def test_url_parameters_reach_postgresql(postgres: Server) -> None:
    url = postgres.database()
    postgres.execute("CREATE SCHEMA audits", database=url.rsplit("/", 1)[1])
    url = url.replace("postgresql:", "postgres:", 1)  # as Heroku writes it
    with opened(f"{url}?options=-c%20search_path%3Daudits&application_name=other&keepalives_idle=60") as ledger:
        with ledger.database.reading() as connection:
            parameters = [
                connection.exec_driver_sql(f"SHOW {name}").scalar()
                for name in ("search_path", "application_name", "lock_timeout", "statement_timeout")
            ]
        assert parameters == ["audits", "other", "5s", "8s"]
        assert models(ledger) == []


def test_time_limits_are_lifted_for_deletions_only(postgres: Server) -> None:
    with opened(postgres.database()) as ledger:
        for without_limits, limit in ((True, "0"), (False, "8s")):
            with ledger.database.writing(without_limits=without_limits) as connection:
                assert connection.exec_driver_sql("SHOW statement_timeout").scalar() == limit


def test_unreachable_server_error_hides_password() -> None:
    message = r"'postgresql://u:\*\*\*@127.0.0.1:1/d' cannot be opened: .*Connection refused"
    with pytest.raises(LedgerUnreachable, match=message), opened("postgresql://u:secret@127.0.0.1:1/d"):
        pass


def test_file_without_database_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "audit.db").write_bytes(b"no database" * 100)
    with (
        pytest.raises(LedgerError, match=r"audit.db is damaged, or another file; move it"),
        opened(f"sqlite:///{tmp_path}/audit.db"),
    ):
        pass


@pytest.mark.parametrize(
    ("statements", "words"),
    [
        (("CREATE TABLE cell (count INTEGER)",), "has tables without a version"),
        (
            ("CREATE TABLE ledger_version (version INTEGER)", "INSERT INTO ledger_version VALUES (2)"),
            "has tables of version 2",
        ),
    ],
)
def test_database_of_another_version_is_left_alone(statements: tuple[str, ...], words: str, database_url: str) -> None:
    engine = sa.create_engine(database_url.replace("postgresql:", "postgresql+psycopg:"), poolclass=sa.NullPool)
    with engine.begin() as connection:
        for statement in statements:
            connection.exec_driver_sql(statement)
    rest = f"{words}, and this movemask writes version {VERSION}: move the database away or name another, "
    with pytest.raises(LedgerError, match=rest), opened(database_url):
        pass
    with engine.connect() as connection:
        assert len(sa.inspect(connection).get_table_names()) == 1
