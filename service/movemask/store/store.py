"""Writes the audit's store: cells of figures, whose size does not grow with the positions, the worst positions, and
single positions for as long as they are kept. `figures` reads it.

Several processes on several machines may share one database: a write adds to the existing rows, under a lock on the
row of its model.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any

import orjson
import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from movemask.errors import StoreError, StoreUnreachable
from movemask.leakage.kinds import RANKED
from movemask.leakage.record import AuditRecord
from movemask.store.cells import Cell, Key, cells_of, merged
from movemask.store.database import POSTGRESQL, Database
from movemask.store.schema import CELL, MODEL, POSITION, WORST
from movemask.store.sketch import Sketch


def _json(value: Any) -> str:
    return orjson.dumps(value).decode()


#: Lengths in seconds of the spans that figures are kept by, finest first, which is the one written to, and how long a
#: span is kept before it is merged into the next tier.
TIERS = ((600, 6 * 3_600), (3_600, 3 * 86_400), (86_400, None))

#: The tier of all time.
EVER = 0


class Store:
    """Opens the database of a URL and creates its tables if needed. Raises StoreError if it cannot.

    A server that cannot be reached is not an error here: `unreachable` holds the reason, and writes work once it is
    back.

    Parameters
    ----------
    keep_seconds : how long single positions are kept; figures and the worst positions are kept for good
    keep_positions : how many of the newest single positions are kept
    keep_worst : how many of the worst positions are kept per model and kind
    positions : whether positions are written at all, or figures alone
    """

    def __init__(
        self, url: str, *, keep_seconds: float, keep_positions: int, keep_worst: int, positions: bool = True
    ) -> None:
        self._positions = positions
        self._keep_seconds = keep_seconds
        self._keep_positions = keep_positions
        self._keep_worst = keep_worst
        self.database = Database(url)
        self.unreachable: str | None = None
        try:
            self.database.open()
        except StoreUnreachable as error:
            self.unreachable = str(error)
        except StoreError:
            self.database.close()
            raise

    def write(self, records: Sequence[AuditRecord]) -> None:
        """Adds records in one transaction. After StoreError nothing was written, and a later attempt may succeed.

        A record that can never be written is a bug: SQLAlchemy's own error then passes through.
        """
        with self.database.writing() as connection:
            for (name, digest), group in sorted(_by_model(records).items()):
                model = _locked_model(connection, name, digest, group)
                _add_cells(connection, model, group)
                if self._positions:
                    _write_rows(connection, POSITION, [_position_row(model, record) for record in group])
                    self._keep_the_worst(connection, model, group)

    def prune(self) -> None:
        """Deletes single positions beyond their age or number, and merges old spans into longer ones."""
        now = time.time()
        surplus = sa.select(sa.func.max(POSITION.c.id) - self._keep_positions).scalar_subquery()
        with self.database.writing() as connection:
            old = sa.or_(POSITION.c.time < now - self._keep_seconds, POSITION.c.id <= surplus)
            connection.execute(sa.delete(POSITION).where(old))
            models = connection.execute(sa.select(MODEL.c.id).order_by(MODEL.c.name, MODEL.c.digest).with_for_update())
            for (model,) in models.all():
                for (tier, keep_seconds), (longer, _) in pairwise(TIERS):
                    assert keep_seconds is not None
                    _roll_up(connection, model, tier, longer, before=int(now - keep_seconds) // longer * longer)

    def close(self) -> None:
        self.database.close()

    def _keep_the_worst(self, connection: sa.Connection, model: int, records: Sequence[AuditRecord]) -> None:
        """Adds the records that are worse than the least of the kept, each position once, and deletes the surplus."""
        query = sa.select(WORST.c.kind, sa.func.count(), sa.func.min(WORST.c.value)).where(WORST.c.model == model)
        kept = {kind: (count, least) for kind, count, least in connection.execute(query.group_by(WORST.c.kind))}
        for kind in RANKED:
            count, least = kept.get(kind, (0, 0.0))
            threshold = least if count >= self._keep_worst else 0.0
            candidates: dict[str, tuple[float, AuditRecord]] = {}
            for record in records:
                figure = record.leakage.figures.get(kind)
                leaked = None if figure is None else figure.leaked
                if leaked is not None and leaked > threshold:
                    known = candidates.get(record.fen)
                    if known is None or known[0] < leaked:
                        candidates[record.fen] = leaked, record
            if not candidates:
                continue
            worst = sorted(candidates.values(), key=lambda entry: (-entry[0], entry[1].fen))[: self._keep_worst]
            rows = [{**_position_row(model, record), "kind": kind, "value": leaked} for leaked, record in worst]
            connection.execute(_upsert(connection.dialect, WORST, where=lambda new: new.value > WORST.c.value), rows)
            ranking = sa.and_(WORST.c.model == model, WORST.c.kind == kind)
            order = WORST.c.value.desc(), WORST.c.fen
            keep = sa.select(WORST.c.fen).where(ranking).order_by(*order).limit(self._keep_worst)
            connection.execute(sa.delete(WORST).where(ranking, WORST.c.fen.not_in(keep)))


#: Columns of the table that identify a cell within its span, and those, beside the sketch, that are fields of it.
_KEY_FIELDS = ("kind", "dimension", "group")
_CELL_FIELDS = ("count", "unmeasured", "flips", "infinite", "sum", "max", "kl")


def _cells_in(connection: sa.Connection, query: sa.Select[Any]) -> dict[Key, Cell]:
    """The cells of the rows that a query of the table finds, by key."""
    columns = [CELL.c[name] for name in (*_KEY_FIELDS, *_CELL_FIELDS, "sketch")]
    rows = connection.execute(query.with_only_columns(*columns)).all()
    return {Key(*row[:3]): Cell(*[*row[3:-1], Sketch.from_bytes(bytes(row[-1]))]) for row in rows}


def _by_model(records: Iterable[AuditRecord]) -> dict[tuple[str, str], list[AuditRecord]]:
    groups: dict[tuple[str, str], list[AuditRecord]] = defaultdict(list)
    for record in records:
        groups[record.model, record.digest].append(record)
    return groups


def _locked_model(connection: sa.Connection, name: str, digest: str, records: Sequence[AuditRecord]) -> int:
    """Id of a network's row, inserted or updated, and locked until the transaction ends."""
    last = max(records, key=lambda record: record.time)
    newest = {"trained_with_mask": last.trained_with_mask, "last_time": last.time}
    insert = _insert_into(connection.dialect, MODEL).values({"name": name, "digest": digest, **newest})
    connection.execute(insert.on_conflict_do_nothing(index_elements=["name", "digest"]))
    this = sa.and_(MODEL.c.name == name, MODEL.c.digest == digest)
    row = connection.execute(sa.select(MODEL).where(this).with_for_update()).one()
    if last.time >= row.last_time:
        connection.execute(sa.update(MODEL).where(this).values(newest))
    return int(row.id)


