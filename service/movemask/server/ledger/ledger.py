"""`Ledger`: writes figures, the worst positions and single positions to the database; `delete` deletes positions.

Several processes on several machines may share a database. A write adds to the existing figures, and locks the row of
its model meanwhile. The figures take the same space for any number of positions.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise, repeat
from typing import Any
from uuid import uuid4

import numpy as np
import orjson
import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from movemask.board.boards import PHASES
from movemask.errors import LedgerError
from movemask.leakage.causes import CAUSES
from movemask.leakage.cells import CellKey, Cells
from movemask.leakage.kinds import RANKED
from movemask.server.ledger.database import POSTGRESQL, Database
from movemask.server.ledger.entries import LedgerTable
from movemask.server.ledger.tables import CELL, MODEL, POSITION, WORST, WRITER

#: The tiers of figures over time: the length of a span, and how long spans are kept before they are merged into the
#: next tier, in seconds. Writes go to the first tier.
TIERS = ((600, 6 * 3_600), (3_600, 3 * 86_400), (86_400, None))

#: Worst positions kept per model and kind.
_KEEP_WORST = 100

#: Most positions deleted in one transaction.
_PER_PRUNE = 10_000

#: The tier of the figures of all time, in a single span.
EVER = 0

#: Seconds after its last write that a writer is forgotten. Until then it can repeat a write without counting twice.
_KEEP_WRITERS = 7 * 86_400.0

#: The columns of CELL in the order of `Cells.COLUMNS`.
CELL_COLUMNS = [CELL.c[name] for name in Cells.COLUMNS]

_PHASES, _CAUSES = [phase.value for phase in PHASES], [cause.value for cause in CAUSES]


class Ledger:
    """A database that positions are written to. It is opened, and its tables are made, on first use.

    Raises LedgerError for an unusable URL.

    Parameters
    ----------
    keep_seconds : age at which single positions are deleted; figures and the worst positions stay
    keep_positions : number of single positions to keep, the newest
    keep_worst : number of worst positions to keep per model and kind
    positions : False writes figures only
    """

    def __init__(
        self,
        url: str,
        *,
        keep_seconds: float,
        keep_positions: int,
        keep_worst: int = _KEEP_WORST,
        positions: bool = True,
    ) -> None:
        self._positions = positions
        self._keep_seconds = keep_seconds
        self._keep_positions = keep_positions
        self._keep_worst = keep_worst
        self._writer = uuid4().hex
        self.database = Database(url)

    def write(self, table: LedgerTable) -> None:
        """Adds positions in one transaction. Writing the same table again adds nothing.

        Raises LedgerError for a failure that may pass. Then write the same table again before any
        other, because the database may have committed it although the reply was lost. Any other
        error is a bug, and the table can never be written.
        """
        with self.database.writing() as connection:
            if not self._is_new(connection, table):
                return
            model = _lock_model(connection, table)
            _add_cells(connection, model, table)
            if self._positions:
                _execute(connection, POSITION, _position_rows(model, table))
                self._keep_the_worst(connection, model, table)

    def _is_new(self, connection: sa.Connection, table: LedgerTable) -> bool:
        """Notes a table as this writer's last, in the transaction that writes it. False if it is noted already.

        If a lost transaction of this writer has not ended on the server, this waits for it: both change the same row.
        """
        row = {"id": self._writer, "batch": table.id, "time": time.time()}
        insert = _insert_into(connection.dialect, WRITER).values(row)
        noted = insert.on_conflict_do_update(
            index_elements=["id"], set_=row, where=WRITER.c.batch != table.id
        )
        return connection.execute(noted.returning(WRITER.c.id)).first() is not None

    def prune(self) -> bool:
        """Deletes positions that are too old or too many, and forgotten writers; merges old spans into longer ones.

        Deletes at most 10,000 positions, so that others wait only shortly. True if more may be left to delete.
        """
        now = time.time()
        surplus = sa.select(sa.func.max(POSITION.c.id) - self._keep_positions).scalar_subquery()
        old = sa.or_(POSITION.c.time < now - self._keep_seconds, POSITION.c.id <= surplus)
        with self.database.writing() as connection:
            expired = sa.select(POSITION.c.id).where(old).limit(_PER_PRUNE)
            deleted = connection.execute(
                sa.delete(POSITION).where(POSITION.c.id.in_(expired))
            ).rowcount
            connection.execute(sa.delete(WRITER).where(WRITER.c.time < now - _KEEP_WRITERS))
            models = connection.execute(
                sa.select(MODEL.c.id).order_by(MODEL.c.name, MODEL.c.digest).with_for_update()
            )
            for (model,) in models.all():
                for (tier, keep_seconds), (longer, _) in pairwise(TIERS):
                    assert keep_seconds is not None
                    _roll_up(
                        connection,
                        model,
                        tier,
                        longer,
                        before=int(now - keep_seconds) // longer * longer,
                    )
        return bool(deleted == _PER_PRUNE)

    def close(self) -> None:
        self.database.close()

    def _keep_the_worst(self, connection: sa.Connection, model: int, table: LedgerTable) -> None:
        """Adds a table's positions to the worst of each kind, each FEN once, and deletes the surplus.

        Only positions worse than the least bad one of a full list are written.
        """
        query = sa.select(WORST.c.kind, sa.func.count(), sa.func.min(WORST.c.value)).where(
            WORST.c.model == model
        )
        stored = {
            kind: (count, least)
            for kind, count, least in connection.execute(query.group_by(WORST.c.kind))
        }
        for kind, measured in table.measured.items():
            if kind not in RANKED:
                continue
            count, least = stored.get(kind, (0, 0.0))
            worse = np.flatnonzero(measured.leaked > (least if count >= self._keep_worst else 0.0))
            if not len(worse):
                continue
            worst: dict[str, int] = {}  # by FEN, the row where it leaks most
            for row in worse[np.argsort(measured.leaked[worse], kind="stable")].tolist():
                worst[table.fens[row]] = row
            rows = np.array(list(worst.values()))
            rows = np.sort(
                rows[np.argsort(-measured.leaked[rows], kind="stable")][: self._keep_worst]
            )
            values = [(kind, value) for value in measured.leaked[rows].tolist()]
            positions = _position_rows(model, table.rows(rows))
            _execute(
                connection,
                WORST,
                [value + row for value, row in zip(values, positions, strict=True)],
            )
            ranking = sa.and_(WORST.c.model == model, WORST.c.kind == kind)
            order = WORST.c.value.desc(), WORST.c.fen
            keep = sa.select(WORST.c.fen).where(ranking).order_by(*order).limit(self._keep_worst)
            connection.execute(sa.delete(WORST).where(ranking, WORST.c.fen.not_in(keep)))


def _lock_model(connection: sa.Connection, table: LedgerTable) -> int:
    """Returns the id of a network's row in MODEL.

    The row is added or updated, and locked until the transaction ends.
    """
    last_time = float(table.times.max())
    newest = {"trained_with_mask": table.trained_with_mask, "last_time": last_time}
    key = {"name": table.model, "digest": table.digest}
    insert = _insert_into(connection.dialect, MODEL).values({**key, **newest})
    not_older = MODEL.c.last_time <= last_time  # the row is locked even if this is false
    connection.execute(
        insert.on_conflict_do_update(index_elements=[*key], set_=newest, where=not_older)
    )
    return int(connection.execute(sa.select(MODEL.c.id).filter_by(**key)).scalar_one())


def _position_rows(model: int, table: LedgerTable) -> list[tuple[Any, ...]]:
    """Returns a table's rows for POSITION, without `id`."""
    figures = [
        zip(of_kind.leaked.tolist(), of_kind.flipped.tolist(), of_kind.kl.tolist(), strict=True)
        for of_kind in table.measured.values()
    ]
    explained = table.explained
    causes: list[dict[str, float]] = [{} for _ in range(len(table))]
    rows, places = np.nonzero(explained.by_cause)
    masses = explained.by_cause[rows, places]
    for row, place, mass in zip(rows.tolist(), places.tolist(), masses.tolist(), strict=True):
        causes[row][_CAUSES[place]] = mass
    names = [_CAUSES[place] for place in explained.causes.tolist()]
    illegal = list(zip(explained.moves, explained.masses.tolist(), names, strict=True))
    kinds = tuple(table.measured)
    leakage = [
        orjson.dumps(
            (dict(zip(kinds, row, strict=True)), by_cause, illegal[start:end])
        ).decode()  # orjson writes NaN and infinity as null
        for row, by_cause, (start, end) in zip(
            zip(*figures, strict=True), causes, pairwise(explained.indptr.tolist()), strict=True
        )
    ]
    return list(
        zip(
            repeat(model, len(table)),
            table.times.tolist(),
            table.fens,
            table.chess960.tolist(),
            ["black" if black else "white" for black in table.black.tolist()],
            table.in_check.tolist(),
            [_PHASES[phase] for phase in table.phases.tolist()],
            table.legal_moves.tolist(),
            table.elos,
            leakage,
            strict=True,
        )
    )


