"""Batches for property tests: ragged rows of logits, among them rows of one, of 218, and empty ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray


@dataclass(frozen=True)
class Ragged:
    """values [N], indptr [B + 1], and the rows one by one."""

    rows: tuple[NDArray[np.float64], ...]

    @property
    def values(self) -> NDArray[np.float64]:
        return np.concatenate([*self.rows, np.empty(0)])

    @property
    def indptr(self) -> NDArray[np.intp]:
        return np.cumsum([0, *map(len, self.rows)]).astype(np.intp)

    def split(self, values: NDArray[Any]) -> list[NDArray[Any]]:
        """A result [N] row by row."""
        return np.split(values, self.indptr[1:-1])


def rows(
    low: float = -50.0, high: float = 50.0, *, empty: bool = True, longest: int = 12
) -> st.SearchStrategy[tuple[NDArray[np.float64], ...]]:
    """Between one and five rows."""
    row = st.lists(st.floats(low, high), min_size=0 if empty else 1, max_size=longest).map(np.array)
    return st.lists(row.map(lambda r: r.astype(np.float64)), min_size=1, max_size=5).map(tuple)


def ragged(
    low: float = -50.0, high: float = 50.0, *, empty: bool = True, longest: int = 12
) -> st.SearchStrategy[Ragged]:
    """Ragged batches."""
    return rows(low, high, empty=empty, longest=longest).map(Ragged)


def wide(seed: int = 0, scale: float = 5.0) -> Ragged:
    """218 moves, one move, none, thirty-one."""
    rng = np.random.default_rng(seed)
    return Ragged(tuple(rng.normal(size=n) * scale for n in (218, 1, 0, 31)))