def _write_rows(connection: sa.Connection, table: sa.Table, rows: Sequence[Mapping[str, Any]]) -> None:
    """Adds rows to POSITION, adds or replaces rows of CELL; all have the same columns.

    SQLAlchemy compiles the statement, once, but the rows go straight to the driver: they are most of what is written,
    and SQLAlchemy's processing would be half of the cost.
    """
    if rows:
        sql, names = _compiled(connection.dialect, table, tuple(rows[0]))
        values: Any = rows if names is None else [tuple([row[name] for name in names]) for row in rows]
        connection.exec_driver_sql(sql, values)


@lru_cache(maxsize=8)
def _compiled(dialect: sa.Dialect, table: sa.Table, columns: tuple[str, ...]) -> tuple[str, tuple[str, ...] | None]:
    """A statement's text, and the columns of its parameters in order; None if they are bound by name."""
    statement = sa.insert(table) if table is POSITION else _upsert(dialect, table)
    compiled = statement.compile(dialect=dialect, column_keys=list(columns))
    names: list[str] | None = getattr(compiled, "positiontup", None)
    return str(compiled), None if names is None else tuple(names)


def _position_row(model: int, record: AuditRecord) -> dict[str, Any]:
    leakage, traits = record.leakage, record.traits
    return {
        "model": model,
        "time": record.time,
        "fen": record.fen,
        "chess960": record.chess960,
        "turn": traits.turn,
        "legal_moves": traits.legal_moves,
        "raw": leakage.raw,
        "multiplied": leakage.multiplied,
        "served": leakage.served,
        "illegal": _json([(move.uci, move.probability, move.cause.value) for move in leakage.illegal]),
        "in_check": traits.in_check,
        "phase": traits.phase.value,
        "elo": traits.elo,
        "figures": _json({kind: (of.leaked, of.flipped, of.kl) for kind, of in leakage.figures.items()}),
        "causes": _json({cause.value: mass for cause, mass in leakage.causes.items()}),
    }


