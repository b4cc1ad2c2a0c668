"""The study of the row maximum of sparse rows: `python -m benchmarks.sparse_rows`, about a minute.

Random sparse matrices, 1000 x 1000 with 6,000 explicit elements drawn from N(0, sigma), for a sweep of sigma,
40 repeats each;
and the logits of the legal moves of real positions, scaled the same way. For each way of finding the row
maximum: the share of
results with a NaN, the largest deviation of a row's sum from 1, the RMSE against a dense float64 softmax and
the mean error of the row maximum. Writes tables into docs/numerics.md between its markers, and plots beside it.

After Bloem, "Stable softmax for sparse matrices" (2019), https://peterbloem.nl/blog/stable-softmax.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import chess
import matplotlib.pyplot as plt
import numpy as np
import scipy.special
from numpy.typing import NDArray

from service.encoding.position import Position
from service.inference.registry import load_registry
from service.numeric.sparse_rows import (
    Exact,
    Iterative,
    Naive,
    PNorm,
    RowMaximum,
    coalesced,
    row_maximum,
    sparse_softmax,
)
from service.policy import legal_of
from service.settings import shipped_models

ROOT = Path(__file__).parent.parent
SIZE, ELEMENTS, REPEATS = 1000, 6000, 40
SIGMAS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
METHODS: dict[str, RowMaximum] = {
    "exact": Exact(),
    "naive": Naive(),
    "pnorm(2)": PNorm(2),
    "pnorm(20)": PNorm(20),
    "iterative(1.1, 20)": Iterative(1.1, 20),
    "iterative(2, 20)": Iterative(2, 20),
    "iterative(1.1, 20, shift)": Iterative(1.1, 20, "shift"),
    "iterative(2, 20, shift)": Iterative(2, 20, "shift"),
}
MEASURES = (
    "share with a NaN",
    "largest deviation of a row sum from 1",
    "RMSE against dense",
    "mean error of the row maximum",
)

Ragged = tuple[NDArray[np.float64], NDArray[np.intp]]
Figures = dict[str, NDArray[np.float64]]  # by method: [sigma, measure]


def random_rows(sigma: float, rng: np.random.Generator) -> Ragged:
    """A random sparse matrix in CSR form; places that were drawn twice are drawn again."""
    places = rng.choice(SIZE * SIZE, ELEMENTS, replace=False)
    values, indptr, _ = coalesced(places // SIZE, places % SIZE, rng.normal(0, sigma, ELEMENTS), SIZE)
    return values.astype(np.float64), indptr


def real_rows() -> Ragged:
    """Logits of the legal moves of the suite's positions, by the shipped network."""
    registry = load_registry(shipped_models(), None, threads=2)
    model = registry.get(None)
    fens = [line.split(";")[0].strip() for line in (ROOT / "tests/data/perft_standard.epd").read_text().splitlines()]
    boards = [chess.Board(fen) for fen in fens if fen and not fen.startswith("#")]
    batch = [model.encode(Position(board)) for board in boards if board.is_valid() and any(board.legal_moves)][::6]
    legal = legal_of(batch, model.evaluate(batch).logits)
    return legal.logits, legal.indptr


def reference(values: NDArray[np.float64], indptr: NDArray[np.intp]) -> NDArray[np.float64]:
    """Dense float64 softmax, row by row."""
    rows = np.split(values, indptr[1:-1])
    return np.concatenate([scipy.special.softmax(row) for row in rows if len(row)])


def measured(rows: Ragged, method: RowMaximum, inside: type) -> NDArray[np.float64]:
    """The four measures of one result; the last three over what is not NaN."""
    values, indptr = rows
    result = sparse_softmax(values, indptr, method, inside=inside).astype(np.float64)
    filled = np.diff(indptr) > 0
    sums = np.array([row.sum() for row in np.split(result, indptr[1:-1])])[filled]
    exact = row_maximum(values, indptr, Exact())[filled]
    error = row_maximum(values, indptr, method, inside=inside)[filled] - exact
    with np.errstate(all="ignore"):
        return np.array(
            [
                np.isnan(result).any(),
                np.nanmax(np.abs(sums - 1), initial=0.0),
                np.sqrt(np.nanmean((result - reference(values, indptr)) ** 2)),
                np.nanmean(np.abs(error)),
            ]
        )


