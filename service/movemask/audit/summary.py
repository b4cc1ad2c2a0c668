"""The summary of an audit: its figures by network, kind and group, the worst positions, and thresholds on them.

DuckDB counts over the table, in bounded memory. Sums and quantiles are exact, so they do not depend on the order of the
rows or on who wrote them.
"""

from __future__ import annotations

import math
import re
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from movemask.audit.files import Folder, is_uri
from movemask.errors import AuditError
from movemask.leakage.causes import Cause
from movemask.leakage.kinds import KINDS, MASK_BLIND, MULTIPLIED, RAW
from movemask.leakage.table import DIMENSIONS, groups
from movemask.store.cells import ALL, CAUSE, QUANTILES, Key

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
_SMALLEST = -970


@dataclass(slots=True)
class Figures:
    """Figures of one kind over one group of positions.

    count, unmeasured : positions that were measured, and that could not be
    flips, infinite : measured positions where the mistake changes the top move, and where the divergence is infinite
    sum, max : of what leaked
    kl : sum of the finite divergences, in nats
    quantiles : by name, the smallest value that at least this share of the positions do not exceed
    histogram : bins of nearly equal values, each with its largest and its count
    """

    count: int = 0
    unmeasured: int = 0
    flips: int = 0
    infinite: int = 0
    sum: float = 0.0
    max: float | None = None
    kl: float = 0.0
    quantiles: dict[str, float | None] = field(default_factory=lambda: dict.fromkeys(QUANTILES))
    histogram: list[tuple[float, int]] = field(default_factory=list)

    @property
    def positions(self) -> int:
        """Positions, measured or not."""
        return self.count + self.unmeasured

    @property
    def mean(self) -> float | None:
        return self.sum / self.count if self.count else None

    @property
    def mean_kl(self) -> float | None:
        """Mean of the finite divergences; None if there are none."""
        finite = self.count - self.infinite
        return self.kl / finite if finite else None

    def of_mass(self) -> dict[str, Any]:
        """The figures of a cause, by name: a part of the `raw` mass of a position has no top move and no divergence."""
        return {"count": self.count, "mean": self.mean, "max": self.max, **self.quantiles}

    def by_name(self) -> dict[str, Any]:
        """Figures by name, as reported."""
        return {
            "count": self.count,
            "unmeasured": self.unmeasured,
            **self.of_mass(),
            "flips": self.flips,
            "mean_kl": self.mean_kl,
            "infinite_kl": self.infinite,
        }


@dataclass(slots=True)
class ModelSummary:
    """The figures of one network."""

    name: str
    digest: str
    trained_with_mask: bool
    positions: int = 0
    figures: dict[Key, Figures] = field(default_factory=dict)
    worst: dict[str, list[dict[str, Any]]] = field(default_factory=dict)  # rows of the table, by kind

    def of(self, kind: str, dimension: str = ALL, group: str = "") -> Figures:
        """Figures; empty ones if there are no positions."""
        return self.figures.get(Key(kind, dimension, group), Figures())

    def groups(self, dimension: str) -> list[str]:
        """The groups that have positions, in natural order; causes by mass."""
        present = {key.group for key in self.figures if key.dimension == dimension}
        if dimension == CAUSE:
            return sorted(present, key=lambda group: -self.of(RAW, CAUSE, group).sum)
        return [group for group in groups(dimension) if group in present]

    def as_json(self) -> dict[str, Any]:
        """The network's entry in `summary.json`."""
        kinds = [kind for kind in KINDS if Key(kind, ALL, "") in self.figures]
        by: dict[str, Any] = {}
        for dimension in DIMENSIONS:
            by[dimension] = {
                group: {kind: self.of(kind, dimension, group).by_name() for kind in kinds}
                for group in self.groups(dimension)
            }
        total = self.of(RAW).sum
        by[CAUSE] = {
            group: {
                "share": self.of(RAW, CAUSE, group).sum / total if total else None,
                RAW: self.of(RAW, CAUSE, group).of_mass(),
            }
            for group in self.groups(CAUSE)
        }
        return {
            "digest": self.digest,
            "trained_with_mask": self.trained_with_mask,
            "positions": self.positions,
            "kinds": {kind: self.of(kind).by_name() for kind in kinds},
            "by": by,
            "worst": self.worst,
        }