def _add_cells(connection: sa.Connection, model: int, records: Sequence[AuditRecord]) -> None:
    """Adds records to the figures of all time and to those of the span of each."""
    span = TIERS[0][0]
    by_start: dict[int, list[AuditRecord]] = defaultdict(list)
    for record in records:
        by_start[int(record.time) // span * span].append(record)
    parts = {start: cells_of(group) for start, group in by_start.items()}
    for start, cells in sorted(parts.items()):
        _merge_into(connection, model, span, start, cells)
    _merge_into(connection, model, EVER, 0, merged(parts.values()))


def _merge_into(connection: sa.Connection, model: int, tier: int, start: int, cells: Mapping[Key, Cell]) -> None:
    kinds = sorted({key.kind for key in cells})
    query = sa.select(CELL).where(
        CELL.c.model == model, CELL.c.tier == tier, CELL.c.start == start, CELL.c.kind.in_(kinds)
    )
    stored = _cells_in(connection, query)
    both = merged([{key: cell for key, cell in stored.items() if key in cells}, cells])
    rows = []
    for key, cell in both.items():
        fields = {name: getattr(cell, name) for name in _CELL_FIELDS}
        rows.append(
            {"model": model, "tier": tier, "start": start, **key._asdict(), **fields, "sketch": cell.sketch.to_bytes()}
        )
    _write_rows(connection, CELL, rows)


def _roll_up(connection: sa.Connection, model: int, tier: int, longer: int, before: int) -> None:
    """Merges the spans of a tier that begin before a time into those of the next tier, and deletes them."""
    old = sa.and_(CELL.c.model == model, CELL.c.tier == tier, CELL.c.start < before)
    starts = connection.execute(sa.select(CELL.c.start).where(old).distinct().order_by(CELL.c.start)).scalars().all()
    for start in starts:
        span = sa.and_(CELL.c.model == model, CELL.c.tier == tier, CELL.c.start == start)
        cells = _cells_in(connection, sa.select(CELL).where(span))
        _merge_into(connection, model, longer, start // longer * longer, cells)
        connection.execute(sa.delete(CELL).where(span))


def _insert_into(dialect: sa.Dialect, table: sa.Table) -> Any:
    """An INSERT that can say what to do on conflict."""
    return postgresql.insert(table) if dialect.name == POSTGRESQL else sqlite.insert(table)


def _upsert(dialect: sa.Dialect, table: sa.Table, where: Any = None) -> Any:
    """An INSERT whose row replaces one with the same primary key, if `where` (called with the new row) holds."""
    insert = _insert_into(dialect, table)
    keys = [column.name for column in table.primary_key.columns]
    values = {column.name: insert.excluded[column.name] for column in table.columns if column.name not in keys}
    condition = None if where is None else where(insert.excluded)
    return insert.on_conflict_do_update(index_elements=keys, set_=values, where=condition)
