"""The summary of an audit: figures by network, kind and group, the worst positions, and thresholds.

DuckDB counts over the table in bounded memory. Sums are sums of integers and quantiles are exact, so the figures depend
neither on the order of the rows nor on the process that wrote them. DuckDB and pyarrow come with the extra `audit`, and
are imported in functions.
"""

from __future__ import annotations

import math
import re
import tempfile
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import accumulate, groupby
from typing import TYPE_CHECKING, Any, NamedTuple

from movemask.audit.files import Folder, is_uri
from movemask.errors import BulkError
from movemask.leakage.causes import Cause
from movemask.leakage.kinds import KINDS, MASK_BLIND, MULTIPLIED, RAW
from movemask.server.ledger.cells import ALL, CAUSE, QUANTILES, Cell, CellKey, rank_of
from movemask.server.ledger.entries import DIMENSIONS, groups

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection as Database

#: Kinds whose worst positions and distributions are in the report.
REPORT_KINDS = (RAW, MULTIPLIED)

#: Number of worst positions per kind.
_WORST = 20

#: Memory limit of the database; larger intermediate results go to disk.
_MEMORY = "1GB"

#: Bins per power of two, and the smallest power; smaller values share its first bin.
_BINS, _SMALLEST = 32, -960

#: A value is summed as an integer: the value times 2 ** (_SHIFT - its bin's power of two).
_SHIFT = 60


@dataclass(slots=True)
class ModelSummary:
    """The figures of one network."""

    name: str
    digest: str
    trained_with_mask: bool
    positions: int = 0
    cells: dict[CellKey, Cell] = field(default_factory=dict)
    worst: dict[str, list[dict[str, Any]]] = field(default_factory=dict)  # by kind: rows of the table
    histograms: dict[str, list[tuple[float, int]]] = field(default_factory=dict)  # by kind: bins' highest value, count
    of_games: int = 0  # positions that come from games; the others are single positions, from lists
    games: ModelSummary | None = None  # `raw` of the positions of games alone, if there are single positions too

    def of(self, kind: str, dimension: str = ALL, group: str = "") -> Cell:
        """The figures of a group; an empty cell if it has no positions."""
        return self.cells.get(CellKey(kind, dimension, group), Cell())

    def groups(self, dimension: str) -> list[str]:
        """The groups that have positions, in natural order; causes by falling mass."""
        present = {key.group for key in self.cells if key.dimension == dimension}
        if dimension == CAUSE:
            return sorted(present, key=lambda group: -self.of(RAW, CAUSE, group).sum)
        return [group for group in groups(dimension) if group in present]

    def as_json(self) -> dict[str, Any]:
        """The network's entry in `summary.json`."""
        kinds = [kind for kind in KINDS if CellKey(kind, ALL, "") in self.cells]
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


#: SQL for positions of games: only these have a move that was played.
_OF_GAMES = "played IS NOT NULL"

#: A query for the `raw` mass of each cause.
_CAUSE_COLUMNS = ", ".join(f"cause_{cause.value} AS '{cause.value}'" for cause in Cause)
_MASSES = (
    f"SELECT model, ['{CAUSE}'] AS dimensions, [group_name] AS group_names, value, false AS flipped, "
    f"false AS infinite FROM rows UNPIVOT (value FOR group_name IN ({_CAUSE_COLUMNS})) WHERE value > 0"
)

#: The columns that name a network's group.
_GROUP = "model, dimension, group_name"


class _Bin(NamedTuple):
    """The values of a group in one bin. `whole` times a power of two is their sum. Missing values have number None."""

    number: int | None
    size: int
    flips: int
    infinite: int
    least: float
    most: float
    whole: int


