"""What a user would lose: figures that add up over restarts and processes, and the worst positions."""

from __future__ import annotations

import multiprocessing
import sqlite3
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from service.audit.store import Store
from service.errors import StoreError
from tests.audit.records import record


def opened(folder: Path, keep_worst: int = 100, keep_seconds: float = 3600, keep_positions: int = 10_000) -> Store:
    url = f"sqlite:///{folder}/audit.db"
    return Store(url, keep_seconds=keep_seconds, keep_positions=keep_positions, keep_worst=keep_worst)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    made = opened(tmp_path)
    yield made
    made.close()


def test_figures_are_exact_and_quantiles_within_one_percent(store: Store) -> None:
    rng = np.random.default_rng(1)
    raws, multiplieds = 10 ** rng.uniform(-9, 0, 5000), 10 ** rng.uniform(-6, -1, 5000)
    for start in range(0, 5000, 1234):
        span = slice(start, start + 1234)
        store.write([record(r, m, fen=str(r)) for r, m in zip(raws[span], multiplieds[span], strict=True)])
    (figures,) = store.figures()
    assert figures.positions == 5000
    for kind, values in (("raw", raws), ("multiplied", multiplieds)):
        found = figures.kinds[kind]
        assert found.count == 5000
        assert found.max == values.max()
        assert found.mean == pytest.approx(values.mean(), rel=1e-12)
        for name, q in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99), ("p999", 0.999)):
            assert found.quantiles[name] == pytest.approx(np.quantile(values, q, method="lower"), rel=0.0101)
    assert figures.kinds["served"].max == 0.0


def test_a_restart_keeps_everything(tmp_path: Path) -> None:
    for value in (0.1, 0.3):
        store = opened(tmp_path)
        store.write([record(value, fen=str(value))])
        store.close()
    store = opened(tmp_path)
    (figures,) = store.figures()
    assert figures.kinds["raw"].count == 2
    assert figures.kinds["raw"].mean == pytest.approx(0.2)
    assert [position.fen for position in store.worst("raw", 10)] == ["0.3", "0.1"]
    store.close()


def test_unmeasured_positions_are_counted_apart_and_do_not_spoil_the_mean(store: Store) -> None:
    store.write([record(None, fen="a"), record(0.5, fen="b")])
    (figures,) = store.figures()
    assert figures.positions == 2
    assert (figures.kinds["raw"].count, figures.kinds["raw"].unmeasured) == (1, 1)
    assert figures.kinds["raw"].mean == 0.5
    store.write([record(None, model="silent")])
    silent = store.figures("silent")[0].kinds["raw"]
    assert (silent.mean, silent.max, silent.quantiles["p99"]) == (None, None, None)


def test_two_networks_of_one_name_are_not_mixed_and_the_last_is_shown(store: Store) -> None:
    store.write([record(0.9, digest="sha256:old", at=1000.0)])
    store.write([record(0.1, digest="sha256:new", at=2000.0)])
    (figures,) = store.figures()
    assert (figures.digest, figures.kinds["raw"].mean) == ("sha256:new", 0.1)
    store.write([record(0.9, digest="sha256:old", at=3000.0)])
    assert store.figures()[0].digest == "sha256:old"
    assert store.figures()[0].kinds["raw"].count == 2


def test_worst_is_ranked_by_kind_once_a_position_and_bounded(tmp_path: Path) -> None:
    store = opened(tmp_path, keep_worst=3)
    for value in (0.1, 0.5, 0.3, 0.2, 0.4, 0.5):
        store.write([record(value, 1 - value, fen=f"fen {value}")])
    assert [position.fen for position in store.worst("raw", 10)] == ["fen 0.5", "fen 0.4", "fen 0.3"]
    assert [position.fen for position in store.worst("multiplied", 2)] == ["fen 0.1", "fen 0.2"]
    worst = store.worst("raw", 1)[0]
    assert (worst.raw, worst.multiplied, worst.illegal) == (0.5, 0.5, (("e2e5", 0.25),))
    assert store.worst("raw", 10, model="other") == []
    store.close()


