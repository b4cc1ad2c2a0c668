"""What an operator would lose at an update: what the service before it had counted."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory

from movemask.store import database, migrations
from movemask.store.figures import Figures
from movemask.store.schema import METADATA
from movemask.store.store import Store
from tests.ground_truth import DATA
from tests.store.records import record


def opened(url: str) -> Store:
    return Store(url, keep_seconds=1e12, keep_positions=1000, keep_worst=2)


def differences(store: Store, *, types: bool) -> list[Any]:
    """What the database's tables lack of those that the code knows."""
    with store.database.reading() as connection:
        changes = compare_metadata(MigrationContext.configure(connection, opts={"compare_type": types}), METADATA)
    return [change for change in changes if change[0] != "remove_table"]


def test_a_database_of_version_1_keeps_its_figures_positions_and_worst(tmp_path: Path) -> None:
    file = tmp_path / "audit.db"
    with sqlite3.connect(file) as connection:
        connection.executescript((DATA / "audit-v1.sql").read_text())
    connection.close()
    store = opened(f"sqlite:///{file}")
    assert differences(store, types=False) == []  # version 1 wrote FLOAT for what is DOUBLE in SQLite too
    net, other = Figures(store.database).models()
    raw = net.kinds["raw"]
    assert (raw.count, raw.unmeasured, raw.max) == (4, 1, 0.9)
    assert raw.mean == pytest.approx((0.0 + 0.001 + 0.25 + 0.9) / 4)
    assert raw.quantiles() == {
        "p50": pytest.approx(0.001, rel=0.0203),
        "p95": 0.9,
        "p99": 0.9,
        "p999": 0.9,
    }
    assert (net.positions, net.trained_with_mask, other.positions, other.trained_with_mask) == (5, False, 1, True)
    worst = Figures(store.database).worst("raw", 5, model="net")
    assert [(one.fen, one.raw, one.phase, one.illegal[0].cause) for one in worst] == [
        ("fen 4", 0.9, None, None),
        ("fen 2", 0.25, None, None),
    ]
    assert len(list(Figures(store.database).all_positions())) == 6
    store.write([record(0.5, fen="new")])
    assert Figures(store.database).models("net")[0].kinds["raw"].count == 5
    store.close()
    again = opened(f"sqlite:///{file}")
    assert Figures(again.database).models("net")[0].kinds["raw"].count == 5
    again.close()


def test_a_new_database_has_the_tables_that_the_code_knows(database_url: str) -> None:
    store = opened(database_url)
    assert differences(store, types=True) == []
    with store.database.reading() as connection:
        assert set(sa.inspect(connection).get_table_names()) == {*METADATA.tables, "alembic_version"}
    store.close()


def test_the_newest_migration_is_the_version_that_is_looked_for() -> None:
    config = Config()
    config.set_main_option("script_location", str(Path(migrations.__file__).parent))
    assert ScriptDirectory.from_config(config).get_current_head() == database.HEAD
