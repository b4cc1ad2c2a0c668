"""Columns of positions: taken in any order, and joined."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from movemask.columns import INDPTR, LAST_AXIS, RAGGED, SHARED, Columns


@dataclass(frozen=True, slots=True)
class Inner(Columns):
    numbers: NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class Outer(Columns):
    name: str = field(metadata=SHARED)
    planes: NDArray[np.intp] = field(metadata=LAST_AXIS)
    words: Sequence[str]
    inner: Inner
    by_name: dict[str, Inner]
    indptr: NDArray[np.intp] = field(metadata=INDPTR)
    values: NDArray[np.intp] = field(metadata=RAGGED)
    texts: Sequence[str] = field(metadata=RAGGED)


def outer(lengths: list[int], start: int = 0) -> Outer:
    numbers = np.arange(start, start + len(lengths))
    values = np.arange(sum(lengths)) + 1000 * start
    indptr = np.cumsum([0, *lengths])
    inner, by_name = Inner(numbers), {"a": Inner(-numbers)}
    return Outer(
        "x", np.stack([numbers, 2 * numbers]), [*map(str, numbers)], inner, by_name, indptr, values, [*map(str, values)]
    )


def positions(columns: Outer) -> list[Any]:
    """Each position with all that is known of it."""
    return [
        (
            columns.planes[:, row].tolist(),
            columns.words[row],
            columns.inner.numbers[row],
            columns.by_name["a"].numbers[row],
            columns.values[start:end].tolist(),
            list(columns.texts[start:end]),
        )
        for row, (start, end) in enumerate(zip(columns.indptr[:-1], columns.indptr[1:], strict=True))
    ]


LENGTHS = st.lists(st.integers(0, 3), min_size=1, max_size=6)


@given(LENGTHS, st.data())
def test_take_reorders_and_repeats(lengths: list[int], data: st.DataObject) -> None:
    keep = data.draw(st.lists(st.integers(0, len(lengths) - 1), max_size=8))
    whole = outer(lengths)
    assert positions(whole.rows(keep)) == [positions(whole)[row] for row in keep]


@given(st.lists(LENGTHS, min_size=1, max_size=3))
def test_join_keeps_order(parts: list[list[int]]) -> None:
    columns = [outer(lengths, 10 * number) for number, lengths in enumerate(parts)]
    assert positions(Outer.joined(columns)) == [one for part in columns for one in positions(part)]