def test_a_position_that_leaks_more_the_second_time_moves_up(store: Store) -> None:
    store.write([record(0.2, fen="a"), record(0.3, fen="b")])
    store.write([record(0.4, fen="a"), record(0.1, fen="b")])
    assert [(position.fen, position.raw) for position in store.worst("raw", 5)] == [("a", 0.4), ("b", 0.3)]


def test_single_positions_are_forgotten_after_their_time_but_the_figures_stay(tmp_path: Path) -> None:
    store = opened(tmp_path, keep_seconds=60)
    store.write([record(fen="old", at=time.time() - 61), record(fen="new")])
    store.prune()
    with sqlite3.connect(tmp_path / "audit.db") as connection:
        assert connection.execute("SELECT fen FROM position").fetchall() == [("new",)]
    connection.close()
    assert store.figures()[0].positions == 2
    store.close()


def test_only_so_many_single_positions_are_kept_the_newest(tmp_path: Path) -> None:
    store = opened(tmp_path, keep_positions=3)
    store.prune()
    store.write([record(fen=str(number)) for number in range(10)])
    store.prune()
    with sqlite3.connect(tmp_path / "audit.db") as connection:
        assert connection.execute("SELECT fen FROM position ORDER BY id").fetchall() == [("7",), ("8",), ("9",)]
    connection.close()
    store.close()


def write_many(folder: Path, name: str) -> None:
    store = opened(folder)
    for value in range(100):
        store.write([record(0.001 * value, fen=f"{name} {value}")])
    store.close()


def test_several_processes_write_to_one_file_and_nothing_is_lost(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    writers = [context.Process(target=write_many, args=(tmp_path, str(number))) for number in range(3)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(60)
        assert writer.exitcode == 0
    store = opened(tmp_path)
    (figures,) = store.figures()
    assert figures.positions == 300
    assert figures.kinds["raw"].mean == pytest.approx(0.0495)
    assert figures.kinds["raw"].count == 300
    store.close()
    with sqlite3.connect(tmp_path / "audit.db") as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    connection.close()


def test_readers_do_not_wait_for_a_writer(store: Store, tmp_path: Path) -> None:
    store.write([record()])
    writer = sqlite3.connect(tmp_path / "audit.db", isolation_level=None)
    writer.execute("BEGIN IMMEDIATE")
    found: list[int] = []
    reader = threading.Thread(target=lambda: found.append(store.figures()[0].positions))
    reader.start()
    reader.join(4)  # less than the five seconds that a writer would wait for the lock
    assert found == [1]
    writer.execute("ROLLBACK")
    writer.close()


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("audit.db", "is not a database URL"),
        ("postgresql://u:secret@h/d", r"'postgresql://u:\*\*\*@h/d': only sqlite:///FILE is supported"),
        ("sqlite://", "names no file"),
        ("sqlite:////nonexistent/folder/audit.db", "cannot be opened: unable to open database file"),
    ],
)
def test_a_url_that_cannot_be_opened_is_refused_by_name_without_its_password(url: str, words: str) -> None:
    with pytest.raises(StoreError, match=f"MOVEMASK_DATABASE_URL: .*{words}"):
        Store(url, keep_seconds=1, keep_positions=1, keep_worst=1)


def test_a_file_that_is_no_database_and_tables_of_another_version_are_refused(tmp_path: Path) -> None:
    (tmp_path / "audit.db").write_bytes(b"no database" * 100)
    with pytest.raises(StoreError, match="file is not a database"):
        opened(tmp_path)
    (tmp_path / "audit.db").unlink()
    opened(tmp_path).close()
    with sqlite3.connect(tmp_path / "audit.db") as connection:
        connection.execute("UPDATE schema_version SET version = 99")
    connection.close()
    with pytest.raises(StoreError, match="has tables of version 99, this service 1"):
        opened(tmp_path)
