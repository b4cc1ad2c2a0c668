"""The summary of an audit: its figures by network, kind and group, the worst positions, and thresholds on them.

DuckDB counts over the table, in bounded memory. Sums and quantiles are exact, so they do not depend on the order of the
rows or on who wrote them.
"""

from __future__ import annotations

import math
import re
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from movemask.audit.files import Folder, is_uri
from movemask.errors import AuditError
from movemask.leakage.causes import Cause
from movemask.leakage.kinds import KINDS, MASK_BLIND, MULTIPLIED, RAW
from movemask.leakage.table import DIMENSIONS, groups
from movemask.store.cells import ALL, CAUSE, QUANTILES, Cell, Key, rank_of

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection as Database

#: Kinds whose worst positions and distributions are shown.
SHOWN = (RAW, MULTIPLIED)

#: Positions shown for each of them.
WORST = 20

#: Memory of the database; what needs more is on disk.
_MEMORY = "1GB"

#: Bins of a histogram for each power of two.
_BINS = 32

#: The smallest exponent that is summed by itself: beyond it, a power of two would overflow.
_SMALLEST = -960

#: A value of an exponent is a whole number times 2 ** (exponent - this).
_SHIFT = 53


@dataclass(slots=True)
class ModelSummary:
    """The figures of one network."""

    name: str
    digest: str
    trained_with_mask: bool
    positions: int = 0
    cells: dict[Key, Cell] = field(default_factory=dict)
    worst: dict[str, list[dict[str, Any]]] = field(default_factory=dict)  # rows of the table, by kind
    histograms: dict[str, list[tuple[float, int]]] = field(default_factory=dict)  # by kind: highest value and count

    def of(self, kind: str, dimension: str = ALL, group: str = "") -> Cell:
        """The figures of a group; empty ones if there are no positions."""
        return self.cells.get(Key(kind, dimension, group), Cell())

    def groups(self, dimension: str) -> list[str]:
        """The groups that have positions, in natural order; causes by mass."""
        present = {key.group for key in self.cells if key.dimension == dimension}
        if dimension == CAUSE:
            return sorted(present, key=lambda group: -self.of(RAW, CAUSE, group).sum)
        return [group for group in groups(dimension) if group in present]

    def as_json(self) -> dict[str, Any]:
        """The network's entry in `summary.json`."""
        kinds = [kind for kind in KINDS if Key(kind, ALL, "") in self.cells]
        by: dict[str, Any] = {}
        for dimension in DIMENSIONS:
            by[dimension] = {
                group: {kind: self.of(kind, dimension, group).figures() for kind in kinds}
                for group in self.groups(dimension)
            }
        total = self.of(RAW).sum
        by[CAUSE] = {
            group: {
                "share": self.of(RAW, CAUSE, group).sum / total if total else None,
                RAW: self.of(RAW, CAUSE, group).mass_figures(),
            }
            for group in self.groups(CAUSE)
        }
        return {
            "digest": self.digest,
            "trained_with_mask": self.trained_with_mask,
            "positions": self.positions,
            "kinds": {kind: self.of(kind).figures() for kind in kinds},
            "by": by,
            "worst": self.worst,
        }


#: The dimensions of positions; each of the others has a column of groups, `_phase` and so on.
_EVERY = (ALL, *DIMENSIONS)

#: By name.
Models = dict[str, ModelSummary]


def summarised(kinds: Sequence[str], names: Sequence[str], table: Folder) -> list[ModelSummary]:
    """The networks of a table, a Parquet file, in the order of `names`."""
    with _opened(table) as database:
        heads = database.execute(
            "SELECT model, any_value(digest), any_value(trained_with_mask), count(*) FROM positions GROUP BY model"
        ).fetchall()
        found = {head[0]: ModelSummary(*head) for head in heads}
        for kind in kinds:
            source = f"SELECT *, {kind} AS value FROM positions"
            _count(database, kind, source, found)
            for model, key, total in _sums(database, kind, f"SELECT *, {kind}_kl AS value FROM positions"):
                found[model].cells[key].kl = total
            _measure(database, kind, source, _EVERY, found)
            if kind in SHOWN:
                for summary in found.values():
                    summary.worst[kind] = _worst(database, kind, summary.name)
        causes = ", ".join(f"cause_{cause.value} AS '{cause.value}'" for cause in Cause)
        masses = f"SELECT * FROM positions UNPIVOT (value FOR _{CAUSE} IN ({causes})) WHERE value > 0"
        counted = f"FROM ({masses}) {_sets((CAUSE,))}"
        for model, key, (count, most) in _rows(database, RAW, (CAUSE,), "count(*), max(value)", counted):
            found[model].cells[key] = Cell(count, max=most)
        _measure(database, RAW, masses, (CAUSE,), found)
    return [found[name] for name in names if name in found]


