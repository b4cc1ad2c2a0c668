"""Deletes what the audit keeps of requests: single positions, the worst positions, and all figures of a model."""

from __future__ import annotations

from dataclasses import dataclass

import sqlalchemy as sa

from movemask.errors import StoreError
from movemask.store.database import SQLITE, Database
from movemask.store.schema import CELL, MODEL, POSITION, WORST


@dataclass(frozen=True, slots=True)
class Deleted:
    """Rows deleted: single positions, entries of the lists of worst positions, and rows of figures. `traces` says that
    SQLite's write-ahead log could not be emptied, and may hold what was deleted until it is written over."""

    positions: int
    worst: int
    figures: int
    traces: bool = False


def delete(
    database: Database, *, before: float | None, model: str | None, figures: bool = False, only_count: bool = False
) -> Deleted:
    """Deletes positions audited before a time (seconds since 1970; None for all) by a model (None for all).

    `figures` deletes the model's figures too, which hold no positions; it takes a model, and no time. Raises StoreError
    for a model that the database does not know. Content is overwritten in SQLite; in PostgreSQL it stays on disk until
    vacuuming reuses its place.
    """
    assert not figures or (model is not None and before is None)
    with database.writing() as connection:
        known = {number: name for number, name in connection.execute(sa.select(MODEL.c.id, MODEL.c.name))}
        ids = [number for number, name in known.items() if model in (None, name)]
        if model is not None and not ids:
            names = ", ".join(sorted(set(known.values()))) or "none"
            raise StoreError(f"the audit has no model {model!r}; there are {names}")
        counts: dict[str, int] = {}
        for table in (POSITION, WORST, CELL) if figures else (POSITION, WORST):
            chosen: list[sa.ColumnElement[bool]] = [table.c.model.in_(ids)]
            if before is not None:
                chosen.append(table.c.time < before)
            query = sa.select(sa.func.count()).select_from(table).where(*chosen)
            counts[table.name] = connection.execute(query).scalar_one()
            if not only_count:
                connection.execute(sa.delete(table).where(*chosen))
    traces = not only_count and database.dialect == SQLITE and not database.checkpointed()
    return Deleted(counts["position"], counts["worst"], counts.get("cell", 0), traces)
