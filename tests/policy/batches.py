"""Batches for property tests: ragged rows of logits, among them rows of one, of 218, and empty ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from movemask.policy import normalisation

#: Values of the parameters that a normaliser may need.
PARAMETERS = {"alpha": 1.3}


def _probabilities(kernel: normalisation.Kernel) -> Callable[..., NDArray[Any]]:
    parameters = () if kernel.parameter is None else (PARAMETERS[kernel.parameter],)

    def of(logits: Any, indptr: Any, *temperature: Any) -> NDArray[Any]:
        result: Any = kernel.of(logits, indptr, *parameters, *temperature)
        return result[0] if kernel.abstains else result  # type: ignore[no-any-return]

    return of


#: Every kernel from logits to probabilities.
KERNELS = {str(name): _probabilities(kernel) for name, kernel in normalisation.KERNELS.items()}


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


def ragged(
    low: float = -50.0, high: float = 50.0, *, empty: bool = True, longest: int = 12
) -> st.SearchStrategy[Ragged]:
    """Batches of one to five rows."""
    row = st.lists(st.floats(low, high), min_size=0 if empty else 1, max_size=longest)
    rows = st.lists(row.map(lambda numbers: np.array(numbers, dtype=np.float64)), min_size=1, max_size=5)
    return rows.map(lambda arrays: Ragged(tuple(arrays)))


def wide(scale: float = 5.0) -> Ragged:
    """218 moves, one move, none, thirty-one."""
    rng = np.random.default_rng(0)
    return Ragged(tuple(rng.normal(size=n) * scale for n in (218, 1, 0, 31)))