@contextmanager
def _opened(table: Folder) -> Iterator[Database]:
    """A database with the table as `positions`, and in it a column of groups for each dimension."""
    import duckdb

    with tempfile.TemporaryDirectory(prefix="movemask-") as folder:
        config: dict[str, Any] = {"memory_limit": _MEMORY, "temp_directory": folder, "preserve_insertion_order": False}
        with duckdb.connect(config=config) as database:
            if is_uri(table.name):
                import pyarrow.dataset as ds

                system, path = table.place
                database.register("rows", ds.dataset(path, filesystem=system))
            else:
                database.read_parquet(table.name).create_view("rows")
            database.execute(
                "CREATE VIEW positions AS SELECT *, phase AS _phase, turn AS _side, in_check::VARCHAR AS _in_check, "
                f"{_band('legal_moves')} AS _legal_moves, {_band('elo')} AS _elo FROM rows"
            )
            yield database


def _sets(dimensions: Sequence[str], *columns: str) -> str:
    """Groups rows by network, by the groups of each dimension in turn, and by these columns."""
    sets = [", ".join(("model", *_columns([dimension]), *columns)) for dimension in dimensions]
    return f"GROUP BY GROUPING SETS ({', '.join(f'({one})' for one in sets)})"


def _columns(dimensions: Sequence[str]) -> list[str]:
    return [f"_{dimension}" for dimension in dimensions if dimension != ALL]


def _rows(
    database: Database, kind: str, dimensions: Sequence[str], columns: str, rest: str
) -> Iterator[tuple[str, Key, list[Any]]]:
    """Network, cell and `columns` of each row of a query by groups: at most one of these is set in each row."""
    groups_of = _columns(dimensions)
    rows = database.execute(f"SELECT {', '.join(('model', *groups_of, columns))} {rest}").fetchall()
    for model, *row in rows:
        key = Key(kind, ALL, "")
        for column, group in zip(groups_of, row, strict=False):
            key = key if group is None else Key(kind, column[1:], group)
        yield model, key, row[len(groups_of) :]


def _count(database: Database, kind: str, source: str, found: Models) -> None:
    """Makes the cells of the column `value` of a query: everything but sums and quantiles."""
    conditions = ("value IS NOT NULL", "value IS NULL", f"{kind}_flipped", f"isinf({kind}_kl)")
    counts = ", ".join((*(f"count(*) FILTER ({condition})" for condition in conditions), "max(value)"))
    for model, key, row in _rows(database, kind, _EVERY, counts, f"FROM ({source}) {_sets(_EVERY)}"):
        count, unmeasured, flips, infinite, most = row
        found[model].cells[key] = Cell(count, unmeasured, flips, infinite, max=most)


def _sums(
    database: Database, kind: str, source: str, dimensions: Sequence[str] = _EVERY
) -> Iterator[tuple[str, Key, float]]:
    """Network, cell and exact sum of the column `value` of a query. Values of a like size are whole multiples of one
    power of two, and are summed as integers."""
    exponents = f"greatest({_SMALLEST}, 32 * floor(log2(value) / 32))::INT"
    positive = f"(SELECT *, {exponents} AS exponent FROM ({source}) WHERE value > 0 AND isfinite(value))"
    sums = f"exponent, sum((value * pow(2, {_SHIFT} - exponent))::HUGEINT)"
    totals: dict[tuple[str, Key], int] = defaultdict(int)
    query = f"FROM {positive} {_sets(dimensions, 'exponent')}"
    for model, key, (exponent, total) in _rows(database, kind, dimensions, sums, query):
        totals[model, key] += int(total) << exponent - _SMALLEST
    for (model, key), whole in totals.items():
        yield model, key, whole / (1 << _SHIFT - _SMALLEST)