#: By name.
Models = dict[str, ModelSummary]


def summarised(kinds: Sequence[str], names: Sequence[str], table: Folder) -> list[ModelSummary]:
    """The networks of a table, one Parquet file or a folder of them, in the order of `names`."""
    with _opened(table) as database:
        heads = database.execute(
            "SELECT model, any_value(digest), any_value(trained_with_mask), count(*) FROM positions GROUP BY model"
        ).fetchall()
        found = {head[0]: ModelSummary(*head) for head in heads}
        for kind in kinds:
            _count(database, kind, found)
            if kind in SHOWN or any(model.of(kind).max for model in found.values()):
                _measure(database, f"SELECT *, {kind} AS value FROM positions", kind, _EVERY, found)
            _bin(database, f"SELECT *, {kind}_kl AS value FROM positions", _EVERY)
            for model, key, _, total, _ in _sums(database, kind, _EVERY):
                found[model].figures[key].kl = total
        causes = ", ".join(f"cause_{cause.value} AS '{cause.value}'" for cause in Cause)
        masses = f"SELECT * FROM positions UNPIVOT (value FOR _{CAUSE} IN ({causes})) WHERE value > 0"
        _measure(database, masses, RAW, (CAUSE,), found)
        for kind in (kind for kind in SHOWN if kind in kinds):
            for summary in found.values():
                summary.worst[kind] = _worst(database, kind, summary.name)
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
                files = [table] if table.name.endswith(".parquet") else [table / name for name in table.names()]
                database.read_parquet([str(file) for file in files]).create_view("rows")
            database.execute(
                "CREATE VIEW positions AS SELECT *, phase AS _phase, turn AS _side, in_check::VARCHAR AS _in_check, "
                f"{_band('legal_moves')} AS _legal_moves, {_band('elo')} AS _elo FROM rows"
            )
            yield database


#: The dimensions of positions; each of the others has a column of groups, `_phase` and so on.
_EVERY = (ALL, *DIMENSIONS)


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


def _count(database: Database, kind: str, found: Models) -> None:
    conditions = (f"{kind} IS NOT NULL", f"{kind} IS NULL", f"{kind}_flipped", f"isinf({kind}_kl)")
    counts = ", ".join((*(f"count(*) FILTER ({condition})" for condition in conditions), f"max({kind})"))
    for model, key, row in _rows(database, kind, _EVERY, counts, f"FROM positions {_sets(_EVERY)}"):
        count, unmeasured, flips, infinite, most = row
        figures = Figures(count, unmeasured, flips, infinite, max=most)
        found[model].figures[key] = figures
        if most == 0:
            figures.quantiles = dict.fromkeys(QUANTILES, 0.0)


def _bin(database: Database, source: str, dimensions: Sequence[str]) -> None:
    """Makes of the column `value` of a query, null where not measured, the view `measured` with the bin of each value,
    and the table `bins` with counts, bounds and exact sums.

    A bin holds values of one exponent, so that these are whole multiples of one power of two, and can be summed as
    integers."""
    columns = ", ".join(("model", *_columns(dimensions)))
    database.execute(
        f"CREATE OR REPLACE TEMP VIEW measured AS SELECT {columns}, value, "
        f"CASE WHEN value > 0 THEN floor({_BINS} * log2(value)) ELSE -99999 END::INT AS bin "
        f"FROM ({source}) WHERE isfinite(value)"
    )
    database.execute(
        f"CREATE OR REPLACE TEMP TABLE bins AS SELECT {columns}, bin, exponent, count(*) AS size, min(value) AS least, "
        "max(value) AS most, sum((value * pow(2, 53 - exponent))::HUGEINT) AS total "
        f"FROM (SELECT *, greatest({_SMALLEST}, floor(bin / {_BINS}))::INT AS exponent FROM measured) "
        f"{_sets(dimensions, 'bin', 'exponent')}"
    )


