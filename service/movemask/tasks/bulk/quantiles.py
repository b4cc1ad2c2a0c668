"""Exact quantiles of a table. The sketches of its cells bound the value at each rank, and a second pass over a column
keeps only the values within the bounds: a small part of one column, however long the table is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from movemask.leakage.causes import Cause
from movemask.leakage.kinds import KINDS, RAW
from movemask.numeric.ragged import Float
from movemask.store.cells import ALL, CAUSE, QUANTILES, Cell, Key
from movemask.store.sketch import rank_of
from movemask.tasks.bulk.columns import GROUP_COLUMNS, floats, members_of_table

_AT_ONCE = 100_000  # rows

Cells = dict[Key, Cell]


@dataclass(slots=True)
class _Rank:
    """A rank whose value lies between `low` and `high`. `below` counts the values below `low`; of those in between,
    the distinct ones are kept with their counts."""

    rank: int
    low: float
    high: float
    below: int = 0
    values: list[Float] = field(default_factory=list)
    counts: list[NDArray[np.intp]] = field(default_factory=list)

    def add(self, values: Float) -> None:
        self.below += int((values < self.low).sum())
        distinct, counts = np.unique(values[(values >= self.low) & (values <= self.high)], return_counts=True)
        self.values.append(distinct)
        self.counts.append(counts)

    def value(self) -> float:
        values, counts = np.concatenate(self.values), np.concatenate(self.counts)
        order = np.argsort(values, kind="stable")
        index = np.searchsorted(np.cumsum(counts[order]), self.rank - self.below)
        return float(values[order][index])


def exact(file: Path, models: Mapping[str, Cells]) -> dict[str, Cells]:
    """The cells of each network of a table, with exact quantiles."""
    result = {name: dict(cells) for name, cells in models.items()}
    with pq.ParquetFile(file) as table:
        existing = set(table.schema_arrow.names)
        for column in (*KINDS, *(f"cause_{cause.value}" for cause in Cause)):
            if column in existing:
                for (name, key), ranks in _ranks(table, column, models).items():
                    quantiles = {quantile: rank.value() for quantile, rank in ranks.items()}
                    result[name][key] = replace(result[name][key], exact=quantiles)
    return result


def _ranks(table: pq.ParquetFile, column: str, models: Mapping[str, Cells]) -> dict[tuple[str, Key], dict[str, _Rank]]:
    """The ranks of a column by network and cell, filled by one pass over the column."""
    by_cause = column.startswith("cause_")
    wanted = {
        (name, key): {of: _rank(cell, q) for of, q in QUANTILES.items()}
        for name, cells in models.items()
        for key, cell in cells.items()
        if cell.count and (key == _cause_key(column) if by_cause else key.kind == column and key.dimension != CAUSE)
    }
    if not wanted:
        return {}
    for batch in table.iter_batches(_AT_ONCE, columns=["model", column, *([] if by_cause else GROUP_COLUMNS)]):
        rows = pa.Table.from_batches([batch])
        for name in pc.unique(rows["model"]).to_pylist():
            rows_of_model = rows.filter(pc.equal(rows["model"], name))
            for key, values in _values(rows_of_model, column, by_cause):
                for rank in wanted.get((name, key), {}).values():
                    rank.add(values)
    return wanted


def _rank(cell: Cell, q: float) -> _Rank:
    rank = rank_of(q, cell.count)
    return _Rank(rank, *cell.sketch.around(rank))


def _cause_key(column: str) -> Key:
    return Key(RAW, CAUSE, column.removeprefix("cause_"))


def _values(rows: pa.Table, column: str, by_cause: bool) -> Iterator[tuple[Key, Float]]:
    """The measured values of a column, by the cells that they count in."""
    values = floats(rows[column])
    if by_cause:
        yield _cause_key(column), values[values > 0]
        return
    yield Key(column, ALL, ""), values[~np.isnan(values)]
    for dimension, groups in members_of_table(rows).items():
        for group, members in groups.items():
            of_group = values[members]
            yield Key(column, dimension, group), of_group[~np.isnan(of_group)]