def _add_cells(connection: sa.Connection, model: int, table: LedgerTable) -> None:
    """Adds a table's positions to the figures of all time, and to those of the ten minutes of each position."""
    length = TIERS[0][0]
    starts = table.times.astype(np.int64) // length * length
    for start in np.unique(starts).tolist():
        cells = (
            table if (starts == start).all() else table.rows(np.flatnonzero(starts == start))
        ).cells()
        _merge_into(connection, model, length, start, cells)
        _merge_into(connection, model, EVER, 0, cells)


def _merge_into(connection: sa.Connection, model: int, tier: int, start: int, added: Cells) -> None:
    """Adds cells to the stored cells of a span."""
    kinds = sorted({key.kind for key in added.places})
    stored = _rows_of(connection, _span(model, tier, start), CELL.c.kind.in_(kinds))
    rows = [*(row for row in stored if CellKey(*row[:3]) in added.places), *added.rows()]
    _execute(connection, CELL, [(model, tier, start, *row) for row in Cells.of_rows(rows).rows()])


def _roll_up(connection: sa.Connection, model: int, tier: int, longer: int, before: int) -> None:
    """Merges the spans of a tier that begin before a time into the next tier, whose spans are `longer` seconds."""
    old = sa.and_(CELL.c.model == model, CELL.c.tier == tier, CELL.c.start < before)
    starts = (
        connection.execute(sa.select(CELL.c.start).where(old).distinct().order_by(CELL.c.start))
        .scalars()
        .all()
    )
    for start in starts:
        span = _span(model, tier, start)
        _merge_into(
            connection,
            model,
            longer,
            start // longer * longer,
            Cells.of_rows(_rows_of(connection, span)),
        )
        connection.execute(sa.delete(CELL).where(span))


