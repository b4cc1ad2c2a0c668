"""The audit's store: totals and sketches that are exact however many positions stand behind them, the worst
positions, and single positions for as long as they are kept.

SQLite in WAL mode, through SQLAlchemy Core. Several processes may write to one file: every write adds to what is there.
"""

from __future__ import annotations

import json
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.sqlite import insert
from sqlalchemy.exc import DataError, IntegrityError, ProgrammingError, SQLAlchemyError

from service.audit.leakage import KINDS
from service.audit.record import AuditRecord
from service.audit.schema import MODEL, POSITION, READING, SKETCH, TOTAL, WORST, prepared
from service.audit.sketch import bucket_of, quantile
from service.errors import StoreError

QUANTILES = {"p50": 0.5, "p95": 0.95, "p99": 0.99, "p999": 0.999}

#: Kinds that positions can be ranked by; `served` is always 0.
RANKED_KINDS = ("raw", "multiplied")


@dataclass(frozen=True, slots=True)
class KindFigures:
    """Figures of one kind: `count`, `mean` and `max` exact, quantiles within 1 %. Empty if nothing was measured."""

    count: int
    unmeasured: int  # answers whose illegal logits were NaN or +inf, so that no plain softmax exists
    mean: float | None
    max: float | None
    quantiles: dict[str, float | None]


@dataclass(frozen=True, slots=True)
class ModelFigures:
    """Figures of one model, the network that answered last under its name."""

    name: str
    digest: str
    trained_with_mask: bool
    positions: int
    kinds: dict[str, KindFigures]


@dataclass(frozen=True, slots=True)
class WorstPosition:
    """A position with much leakage and the illegal moves `(uci, probability)` that took most of it."""

    fen: str
    chess960: bool
    model: str
    digest: str
    time: float
    raw: float | None
    multiplied: float
    legal_moves: int
    illegal: tuple[tuple[str, float], ...]


