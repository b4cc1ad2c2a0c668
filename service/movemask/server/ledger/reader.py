"""`LedgerReader`: summaries of the stored figures, their history, the worst positions and single positions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import orjson
import sqlalchemy as sa

from movemask.leakage.cells import ALL, CAUSE, QUANTILES, Cell, Cells
from movemask.leakage.groups import groups
from movemask.leakage.kinds import ANSWER_KINDS, DERIVED, RAW, with_derived
from movemask.leakage.measure import Figure
from movemask.server.ledger.database import Database
from movemask.server.ledger.ledger import CELL_COLUMNS, EVER
from movemask.server.ledger.tables import CELL, MODEL, POSITION, WORST

#: The cells of a group, by kind of leakage.
CellsByKind = dict[str, Cell]

#: Fields of the API's `StoredPositionOut`, with a Figure by kind in `kinds`. Single positions have `id`.
StoredPosition = dict[str, Any]


def positions_of(kinds: CellsByKind) -> int:
    """Returns the number of positions in a group.

    It is that of the group's most measured kind, since some kinds are measured for a sample.
    """
    return max((cell.positions for cell in kinds.values()), default=0)


@dataclass(frozen=True, slots=True)
class Span:
    """A span of time in seconds since 1970, from `since` to just before `until`; None for no bound."""

    since: float | None = None
    until: float | None = None

    @property
    def everything(self) -> bool:
        return self.since is None and self.until is None


@dataclass(frozen=True, slots=True)
class Summary:
    """The figures of one model.

    digest : of the network whose figures they are: the one that answered last under this name, unless one is selected
    others : digests of the other networks that answered under this name, the latest first
    groups : the cells of each group of a dimension, if one was requested
    covered : start and end of the counted time, which may be wider than the requested span; None without a span
    """

    name: str
    digest: str
    trained_with_mask: bool
    kinds: CellsByKind
    others: tuple[str, ...] = ()
    groups: dict[str, CellsByKind] | None = None
    covered: tuple[int, int] | None = None

    @property
    def positions(self) -> int:
        """Number of recorded positions."""
        return positions_of(self.kinds)


@dataclass(frozen=True, slots=True)
class Bucket:
    """The figures of one span of a history: `seconds` from `start`, in seconds since 1970."""

    start: int
    seconds: int
    kinds: CellsByKind


class LedgerReader:
    """Reads what the recorder wrote. Every method raises LedgerError if the database cannot be read.

    `model` and `digest` select networks by name and file, and `span` a span of time.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def summaries(
        self,
        model: str | None = None,
        span: Span = Span(),
        digest: str | None = None,
        *,
        by: str | None = None,
    ) -> list[Summary]:
        """Returns summaries of one model or of all, in order of name.

        With `by`, they have the groups of that dimension too.

        Figures are stored in periods of ten minutes, an hour or a day. A period that overlaps the
        span counts in full.
        """
        with self._database.reading() as connection:
            summaries = []
            digests = _digests(connection)
            for row in connection.execute(_latest_models(model, digest)).all():
                kinds = _cells(connection, row.id, ALL, span).get("", {})
                groups = None
                if by is not None:
                    by_group = _cells(connection, row.id, by, span)
                    groups = {group: by_group[group] for group in _in_order(by, by_group)}
                if kinds or span.everything:
                    covered = None if span.everything else _covered(connection, row.id, span)
                    summaries.append(_summary(row, digests, kinds, groups, covered))
            return summaries

    def history(
        self, model: str | None, span: Span, digest: str | None = None, *, seconds: int
    ) -> list[tuple[Summary, list[Bucket]]]:
        """Returns the figures of each model in buckets of `seconds`, in order of time.

        Old figures are kept in longer buckets.

        The summaries name the models and have no figures.
        """
        with self._database.reading() as connection:
            histories = []
            digests = _digests(connection)
            for row in connection.execute(_latest_models(model, digest)).all():
                parts: dict[tuple[int, int], list[Any]] = defaultdict(list)
                query = _spans(row.id, ALL, span).with_only_columns(
                    CELL.c.tier, CELL.c.start, *CELL_COLUMNS
                )
                for tier, start, *cell in connection.execute(query):
                    length = max(seconds, tier)
                    parts[start // length * length, length].append(cell)
                buckets = [
                    Bucket(start, length, _by_group(cells)[""])
                    for (start, length), cells in sorted(parts.items())
                ]
                histories.append((_summary(row, digests, {}), buckets))
            return histories

    def worst(
        self,
        kind: str,
        limit: int,
        model: str | None = None,
        span: Span = Span(),
        digest: str | None = None,
    ) -> list[StoredPosition]:
        """Returns the positions with the most leakage of a kind, worst first.

        A span selects from the worst of all time.
        """
        query = _positions_of(WORST, model, span, digest).where(
            WORST.c.kind == DERIVED.get(kind, kind)
        )
        return self._stored(query.order_by(WORST.c.value.desc(), WORST.c.fen).limit(limit))

    def positions(
        self,
        limit: int,
        before: int | None = None,
        model: str | None = None,
        span: Span = Span(),
        digest: str | None = None,
    ) -> list[StoredPosition]:
        """Returns single positions, newest first. `before` is the `id` of the last position of the previous page."""
        query = _positions_of(POSITION, model, span, digest)
        if before is not None:
            query = query.where(POSITION.c.id < before)
        return self._stored(query.order_by(POSITION.c.id.desc()).limit(limit))

    def _stored(self, query: sa.Select[Any]) -> list[StoredPosition]:
        with self._database.reading() as connection:
            return [_stored_position(row) for row in connection.execute(query).mappings()]


def _positions_of(
    table: sa.Table, model: str | None, span: Span, digest: str | None
) -> sa.Select[Any]:
    """Returns a query for the positions of a table with their network."""
    query = sa.select(table, MODEL.c.name, MODEL.c.digest, MODEL.c.trained_with_mask).join(MODEL)
    return query.where(*_within(table.c.time, span), *_named(model, digest))


#: The networks of a name, the one that answered last first.
_LATEST_FIRST = MODEL.c.last_time.desc(), MODEL.c.id.desc()


def _latest_models(name: str | None, digest: str | None) -> sa.Select[Any]:
    """Returns a query for the network that answered last under each name: figures of two networks are never mixed."""
    place = sa.func.row_number().over(partition_by=MODEL.c.name, order_by=_LATEST_FIRST)
    ranked = sa.select(MODEL, place.label("place")).where(*_named(name, digest)).subquery()
    return sa.select(ranked).where(ranked.c.place == 1).order_by(ranked.c.name)


def _named(name: str | None, digest: str | None) -> list[sa.ColumnElement[bool]]:
    filters = ((MODEL.c.name, name), (MODEL.c.digest, digest))
    return [column == value for column, value in filters if value is not None]


def _digests(connection: sa.Connection) -> dict[str, list[str]]:
    """Returns the digests of the networks that answered under each name, the latest first."""
    digests: dict[str, list[str]] = defaultdict(list)
    for name, digest in connection.execute(
        sa.select(MODEL.c.name, MODEL.c.digest).order_by(*_LATEST_FIRST)
    ):
        digests[name].append(digest)
    return digests


def _summary(
    row: Any,
    digests: dict[str, list[str]],
    kinds: CellsByKind,
    groups: dict[str, CellsByKind] | None = None,
    covered: tuple[int, int] | None = None,
) -> Summary:
    """Returns the summary of a row of MODEL."""
    others = tuple(digest for digest in digests[row.name] if digest != row.digest)
    return Summary(row.name, row.digest, row.trained_with_mask, kinds, others, groups, covered)


def _spans(model: int, dimension: str, span: Span) -> sa.Select[Any]:
    """Returns a query for the cells of a model in the stored spans of time that overlap a span."""
    query = sa.select(CELL).where(
        CELL.c.model == model, CELL.c.dimension == dimension, CELL.c.tier != EVER
    )
    if span.since is not None:
        query = query.where(CELL.c.start + CELL.c.tier > span.since)
    if span.until is not None:
        query = query.where(CELL.c.start < span.until)
    return query


def _cells(
    connection: sa.Connection, model: int, dimension: str, span: Span
) -> dict[str, CellsByKind]:
    """Returns the cells of a model by group, added up over the stored spans of time."""
    query = _spans(model, dimension, span)
    if span.everything:
        query = sa.select(CELL).where(
            CELL.c.model == model, CELL.c.tier == EVER, CELL.c.dimension == dimension
        )
    return _by_group(connection.execute(query.with_only_columns(*CELL_COLUMNS)).all())


def _by_group(rows: Sequence[Any]) -> dict[str, CellsByKind]:
    """Returns the cells of database rows of one dimension, by group. Rows of the same group and kind are added up."""
    cells = Cells.of_rows(rows)
    groups: dict[str, CellsByKind] = defaultdict(dict)
    for key in cells.places:
        groups[key.group][key.kind] = cells[key]
    if any(key.dimension == CAUSE for key in cells.places):  # causes have the kind `raw` only
        return groups
    return {
        group: with_derived(kinds, _without_flips, _no_leakage(kinds))
        for group, kinds in groups.items()
    }


def _without_flips(cell: Cell) -> Cell:
    return replace(cell, flips=0)


def _no_leakage(kinds: CellsByKind) -> Cell:
    """Returns the cell of `served`: 0 for every position."""
    return Cell(positions_of(kinds), max=0.0, quantiles=dict.fromkeys(QUANTILES, 0.0))


def _covered(connection: sa.Connection, model: int, span: Span) -> tuple[int, int] | None:
    """Returns the start and end of the stored spans of time that overlap a span; None if there are none."""
    cells = _spans(model, ALL, span).subquery()
    bounds = sa.select(sa.func.min(cells.c.start), sa.func.max(cells.c.start + cells.c.tier))
    start, end = connection.execute(bounds).one()
    return None if start is None else (int(start), int(end))


def _in_order(by: str, cells: dict[str, CellsByKind]) -> Sequence[str]:
    """Returns the groups of a dimension in natural order; causes by mass, the largest first."""
    if by == CAUSE:
        return sorted(cells, key=lambda group: -cells[group][RAW].sum)
    return [group for group in groups(by) if group in cells]


def _within(time: sa.ColumnElement[float], span: Span) -> list[sa.ColumnElement[bool]]:
    bounds = []
    if span.since is not None:
        bounds.append(time >= span.since)
    if span.until is not None:
        bounds.append(time < span.until)
    return bounds


def _stored_position(row: sa.RowMapping) -> StoredPosition:
    """Returns a position from a row of POSITION or WORST with its network. `tables` describes the JSON in `leakage`."""
    measured, causes, illegal = orjson.loads(row["leakage"])
    figures = {kind: Figure(*figure) for kind, figure in measured.items()}
    kinds = with_derived(figures, lambda figure: replace(figure, flipped=False), Figure(0.0))
    return {
        **row,
        **{kind: kinds[kind].leaked for kind in ANSWER_KINDS},
        "model": row["name"],
        "kinds": kinds,
        "causes": causes,
        "illegal": [
            dict(zip(("uci", "probability", "cause"), move, strict=True)) for move in illegal
        ],
    }
