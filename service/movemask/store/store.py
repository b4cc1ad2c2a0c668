"""The audit's store, written: cells that add up however many positions stand behind them, the worst positions, and
single positions for as long as they are kept. `figures` reads it.

Several processes on several machines may write to one database: every write adds to what is there, under the lock of
its model's row.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
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


#: Lengths in seconds of the spans that figures are kept by, from the one that is written to the coarsest, and how long
#: a span stays before it is added to the next.
TIERS = ((600, 6 * 3_600), (3_600, 3 * 86_400), (86_400, None))

#: The tier that holds all time.
EVER = 0


class Store:
    """Opens or makes the tables behind a database URL; raises StoreError if it cannot.

    A server that cannot be reached now is no reason to stop: `unreachable` says so, and writes find it when it is back.

    Parameters
    ----------
    keep_seconds : how long single positions are kept; figures and the worst are kept for good
    keep_positions : how many of the newest single positions are kept at most
    keep_worst : how many positions are kept per model and kind
    """

    def __init__(self, url: str, *, keep_seconds: float, keep_positions: int, keep_worst: int) -> None:
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
        """Adds records in one transaction; raises StoreError, and then nothing of them is written but may be later.

        What could never be written is a bug of ours: SQLAlchemy's own error is then let through.
        """
        with self.database.writing() as connection:
            for (name, digest), group in sorted(_by_model(records).items()):
                model = _locked_model(connection, name, digest, group)
                _insert(connection, [_position_row(model, record) for record in group])
                _add_cells(connection, model, group)
                for kind in _ranked(group):
                    self._keep_the_worst(connection, model, kind, group)

    def prune(self) -> None:
        """Forgets single positions past their time and their number, and adds short spans that are over to
        longer ones."""
        now = time.time()
        surplus = sa.select(sa.func.max(POSITION.c.id) - self._keep_positions).scalar_subquery()
        with self.database.writing() as connection:
            old = sa.or_(POSITION.c.time < now - self._keep_seconds, POSITION.c.id <= surplus)
            connection.execute(sa.delete(POSITION).where(old))
            models = connection.execute(sa.select(MODEL.c.id).order_by(MODEL.c.name, MODEL.c.digest).with_for_update())
            for (model,) in models.all():
                for (tier, kept), (longer, _) in pairwise(TIERS):
                    assert kept is not None
                    _roll_up(connection, model, tier, longer, before=int(now - kept) // longer * longer)

    def close(self) -> None:
        self.database.close()

    def _keep_the_worst(self, connection: sa.Connection, model: int, kind: str, records: Sequence[AuditRecord]) -> None:
        """Adds those that are worse than the least of the kept, each position once, and drops the surplus."""
        mine = sa.and_(WORST.c.model == model, WORST.c.kind == kind)
        count, least = connection.execute(sa.select(sa.func.count(), sa.func.min(WORST.c.value)).where(mine)).one()
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
            return
        worst = sorted(candidates.values(), key=lambda one: (-one[0], one[1].fen))[: self._keep_worst]
        ranked = [{**_position_row(model, record), "kind": kind, "value": leaked} for leaked, record in worst]
        _upsert(connection, WORST, ranked, where=lambda new: new.value > WORST.c.value)
        keep = sa.select(WORST.c.fen).where(mine).order_by(WORST.c.value.desc(), WORST.c.fen).limit(self._keep_worst)
        connection.execute(sa.delete(WORST).where(mine, WORST.c.fen.not_in(keep)))


def _cell_of(row: sa.RowMapping) -> Cell:
    """The cell in a row of the table."""
    return Cell(
        count=row["count"],
        unmeasured=row["unmeasured"],
        flips=row["flips"],
        infinite=row["infinite"],
        sum=row["sum"],
        max=row["max"],
        kl=row["kl"],
        sketch=Sketch.from_bytes(bytes(row["sketch"])),
    )


def _by_model(records: Iterable[AuditRecord]) -> dict[tuple[str, str], list[AuditRecord]]:
    groups: dict[tuple[str, str], list[AuditRecord]] = defaultdict(list)
    for record in records:
        groups[record.model, record.digest].append(record)
    return groups


def _locked_model(connection: sa.Connection, name: str, digest: str, records: Sequence[AuditRecord]) -> int:
    """The row of a network under its name, made or brought up to date, and locked until the transaction ends."""
    last = max(records, key=lambda record: record.time)
    insert = postgresql.insert(MODEL) if connection.dialect.name == POSTGRESQL else sqlite.insert(MODEL)
    values = {"name": name, "digest": digest, "trained_with_mask": last.trained_with_mask, "last_time": last.time}
    connection.execute(insert.values(values).on_conflict_do_nothing(index_elements=["name", "digest"]))
    own = sa.and_(MODEL.c.name == name, MODEL.c.digest == digest)
    found = connection.execute(sa.select(MODEL).where(own).with_for_update()).one()
    if last.time >= found.last_time:
        newer = {"trained_with_mask": last.trained_with_mask, "last_time": last.time}
        connection.execute(sa.update(MODEL).where(own).values(newer))
    return int(found.id)


def _insert(connection: sa.Connection, rows: Sequence[dict[str, Any]]) -> None:
    """Adds positions, the statement made by SQLAlchemy and the rows handed to the driver as they are: of all that is
    written these are the most, and SQLAlchemy's own part would be half of their cost."""
    compiled = sa.insert(POSITION).compile(dialect=connection.dialect, column_keys=list(rows[0]))
    names: list[str] | None = getattr(compiled, "positiontup", None)
    values: Any = rows if names is None else [tuple([row[name] for name in names]) for row in rows]
    connection.exec_driver_sql(str(compiled), values)