def _span(model: int, tier: int, start: int) -> sa.ColumnElement[bool]:
    return sa.and_(CELL.c.model == model, CELL.c.tier == tier, CELL.c.start == start)


def _rows_of(connection: sa.Connection, *chosen: sa.ColumnElement[bool]) -> list[tuple[Any, ...]]:
    """Returns the chosen rows of CELL, with the columns `Cells.COLUMNS`."""
    return [tuple(row) for row in connection.execute(sa.select(*CELL_COLUMNS).where(*chosen))]


def _insert_into(dialect: sa.Dialect, table: sa.Table) -> Any:
    """Returns an INSERT for which SQLAlchemy knows ON CONFLICT; each dialect has its own."""
    return postgresql.insert(table) if dialect.name == POSTGRESQL else sqlite.insert(table)


def _execute(connection: sa.Connection, table: sa.Table, rows: Sequence[tuple[Any, ...]]) -> None:
    """Adds rows to POSITION. Adds or replaces rows of CELL, and of WORST if the new row is worse.

    SQLAlchemy compiles the statement once. The rows go to the driver directly, because SQLAlchemy's
    processing of each row would double the cost of a write.
    """
    if rows:
        connection.exec_driver_sql(_compile(connection.dialect, table), list(rows))


@lru_cache(maxsize=8)
def _compile(dialect: sa.Dialect, table: sa.Table) -> str:
    """Returns the text of the statement.

    Its parameters are the table's columns in order, without the id of POSITION.
    """
    insert = _insert_into(dialect, table)
    names = [column.name for column in table.columns if column is not POSITION.c.id]
    if table is not POSITION:
        keys = [column.name for column in table.primary_key.columns]
        values = {name: insert.excluded[name] for name in names if name not in keys}
        worse = insert.excluded.value > WORST.c.value if table is WORST else None
        insert = insert.on_conflict_do_update(index_elements=keys, set_=values, where=worse)
    compiled = insert.compile(dialect=dialect, column_keys=names)
    assert compiled.positiontup == names
    return str(compiled)


@dataclass(frozen=True, slots=True)
class Deleted:
    """Numbers of deleted rows: single positions, entries of the lists of worst positions, and rows of figures."""

    positions: int
    worst: int
    figures: int


def delete(
    database: Database,
    *,
    before: float | None,
    model: str | None,
    figures: bool = False,
    only_count: bool = False,
) -> Deleted:
    """Deletes positions of a model that were answered before a time.

    before : seconds since 1970; None: at any time
    model : None: of all models
    figures : deletes the model's figures too; needs a model and no time
    only_count : deletes nothing

    Raises LedgerError for a model without positions or figures. SQLite overwrites deleted content.
    PostgreSQL keeps it on disk until vacuuming reuses the space.
    """
    assert not figures or (model is not None and before is None)
    with database.writing(without_limits=True) as connection:
        known = {
            number: name for number, name in connection.execute(sa.select(MODEL.c.id, MODEL.c.name))
        }
        ids = [number for number, name in known.items() if model in (None, name)]
        if model is not None and not ids:
            names = ", ".join(sorted(set(known.values()))) or "none"
            raise LedgerError(f"the ledger has no model {model!r}; available: {names}")
        if figures:  # a write that has read them would bring them back
            locked = (
                sa.select(MODEL.c.id)
                .where(MODEL.c.id.in_(ids))
                .order_by(MODEL.c.name, MODEL.c.digest)
            )
            connection.execute(locked.with_for_update())
        counts: dict[str, int] = {}
        for table in (POSITION, WORST, CELL) if figures else (POSITION, WORST):
            chosen: list[sa.ColumnElement[bool]] = [table.c.model.in_(ids)]
            if before is not None:
                chosen.append(table.c.time < before)
            query = sa.select(sa.func.count()).select_from(table).where(*chosen)
            counts[table.name] = connection.execute(query).scalar_one()
            if not only_count:
                connection.execute(sa.delete(table).where(*chosen))
    return Deleted(counts["position"], counts["worst"], counts.get("cell", 0))