class Store:
    """Opens or makes the tables behind a database URL; raises StoreError if it cannot.

    Parameters
    ----------
    keep_seconds : how long single positions are kept; totals, sketches and the worst are kept for good
    keep_positions : how many of the newest single positions are kept at most
    keep_worst : how many positions are kept per model and kind
    """

    def __init__(self, url: str, *, keep_seconds: float, keep_positions: int, keep_worst: int) -> None:
        self._keep_seconds = keep_seconds
        self._keep_positions = keep_positions
        self._keep_worst = keep_worst
        self._engine = prepared(url)

    def write(self, records: Sequence[AuditRecord]) -> None:
        """Adds records in one transaction; raises StoreError, and then nothing of them is written but may be later.

        What could never be written is a bug of ours: SQLAlchemy's own error is then let through.
        """
        try:
            with self._engine.begin() as connection:
                for (name, digest), group in _by_model(records).items():
                    model = _model_id(connection, name, digest, group)
                    self._write_model(connection, model, group)
        except (DataError, IntegrityError, ProgrammingError):
            raise
        except SQLAlchemyError as error:
            raise StoreError(f"the audit store cannot be written: {_reason(error)}") from error

    def prune(self) -> None:
        """Forgets single positions past their time, and the oldest past their number."""
        oldest = time.time() - self._keep_seconds
        surplus = sa.select(sa.func.max(POSITION.c.id) - self._keep_positions).scalar_subquery()
        try:
            with self._engine.begin() as connection:
                connection.execute(
                    sa.delete(POSITION).where(sa.or_(POSITION.c.time < oldest, POSITION.c.id <= surplus))
                )
        except SQLAlchemyError as error:
            raise StoreError(f"the audit store cannot be pruned: {_reason(error)}") from error

    def figures(self, model: str | None = None) -> list[ModelFigures]:
        """Figures by model, or of one alone, in order of name."""
        with self._reading() as connection:
            rows = connection.execute(_latest_models(model)).all()
            return [_figures(connection, row) for row in rows]

    def worst(self, kind: str, limit: int, model: str | None = None) -> list[WorstPosition]:
        """The positions with the most leakage of a kind, worst first."""
        query = (
            sa.select(WORST, MODEL.c.name, MODEL.c.digest)
            .join(MODEL)
            .where(WORST.c.kind == kind)
            .order_by(WORST.c.value.desc(), WORST.c.fen)
            .limit(limit)
        )
        if model is not None:
            query = query.where(MODEL.c.name == model)
        with self._reading() as connection:
            return [_worst(row) for row in connection.execute(query)]

    def close(self) -> None:
        self._engine.dispose()

    @contextmanager
    def _reading(self) -> Iterator[sa.Connection]:
        try:
            with self._engine.connect().execution_options(**{READING: True}) as connection:
                yield connection
        except SQLAlchemyError as error:
            raise StoreError(f"the audit store cannot be read: {_reason(error)}") from error

    def _write_model(self, connection: sa.Connection, model: int, records: Sequence[AuditRecord]) -> None:
        connection.execute(sa.insert(POSITION), [_position_row(model, record) for record in records])
        for kind in KINDS:
            values = [getattr(record.leakage, kind) for record in records]
            _add_totals(connection, model, kind, values)
            _add_sketch(connection, model, kind, [value for value in values if value is not None])
        for kind in RANKED_KINDS:
            self._keep_the_worst(connection, model, kind, records)

    def _keep_the_worst(self, connection: sa.Connection, model: int, kind: str, records: Sequence[AuditRecord]) -> None:
        """Adds those that are worse than the least of the kept, each position once, and drops the surplus."""
        mine = sa.and_(WORST.c.model == model, WORST.c.kind == kind)
        kept = connection.execute(sa.select(sa.func.count(), sa.func.min(WORST.c.value)).where(mine)).one()
        threshold = kept[1] if kept[0] >= self._keep_worst else -1.0
        candidates: dict[str, dict[str, Any]] = {}
        for record in records:
            value = getattr(record.leakage, kind)
            if value is not None and value > threshold:
                row = {**_position_row(model, record), "kind": kind, "value": value}
                if row["fen"] not in candidates or candidates[row["fen"]]["value"] < value:
                    candidates[row["fen"]] = row
        if not candidates:
            return
        ranked = sorted(candidates.values(), key=lambda row: -row["value"])[: self._keep_worst]
        statement = insert(WORST)
        columns = [column.name for column in WORST.columns if column.name not in {"model", "kind", "fen"}]
        statement = statement.on_conflict_do_update(
            index_elements=["model", "kind", "fen"],
            set_={name: statement.excluded[name] for name in columns},
            where=statement.excluded.value > WORST.c.value,
        )
        connection.execute(statement, ranked)
        keep = sa.select(WORST.c.fen).where(mine).order_by(WORST.c.value.desc(), WORST.c.fen).limit(self._keep_worst)
        connection.execute(sa.delete(WORST).where(mine, WORST.c.fen.not_in(keep)))


def _by_model(records: Iterable[AuditRecord]) -> dict[tuple[str, str], list[AuditRecord]]:
    groups: dict[tuple[str, str], list[AuditRecord]] = defaultdict(list)
    for record in records:
        groups[record.model, record.digest].append(record)
    return groups


def _model_id(connection: sa.Connection, name: str, digest: str, records: Sequence[AuditRecord]) -> int:
    """The row of a network under its name, made or brought up to date."""
    last = max(records, key=lambda record: record.time)
    statement = insert(MODEL).values(
        name=name, digest=digest, trained_with_mask=last.trained_with_mask, last_time=last.time
    )
    statement = statement.on_conflict_do_update(
        index_elements=["name", "digest"],
        set_={
            "trained_with_mask": statement.excluded.trained_with_mask,
            "last_time": sa.func.max(MODEL.c.last_time, statement.excluded.last_time),
        },
    )
    return int(connection.execute(statement.returning(MODEL.c.id)).scalar_one())


def _position_row(model: int, record: AuditRecord) -> dict[str, Any]:
    return {
        "model": model,
        "time": record.time,
        "fen": record.fen,
        "chess960": record.chess960,
        "turn": record.turn,
        "legal_moves": record.legal_moves,
        "raw": record.leakage.raw,
        "multiplied": record.leakage.multiplied,
        "served": record.leakage.served,
        "illegal": json.dumps([(move.uci, move.probability) for move in record.leakage.illegal]),
    }