def _sums(database: Database, kind: str, dimensions: Sequence[str]) -> Iterator[tuple[str, Key, int, float, float]]:
    """Network, cell, count, sum and maximum of the values in `bins`."""
    cells: dict[tuple[str, Key], list[list[Any]]] = {}
    sums = "exponent, sum(total), sum(size), max(most)"
    for model, key, row in _rows(database, kind, dimensions, sums, "FROM bins GROUP BY ALL"):
        cells.setdefault((model, key), []).append(row)
    for (model, key), rows in cells.items():
        total = sum(int(total) << exponent - _SMALLEST for exponent, total, _, _ in rows)
        yield model, key, int(sum(row[2] for row in rows)), total / (1 << 53 - _SMALLEST), max(row[3] for row in rows)


def _measure(database: Database, source: str, kind: str, dimensions: Sequence[str], found: Models) -> None:
    """Adds sums, maxima and quantiles of the column `value` of a query."""
    _bin(database, source, dimensions)
    for model, key, count, total, most in _sums(database, kind, dimensions):
        figures = found[model].figures.setdefault(key, Figures(count))
        figures.sum, figures.max = total, most
    columns = _columns(dimensions)
    cell = ", ".join(("model", *columns))
    shares = ", ".join(
        f"('{name}', {share.numerator}, {share.denominator})"
        for name, share in ((name, Fraction(str(q))) for name, q in QUANTILES.items())
    )
    # The bin that holds each rank, and the rank in it.
    database.execute(
        "CREATE OR REPLACE TEMP TABLE wanted AS SELECT *, row_number() OVER () AS place FROM ("
        f"SELECT {cell}, bin, size, least, most, name, "
        "greatest(1, (count * numerator + denominator - 1) // denominator) - (upto - size) AS rank FROM ("
        f"SELECT *, (sum(size) OVER (PARTITION BY {cell} ORDER BY bin))::BIGINT AS upto, "
        f"(sum(size) OVER (PARTITION BY {cell}))::BIGINT AS count FROM bins"
        f"), (VALUES {shares}) AS shares(name, numerator, denominator)) WHERE rank BETWEEN 1 AND size"
    )
    same = "".join(f" AND ({column} IS NULL OR {column} = in{column})" for column in columns)
    renamed = "".join(f", {column} AS in{column}" for column in columns)
    for rest in (
        "FROM (SELECT *, most AS value FROM wanted WHERE least = most)",
        f"FROM (SELECT {cell}, name, value FROM (SELECT * FROM wanted WHERE least < most) AS wanted "
        f"JOIN (SELECT model AS in_model, bin AS in_bin, value{renamed} FROM measured) "
        f"ON model = in_model AND bin = in_bin{same} "
        "QUALIFY row_number() OVER (PARTITION BY place ORDER BY value) = rank)",
    ):
        for model, key, (name, value) in _rows(database, kind, dimensions, "name, value", rest):
            found[model].figures[key].quantiles[name] = value
    if kind in SHOWN and ALL in dimensions:
        for model, key, (most, size) in _rows(database, kind, dimensions, "most, size", "FROM bins"):
            if key.dimension == ALL:
                found[model].figures[key].histogram.append((most, size))


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
        return float(figures.by_name()[self.statistic])

    def exceeded(self, model: ModelSummary) -> bool:
        """Whether the check fails for the network: the statistic is above the value, or could not be measured."""
        found = self.found(model)
        return self.applies(model) and (found is None or found > self.value)


def checked(thresholds: Iterable[Threshold], kinds: Sequence[str]) -> None:
    """Raises AuditError for a threshold on a kind that is not measured: it would never fail."""
    for threshold in thresholds:
        if threshold.kind not in kinds:
            raise AuditError(f"--fail-above {threshold}: {threshold.kind} is not among --kinds {','.join(kinds)}")
