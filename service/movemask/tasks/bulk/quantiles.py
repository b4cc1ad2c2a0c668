"""Exact quantiles of a table: its cells' sketches say between which values each rank lies, and one more reading of a
column keeps only those. So memory holds a small part of one column, however long the table is.
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
    """A rank that is looked for: its value lies between `low` and `high`, `below` of the values seen so far are less
    than `low`, and of those between, each distinct value is kept with how often it was seen."""

    rank: int
    low: float
    high: float
    below: int = 0
    values: list[Float] = field(default_factory=list)
    counts: list[NDArray[np.intp]] = field(default_factory=list)

    def add(self, values: Float) -> None:
        self.below += int((values < self.low).sum())
        found, counts = np.unique(values[(values >= self.low) & (values <= self.high)], return_counts=True)
        self.values.append(found)
        self.counts.append(counts)

    def value(self) -> float:
        values, counts = np.concatenate(self.values), np.concatenate(self.counts)
        order = np.argsort(values, kind="stable")
        place = np.searchsorted(np.cumsum(counts[order]), self.rank - self.below)
        return float(values[order][place])


def exact(file: Path, models: Mapping[str, Cells]) -> dict[str, Cells]:
    """The cells of each network of a table, with exact quantiles."""
    found = {name: dict(cells) for name, cells in models.items()}
    with pq.ParquetFile(file) as table:
        there = set(table.schema_arrow.names)
        for column in (*KINDS, *(f"cause_{cause.value}" for cause in Cause)):
            if column in there:
                for (name, key), ranks in _ranks(table, column, models).items():
                    quantiles = {of: rank.value() for of, rank in ranks.items()}
                    found[name][key] = replace(found[name][key], exact=quantiles)
    return found


def _ranks(table: pq.ParquetFile, column: str, models: Mapping[str, Cells]) -> dict[tuple[str, Key], dict[str, _Rank]]:
    """What is looked for in a column, and all that one reading of it finds."""
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
            own = rows.filter(pc.equal(rows["model"], name))
            for key, values in _values(own, column, by_cause):
                for rank in wanted.get((name, key), {}).values():
                    rank.add(values)
    return wanted


def _rank(cell: Cell, q: float) -> _Rank:
    rank = rank_of(q, cell.count)
    return _Rank(rank, *cell.sketch.around(rank))


def _cause_key(column: str) -> Key:
    return Key(RAW, CAUSE, column.removeprefix("cause_"))


def _values(rows: pa.Table, column: str, by_cause: bool) -> Iterator[tuple[Key, Float]]:
    """The measured values of each cell that a column's rows are counted in."""
    values = floats(rows[column])
    if by_cause:
        yield _cause_key(column), values[values > 0]
        return
    yield Key(column, ALL, ""), values[~np.isnan(values)]
    for dimension, groups in members_of_table(rows).items():
        for group, places in groups.items():
            own = values[places]
            yield Key(column, dimension, group), own[~np.isnan(own)]
