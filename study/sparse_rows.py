"""The study of `row_maxima`: how each way to find a row's maximum fails as the elements get larger.

For every σ of SIGMAS a matrix is drawn or scaled, and MEASURES judge each method of METHODS. study/study.ipynb runs it
on random sparse matrices and on the logits of real positions.

After Bloem, "Stable softmax for sparse matrices" (2019), https://peterbloem.nl/blog/stable-softmax.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import DTypeLike

from movemask.policy.ragged import Float, Index
from movemask.policy.softmax import softmax
from study.row_maxima import (
    Exact,
    Iterative,
    Naive,
    PNorm,
    RowMaximum,
    coalesced,
    row_maximum,
    sparse_softmax,
)
from study.tables import table

#: The source's setting: matrices of SIZE x SIZE with ELEMENTS explicit elements.
SIZE, ELEMENTS = 1000, 6000
SIGMAS = (1, 2, 5, 10, 20, 30, 40, 60, 100, 1000)
METHODS: Mapping[str, RowMaximum] = {
    "exact": Exact(),
    "naive": Naive(),
    "pnorm(4)": PNorm(4),
    "pnorm(40)": PNorm(40),
    "iterative(1.1)": Iterative(1.1, 20),
    "iterative(2)": Iterative(2, 20),
    "iterative(1.1), normalised": Iterative(1.1, 20, normalised=True),
    "iterative(2), normalised": Iterative(2, 20, normalised=True),
    "iterative(1.1), shift": Iterative(1.1, 20, "shift"),
    "iterative(2), shift": Iterative(2, 20, "shift"),
}
MEASURES = (
    "share with a NaN",
    "largest deviation of a row sum from 1",
    "RMSE against float64",
    "mean error of the row maximum",
)

#: A row sum fails from this deviation on.
FAILED = 1e-3

_NAN, _DEVIATION = 0, 1  # places in MEASURES
_SEED = 20261121

#: Values `[N]` and indptr `[B + 1]`.
Rows = tuple[Float, Index]

#: By method, float64 `[len(SIGMAS), repeats, len(MEASURES)]`.
Sweep = dict[str, Float]


def random_rows(sigma: float, rng: np.random.Generator) -> Rows:
    """A random sparse matrix in CSR form, its elements drawn from N(0, σ) at distinct places."""
    places = rng.choice(SIZE * SIZE, ELEMENTS, replace=False)
    values, indptr, _ = coalesced(places // SIZE, places % SIZE, rng.normal(0, sigma, ELEMENTS), SIZE)
    return values.astype(np.float64), indptr


def scaled_rows(rows: Rows) -> Callable[[float, np.random.Generator], Rows]:
    """A `draw` for `swept` that multiplies the values of `rows` by σ."""
    values, indptr = rows
    return lambda sigma, _: (values * sigma, indptr)


def swept(draw: Callable[[float, np.random.Generator], Rows], repeats: int, dtype: DTypeLike, epsilon: float) -> Sweep:
    """The measures of every result: for each σ of SIGMAS, `repeats` matrices from `draw`, by each method.

    dtype : of all arithmetic
    epsilon : added to every row sum
    """
    sweep = {name: np.zeros((len(SIGMAS), repeats, len(MEASURES))) for name in METHODS}
    for place, sigma in enumerate(SIGMAS):
        rng = np.random.default_rng(_SEED)
        for repeat in range(repeats):
            rows = draw(sigma, rng)
            exact = softmax(*rows)
            for name, method in METHODS.items():
                sweep[name][place, repeat] = measured(rows, exact, method, dtype, epsilon)
    return sweep


def measured(rows: Rows, exact: Float, method: RowMaximum, dtype: DTypeLike, epsilon: float) -> Float:
    """The MEASURES of one result, float64 `[4]`. All but the first skip NaN."""
    values, indptr = rows
    result = sparse_softmax(values, indptr, method, epsilon=epsilon, inside=dtype).astype(np.float64)
    filled = np.diff(indptr) > 0
    sums = np.add.reduceat(result, indptr[:-1][filled])
    maximum = row_maximum(values, indptr, Exact())[filled]
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Mean of empty slice|All-NaN", RuntimeWarning)
        error = row_maximum(values, indptr, method, epsilon=epsilon, inside=dtype)[filled] - maximum
        return np.array(
            [
                np.isnan(result).any(),
                np.nanmax(np.abs(sums - 1), initial=0.0),
                np.sqrt(np.nanmean((result - exact) ** 2)),
                np.nanmean(np.abs(error)),
            ]
        )


def averaged(sweep: Sweep) -> dict[str, Float]:
    """Means over the repeats, float64 `[len(SIGMAS), len(MEASURES)]`; for the deviation of a row sum, the largest.

    NaN where every result is NaN.
    """
    means = {}
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Mean of empty slice|All-NaN", RuntimeWarning)
        for name, measures in sweep.items():
            means[name] = np.nanmean(measures, axis=1)
            means[name][:, _DEVIATION] = np.nanmax(measures[:, :, _DEVIATION], axis=1)
    return means


def first_failures(sweeps: Mapping[str, Sweep]) -> str:
    """A table: for each method, the first σ at which a result has a NaN, and the first σ at which a row sum fails.

    sweeps : by a description of their epsilon, which the head of the table repeats
    """
    head = ["way"] + [f"{failure}, {words}" for words in sweeps for failure in ("first NaN", "sums first fail")]
    rows = []
    for name in METHODS:
        cells = [name]
        for sweep in sweeps.values():
            for failed in (sweep[name][:, :, _NAN] > 0, sweep[name][:, :, _DEVIATION] > FAILED):
                at = failed.any(axis=1)
                cells.append(f"σ = {SIGMAS[int(np.argmax(at))]}" if at.any() else "never")
        rows.append(cells)
    return table(head, rows)


def failed_results(sweep: Sweep, method: str, sigma: int) -> int:
    """The number of a method's results at a σ with a row sum that fails."""
    return int((sweep[method][SIGMAS.index(sigma), :, _DEVIATION] > FAILED).sum())


def figures(sweep: Sweep, measure: int) -> str:
    """A table of one of MEASURES: a row for each method, a column for each σ."""
    rows = [
        [name, *(f"{number:.2f}" if measure == _NAN else f"{number:.1e}" for number in means[:, measure])]
        for name, means in averaged(sweep).items()
    ]
    return table([f"{MEASURES[measure]}: σ =", *map(str, SIGMAS)], rows)
