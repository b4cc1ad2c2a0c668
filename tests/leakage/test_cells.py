"""Cells of leakage figures: sums, quantiles, and the database's form."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from movemask.leakage.cells import QUANTILES, SMALLEST, Cell, CellKey, Cells
from tests.server.ledger.records import joined, record

EVERYTHING = CellKey("raw", "all", "")


values = st.lists(st.floats(SMALLEST, 1.0) | st.just(0.0), min_size=1, max_size=200)


def nearest_rank(sample: list[float], q: float) -> float:
    """By its definition: the smallest value that at least the share `q` of all do not exceed."""
    return min(
        one for one in sample if Fraction(sum(other <= one for other in sample), len(sample)) >= Fraction(str(q))
    )


def cell(sample: Sequence[float]) -> Cell:
    """The cell of all positions with these leakages."""
    (table,) = joined([record(value) for value in sample])
    return table.cells()[EVERYTHING]


def told_safely(cell_of_sample: Cell, sample: list[float]) -> bool:
    """Whether every quantile is the true one or up to 2 % above it."""
    true = {name: nearest_rank(sample, q) for name, q in QUANTILES.items()}
    return all(
        true[name] <= (value or 0.0) <= 1.02 * true[name] * (1 + 1e-12)
        for name, value in cell_of_sample.quantiles.items()
    )


@given(st.lists(st.floats(SMALLEST, 1.0) | st.just(0.0), min_size=1, max_size=99))
def test_p99_of_under_100_values_is_their_maximum(sample: list[float]) -> None:
    figures = cell(sample).figures()
    assert figures["p99"] == figures["p999"] == max(sample)


@given(st.lists(values, min_size=1, max_size=5))
def test_rows_of_parts_add_up(parts: list[list[float]]) -> None:
    everything = [value for part in parts for value in part]
    parts_cells = [table.cells() for part in parts for table in joined([record(value) for value in part])]
    whole = cell(everything)
    one = Cells.of_rows([row for one in parts_cells for row in one.rows()])[EVERYTHING]
    assert (one.count, one.max, one.flips, one.quantiles) == (whole.count, whole.max, whole.flips, whole.quantiles)
    assert one.sum == pytest.approx(sum(everything))
    assert one.kl == pytest.approx(sum(everything))
    assert told_safely(one, everything)


@given(values, st.integers(0, 40))
def test_cells_survive_database_round_trip(sample: list[float], doublings: int) -> None:
    (table,) = joined([record(value) for value in sample])
    cells = table.cells()
    for _ in range(doublings):
        cells = Cells.of_rows([*cells.rows(), *cells.rows()])
    again = Cells.of_rows(cells.rows())
    assert again.rows() == cells.rows()
    assert again[EVERYTHING].count == len(sample) * 2**doublings
    assert again[EVERYTHING].quantiles == cell(sample).quantiles


def test_cells_of_empty_zero_and_invalid_figures() -> None:
    assert cell([0.0] * 3).quantiles["p99"] == 0.0
    assert cell([1e-300]).quantiles["p50"] == 0.0
    assert cell([1 + 1e-15]).quantiles["p50"] == 1 + 1e-15  # the last digit of a sum
    (table,) = joined([record(None)])
    assert table.cells()[EVERYTHING].quantiles["p50"] is None
    for bad in (-1e-9, float("inf")):
        with pytest.raises(ValueError, match="no probability"):
            cell([0.5, bad])