def _add_totals(connection: sa.Connection, model: int, kind: str, values: Sequence[float | None]) -> None:
    measured = [value for value in values if value is not None]
    statement = insert(TOTAL).values(
        model=model,
        kind=kind,
        count=len(measured),
        unmeasured=len(values) - len(measured),
        sum=sum(measured),
        max=max(measured, default=0.0),
    )
    statement = statement.on_conflict_do_update(
        index_elements=["model", "kind"],
        set_={
            "count": TOTAL.c.count + statement.excluded.count,
            "unmeasured": TOTAL.c.unmeasured + statement.excluded.unmeasured,
            "sum": TOTAL.c.sum + statement.excluded.sum,
            "max": sa.func.max(TOTAL.c.max, statement.excluded.max),
        },
    )
    connection.execute(statement)


def _add_sketch(connection: sa.Connection, model: int, kind: str, values: Sequence[float]) -> None:
    counts = Counter(bucket_of(value) for value in values)
    if not counts:
        return
    statement = insert(SKETCH)
    statement = statement.on_conflict_do_update(
        index_elements=["model", "kind", "bucket"], set_={"count": SKETCH.c.count + statement.excluded.count}
    )
    rows = [{"model": model, "kind": kind, "bucket": bucket, "count": count} for bucket, count in counts.items()]
    connection.execute(statement, rows)


def _latest_models(name: str | None) -> sa.Select[Any]:
    """For each name the network that answered last under it: figures of two networks are never mixed."""
    latest = sa.select(MODEL.c.name, sa.func.max(MODEL.c.last_time).label("last_time")).group_by(MODEL.c.name)
    newest = latest.subquery()
    on = sa.and_(MODEL.c.name == newest.c.name, MODEL.c.last_time == newest.c.last_time)
    query = sa.select(MODEL).join(newest, on).order_by(MODEL.c.name)
    return query if name is None else query.where(MODEL.c.name == name)


def _figures(connection: sa.Connection, model: sa.Row[Any]) -> ModelFigures:
    sketches: dict[str, dict[int, int]] = defaultdict(dict)
    for kind, bucket, count in connection.execute(
        sa.select(SKETCH.c.kind, SKETCH.c.bucket, SKETCH.c.count).where(SKETCH.c.model == model.id)
    ):
        sketches[kind][bucket] = count
    totals = {row.kind: row for row in connection.execute(sa.select(TOTAL).where(TOTAL.c.model == model.id))}
    kinds = {kind: _kind_figures(totals[kind], sketches[kind]) for kind in KINDS if kind in totals}
    positions = max((figures.count + figures.unmeasured for figures in kinds.values()), default=0)
    return ModelFigures(model.name, model.digest, bool(model.trained_with_mask), positions, kinds)


def _kind_figures(total: sa.Row[Any], sketch: dict[int, int]) -> KindFigures:
    count, summed, highest = total._mapping["count"], total._mapping["sum"], total._mapping["max"]
    return KindFigures(
        count=count,
        unmeasured=total.unmeasured,
        mean=summed / count if count else None,
        max=highest if count else None,
        quantiles={name: _at_most(quantile(sketch, q), highest) for name, q in QUANTILES.items()},
    )


def _at_most(value: float | None, highest: float) -> float | None:
    """No quantile is above the exact maximum, whatever its bucket's middle."""
    return None if value is None else min(value, highest)


def _worst(row: sa.Row[Any]) -> WorstPosition:
    return WorstPosition(
        fen=row.fen,
        chess960=bool(row.chess960),
        model=row.name,
        digest=row.digest,
        time=row.time,
        raw=row.raw,
        multiplied=row.multiplied,
        legal_moves=row.legal_moves,
        illegal=tuple((uci, probability) for uci, probability in json.loads(row.illegal)),
    )


def _reason(error: SQLAlchemyError) -> str:
    """The driver's own words, without SQLAlchemy's frame and the statement."""
    return str(getattr(error, "orig", None) or error).split("\n", 1)[0]