def _measure(database: Database, kind: str, source: str, dimensions: Sequence[str], found: Models) -> None:
    """Adds sums and quantiles of the column `value` of a query to the cells. A quantile is sought in the bin that holds
    its rank: only the values of such bins are sorted, which DuckDB does on disk."""
    for model, key, total in _sums(database, kind, source, dimensions):
        found[model].cells[key].sum = total
    binned = (
        f"(SELECT *, CASE WHEN value > 0 THEN floor({_BINS} * log2(value)) ELSE -99999 END::INT AS bin "
        f"FROM ({source}) WHERE value IS NOT NULL)"
    )
    bins: dict[tuple[str, Key], list[list[Any]]] = defaultdict(list)
    query = f"FROM {binned} {_sets(dimensions, 'bin')} ORDER BY bin"
    for model, key, row in _rows(database, kind, dimensions, "bin, count(*), min(value), max(value)", query):
        bins[model, key].append(row)
    wanted: dict[str, dict[tuple[str, Key, int, int], list[str]]] = defaultdict(lambda: defaultdict(list))
    for (model, key), rows in bins.items():
        if kind in SHOWN and key.dimension == ALL:
            found[model].histograms[kind] = [(most, size) for _, size, _, most in rows]
        ends = np.cumsum([size for _, size, *_ in rows])
        for name, q in QUANTILES.items():
            rank = rank_of(q, int(ends[-1]))
            place = int(np.searchsorted(ends, rank))
            bin_, size, least, most = rows[place]
            found[model].cells[key].quantiles[name] = most
            if least < most:
                wanted[key.dimension][model, key, bin_, rank - int(ends[place]) + size].append(name)
    for dimension, ranks in wanted.items():
        group = ", ".join(("model", *_columns([dimension]), "bin"))
        some_bins, some_ranks = (", ".join({str(one[place]) for one in ranks}) for place in (2, 3))
        query = (
            f"FROM (SELECT {group}, value, row_number() OVER (PARTITION BY {group} ORDER BY value) AS rank "
            f"FROM {binned} WHERE bin IN ({some_bins})) WHERE rank IN ({some_ranks})"
        )
        for model, key, (bin_, rank, value) in _rows(database, kind, [dimension], "bin, rank, value", query):
            for name in ranks.get((model, key, bin_, rank), ()):
                found[model].cells[key].quantiles[name] = value


def _worst(database: Database, kind: str, model: str) -> list[dict[str, Any]]:
    """The rows where most leaks, each position once, worst first."""
    columns = ", ".join(f"cause_{cause.value}" for cause in Cause)
    most = WORST
    while True:
        rows = database.execute(
            f"SELECT * EXCLUDE ({columns}) FROM rows WHERE model = ? AND {kind} > 0 "
            f"ORDER BY {kind} DESC, fen, source, item, ply LIMIT {most}",
            [model],
        )
        names = [column[0] for column in rows.description or ()]
        found = [dict(zip(names, row, strict=True)) for row in rows.fetchall()]
        best: dict[str, dict[str, Any]] = {}
        for row in found:
            best.setdefault(row["fen"], row)
        if len(best) >= WORST or len(found) < most:
            return list(best.values())[:WORST]
        most *= 4


def _band(dimension: str) -> str:
    """The group of a number, such as `10-19`."""
    bands = [(re.match(r"\d+", name), name) for name in reversed(groups(dimension))]
    cases = " ".join(f"WHEN {dimension} >= {start[0]} THEN '{name}'" for start, name in bands if start)
    return f"CASE {cases} ELSE 'unknown' END"


_STATISTICS = ("mean", "max", *QUANTILES, "mean_kl", "flips", "infinite_kl")


@dataclass(frozen=True, slots=True)
class Threshold:
    """`KIND.STATISTIC=VALUE`: a check fails if the statistic is above the value."""

    kind: str
    statistic: str
    value: float

    @classmethod
    def read(cls, text: str) -> Threshold:
        """From its text; raises AuditError that names it."""
        found = re.fullmatch(r"([a-z0-9_]+)\.([a-z0-9_]+)=([-+.e0-9]+)", text.strip())
        try:
            value = math.nan if found is None else float(found[3])
            if found is None or found[1] not in KINDS or found[2] not in _STATISTICS or not math.isfinite(value):
                raise ValueError
            return cls(found[1], found[2], value)
        except ValueError:
            raise AuditError(
                f"--fail-above {text!r}: write KIND.STATISTIC=VALUE, such as raw.p99=0.1; "
                f"kinds: {', '.join(KINDS)}; statistics: {', '.join(_STATISTICS)}"
            ) from None

    def __str__(self) -> str:
        return f"{self.kind}.{self.statistic}={self.value:g}"

    def applies(self, model: ModelSummary) -> bool:
        """Whether the kind means anything for the network."""
        return not (model.trained_with_mask and self.kind in MASK_BLIND)

    def found(self, model: ModelSummary) -> float | None:
        """The statistic; None if any position could not be measured, inf for the mean of divergences that are."""
        figures = model.of(self.kind)
        if figures.unmeasured or not figures.count:
            return None
        if self.statistic == "mean_kl" and figures.infinite:
            return math.inf
        return float(figures.figures()[self.statistic])

    def exceeded(self, model: ModelSummary) -> bool:
        """Whether the check fails for the network: the statistic is above the value, or could not be measured."""
        found = self.found(model)
        return self.applies(model) and (found is None or found > self.value)


def checked(thresholds: Iterable[Threshold], kinds: Sequence[str]) -> None:
    """Raises AuditError for a threshold on a kind that is not measured: it would never fail."""
    for threshold in thresholds:
        if threshold.kind not in kinds:
            raise AuditError(f"--fail-above {threshold}: {threshold.kind} is not among --kinds {','.join(kinds)}")