def _ranked(records: Iterable[AuditRecord]) -> list[str]:
    """The kinds that positions can be ranked by and that any of these has."""
    there = {kind for record in records for kind in record.leakage.figures}
    return [kind for kind in RANKED if kind in there]


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
        "figures": _json({kind: (one.leaked, one.flipped, one.kl) for kind, one in leakage.figures.items()}),
        "causes": _json({cause.value: mass for cause, mass in leakage.causes.items()}),
    }


def _add_cells(connection: sa.Connection, model: int, records: Sequence[AuditRecord]) -> None:
    """Adds to the figures of all time and to those of the span that each record falls in."""
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
    there = sa.and_(CELL.c.model == model, CELL.c.tier == tier, CELL.c.start == start, CELL.c.kind.in_(kinds))
    found = connection.execute(sa.select(CELL).where(there)).mappings()
    known = {Key(row["kind"], row["dimension"], row["group"]): row for row in found}
    rows = []
    for key, new in cells.items():
        cell = Cell.merged([_cell_of(known[key]), new]) if key in known else new
        row = {name: getattr(cell, name) for name in ("count", "unmeasured", "flips", "infinite", "sum", "max", "kl")}
        rows.append(
            {"model": model, "tier": tier, "start": start, **key._asdict(), **row, "sketch": cell.sketch.to_bytes()}
        )
    _upsert(connection, CELL, rows)


def _roll_up(connection: sa.Connection, model: int, tier: int, longer: int, before: int) -> None:
    """Adds the spans of a tier that begin before a time to those of the next, and drops them."""
    over = sa.and_(CELL.c.model == model, CELL.c.tier == tier, CELL.c.start < before)
    starts = connection.execute(sa.select(CELL.c.start).where(over).distinct().order_by(CELL.c.start)).scalars().all()
    for start in starts:
        own = sa.and_(CELL.c.model == model, CELL.c.tier == tier, CELL.c.start == start)
        rows = connection.execute(sa.select(CELL).where(own)).mappings()
        cells = {Key(row["kind"], row["dimension"], row["group"]): _cell_of(row) for row in rows}
        _merge_into(connection, model, longer, start // longer * longer, cells)
        connection.execute(sa.delete(CELL).where(own))


def _upsert(connection: sa.Connection, table: sa.Table, rows: Sequence[Mapping[str, Any]], where: Any = None) -> None:
    """Writes rows over those with the same primary key, where `where` (given the new row) holds."""
    if not rows:
        return
    statement: Any = postgresql.insert(table) if connection.dialect.name == POSTGRESQL else sqlite.insert(table)
    keys = [column.name for column in table.primary_key.columns]
    rest = {column.name: statement.excluded[column.name] for column in table.columns if column.name not in keys}
    condition = None if where is None else where(statement.excluded)
    connection.execute(
        statement.on_conflict_do_update(index_elements=keys, set_=rest, where=condition), [dict(row) for row in rows]
    )