def summarised(kinds: Sequence[str], names: Sequence[str], table: Folder) -> list[ModelSummary]:
    """The networks of a table, a Parquet file, in the order of `names`."""
    with _opened(table) as database:
        heads = database.execute(
            "SELECT model, any_value(digest), any_value(trained_with_mask), count(*), count(played) "
            "FROM rows GROUP BY model"
        ).fetchall()
        summaries = {
            name: ModelSummary(name, digest, masked, count, of_games=of_games)
            for name, digest, masked, count, of_games in heads
        }
        group_names = f"['', phase, turn, in_check::VARCHAR, {_band('legal_moves')}, {_band('elo')}]"
        grouped = f"SELECT model, {[ALL, *DIMENSIONS]} AS dimensions, {group_names} AS group_names"
        for kind in kinds:
            flags = f"{kind}_flipped AS flipped, isinf({kind}_kl) AS infinite"
            _measure(database, kind, f"{grouped}, {kind} AS value, {flags} FROM rows", summaries)
            flags = f"false AS flipped, false AS infinite FROM rows WHERE isfinite({kind}_kl)"
            for (model, *group), bins in _bins(database, f"{grouped}, {kind}_kl AS value, {flags}"):
                summaries[model].cells[CellKey(kind, *group)].kl = _sum(bins)
            if kind in REPORT_KINDS:
                for summary in summaries.values():
                    summary.worst[kind] = _worst(database, kind, summary.name)
        _measure(database, RAW, _MASSES, summaries)
        mixed = {name: summary for name, summary in summaries.items() if 0 < summary.of_games < summary.positions}
        if mixed and RAW in kinds:
            for summary in mixed.values():
                summary.games = ModelSummary(
                    summary.name, summary.digest, summary.trained_with_mask, summary.of_games, of_games=summary.of_games
                )
            games = {name: summary.games for name, summary in mixed.items() if summary.games is not None}
            flags = f"{RAW}_flipped AS flipped, isinf({RAW}_kl) AS infinite"
            _measure(database, RAW, f"{grouped}, {RAW} AS value, {flags} FROM rows WHERE {_OF_GAMES}", games)
            _measure(database, RAW, f"{_MASSES} AND {_OF_GAMES}", games)
    return [summaries[name] for name in names if name in summaries]


@contextmanager
def _opened(table: Folder) -> Iterator[Database]:
    """A database with the table as `rows`."""
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
            yield database


def _binned(source: str) -> str:
    """A query with a row for each value and group, and the value's bin."""
    number = f"floor({_BINS} * log2(greatest(value, pow(2, {_SMALLEST}))))::INT"
    binned = f"SELECT *, CASE WHEN value IS NOT NULL THEN {number} END AS bin FROM ({source})"
    whole = f"(value * pow(2, {_SHIFT} - floor(bin / {_BINS})))::BIGINT AS whole"
    return (
        f"(SELECT * EXCLUDE (dimensions, group_names), unnest(dimensions) AS dimension, "
        f"unnest(group_names) AS group_name FROM (SELECT *, {whole} FROM ({binned})))"
    )


def _bins(database: Database, source: str) -> Iterator[tuple[tuple[str, str, str], list[_Bin]]]:
    """The bins of a query's column `value`, ascending, by network, dimension and group."""
    flags = "count(*) FILTER (flipped), count(*) FILTER (infinite)"
    rows = database.execute(
        f"SELECT {_GROUP}, bin, count(*), {flags}, min(value), max(value), sum(whole) FROM {_binned(source)} "
        f"GROUP BY {_GROUP}, bin ORDER BY {_GROUP}, bin"
    ).fetchall()
    for group, bins in groupby(rows, lambda row: row[:3]):
        yield group, [_Bin(*row[3:]) for row in bins]