def swept(draw: Callable[[float, np.random.Generator], Ragged], repeats: int, inside: type) -> Figures:
    """Means over the repeats, and the largest deviation of them all."""
    figures = {name: np.zeros((len(SIGMAS), 4)) for name in METHODS}
    for index, sigma in enumerate(SIGMAS):
        rng = np.random.default_rng(20261121)
        runs = [draw(sigma, rng) for _ in range(repeats)]
        for name, method in METHODS.items():
            each = np.array([measured(rows, method, inside) for rows in runs])
            figures[name][index] = [
                each[:, 0].mean(),
                np.nanmax(each[:, 1]),
                np.nanmean(each[:, 2]),
                np.nanmean(each[:, 3]),
            ]
    return figures


def table(figures: Figures, sigmas: tuple[int, ...]) -> str:
    """One row for each method and sigma."""
    lines = ["| way | σ | " + " | ".join(MEASURES) + " |", "|---|---|---|---|---|---|"]
    for name, rows in figures.items():
        for sigma in sigmas:
            nan, deviation, rmse, error = rows[SIGMAS.index(sigma)]
            lines.append(f"| {name} | {sigma} | {nan:.2f} | {deviation:.1e} | {rmse:.1e} | {error:.1e} |")
    return "\n".join(lines)


def plot(figures: Figures, title: str, file: Path) -> None:
    """The four measures against sigma."""
    figure, axes = plt.subplots(2, 2, figsize=(10, 7), layout="constrained")
    for measure, axis in enumerate(axes.flat):
        for (name, rows), line in zip(figures.items(), ("-", "--", "-.", ":") * 2, strict=True):
            axis.plot(SIGMAS, np.maximum(rows[:, measure], 1e-18), line, marker=".", label=name)
        axis.set(xscale="log", xlabel="σ", title=MEASURES[measure])
        if measure:
            axis.set(yscale="log")
    axes[0, 0].legend(fontsize=8)
    figure.suptitle(title)
    figure.savefig(file, dpi=110, metadata={"Software": None})
    plt.close(figure)


def put(name: str, text: str) -> None:
    """Replaces what stands between `<!-- name -->` and `<!-- /name -->` in docs/numerics.md."""
    document = ROOT / "docs" / "numerics.md"
    before, rest = document.read_text().split(f"<!-- {name} -->\n")
    after = rest.split(f"<!-- /{name} -->\n")[1]
    document.write_text(f"{before}<!-- {name} -->\n{text}\n<!-- /{name} -->\n{after}")


def main() -> None:
    np.seterr(all="ignore")
    warnings.filterwarnings("ignore", "Mean of empty slice")  # where every result is NaN, so is the mean
    values, indptr = real_rows()
    best = row_maximum(values, indptr, Exact())
    put(
        "real rows",
        f"{len(best)} positions; the best legal logit lies between {best.min():.1f} and {best.max():.1f}, "
        f"and is positive in {100 * (best > 0).mean():.1f} % of them.",
    )

    def scaled(sigma: float, _: np.random.Generator) -> Ragged:
        return values * sigma, indptr

    for inside in (np.float32, np.float64):
        dtype = np.dtype(inside).name
        random = swept(random_rows, REPEATS, inside)
        plot(random, f"Random sparse rows, {dtype}", ROOT / "docs" / f"sparse-rows-random-{dtype}.png")
        put(f"random {dtype}", table(random, (1, 10, 100, 1000)))
        real = swept(scaled, 1, inside)
        title = f"Legal logits of {len(indptr) - 1} positions times σ, {dtype}"
        plot(real, title, ROOT / "docs" / f"sparse-rows-real-{dtype}.png")
        put(f"real {dtype}", table(real, (1, 10, 100)))


if __name__ == "__main__":
    main()