def _sum(bins: Sequence[_Bin]) -> float:
    return math.fsum(whole * 2.0 ** (number // _BINS - _SHIFT) for number, *_, whole in bins if number is not None)


def _measure(database: Database, kind: str, source: str, summaries: dict[str, ModelSummary]) -> None:
    """Makes the cells of a query's column `value`, without the divergences.

    A quantile is in the bin that holds its rank. DuckDB sorts only the values of these bins, on disk.
    """
    wanted: list[dict[str, Any]] = []
    for (model, dimension, group), every in _bins(database, source):
        bins = [bin_ for bin_ in every if bin_.number is not None]
        flips, infinite = sum(bin_.flips for bin_ in every), sum(bin_.infinite for bin_ in every)
        ends = list(accumulate(bin_.size for bin_ in bins))
        count = ends[-1] if bins else 0
        cell = Cell(count, sum(bin_.size for bin_ in every) - count, flips, infinite, _sum(bins))
        summaries[model].cells[CellKey(kind, dimension, group)] = cell
        if not bins:
            continue
        cell.max = bins[-1].most
        if kind in REPORT_KINDS and dimension == ALL:
            summaries[model].histograms[kind] = [(bin_.most, bin_.size) for bin_ in bins]
        for name, q in QUANTILES.items():
            rank = rank_of(q, count)
            place = bisect_left(ends, rank)
            bin_ = bins[place]
            cell.quantiles[name] = bin_.most
            if bin_.least < bin_.most:
                row = {"model": model, "dimension": dimension, "group_name": group, "bin": bin_.number, "name": name}
                wanted.append({**row, "rank": rank - ends[place] + bin_.size})
    if wanted:
        import pyarrow as pa

        database.register("wanted", pa.Table.from_pylist(wanted))
        ranked = f"SELECT *, row_number() OVER (PARTITION BY {_GROUP}, bin ORDER BY value) AS rank"
        rows = database.execute(
            f"SELECT {_GROUP}, name, value FROM wanted JOIN ({ranked} FROM {_binned(source)} "
            f"SEMI JOIN wanted USING ({_GROUP}, bin)) USING ({_GROUP}, bin, rank)"
        ).fetchall()
        for model, dimension, group, name, value in rows:
            summaries[model].cells[CellKey(kind, dimension, group)].quantiles[name] = value


def _worst(database: Database, kind: str, model: str) -> list[dict[str, Any]]:
    """The rows with the most leakage, worst first, each position once."""
    columns = ", ".join(f"cause_{cause.value}" for cause in Cause)
    most = _WORST
    while True:
        rows = database.execute(
            f"SELECT * EXCLUDE ({columns}) FROM rows WHERE model = ? AND {kind} > 0 "
            f"ORDER BY {kind} DESC, fen, source, item, ply LIMIT {most}",
            [model],
        )
        names = [column[0] for column in rows.description or ()]
        fetched = [dict(zip(names, row, strict=True)) for row in rows.fetchall()]
        by_fen: dict[str, dict[str, Any]] = {}
        for row in fetched:
            by_fen.setdefault(row["fen"], row)
        if len(by_fen) >= _WORST or len(fetched) < most:
            return list(by_fen.values())[:_WORST]
        most *= 4


def _band(dimension: str) -> str:
    """SQL for the band of a number, such as `10-19`."""
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
    def read(cls, text: str, kinds: Sequence[str] = KINDS) -> Threshold:
        """Reads a threshold. Raises BulkError, which quotes it, also for a kind that is not measured."""
        match = re.fullmatch(r"([a-z0-9_]+)\.([a-z0-9_]+)=([-+.e0-9]+)", text.strip())
        try:
            value = math.nan if match is None else float(match[3])
            if match is None or match[1] not in KINDS or match[2] not in _STATISTICS or not math.isfinite(value):
                raise ValueError
        except ValueError:
            raise BulkError(
                f"--fail-above {text!r}: write KIND.STATISTIC=VALUE, such as raw.p99=0.1; "
                f"kinds: {', '.join(KINDS)}; statistics: {', '.join(_STATISTICS)}"
            ) from None
        if match[1] not in kinds:
            raise BulkError(f"--fail-above {text}: {match[1]} is not among --kinds {','.join(kinds)}")
        return cls(match[1], match[2], value)

    def __str__(self) -> str:
        return f"{self.kind}.{self.statistic}={self.value:g}"

    def applies(self, model: ModelSummary) -> bool:
        """Whether the kind has a meaning for the network."""
        return not (model.trained_with_mask and self.kind in MASK_BLIND)

    def statistic_of(self, model: ModelSummary) -> float | None:
        """A network's statistic; None if a position could not be measured, inf for a mean with infinite values."""
        figures = model.of(self.kind)
        if figures.unmeasured or not figures.count:
            return None
        if self.statistic == "mean_kl" and figures.infinite:
            return math.inf
        return float(figures.figures()[self.statistic])

    def exceeded(self, model: ModelSummary) -> bool:
        """Whether the check fails: the statistic is above the value, or could not be measured."""
        statistic = self.statistic_of(model)
        return self.applies(model) and (statistic is None or statistic > self.value)
