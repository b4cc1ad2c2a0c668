"""The study of the row maximum of sparse rows: `python -m benchmarks.sparse_rows`, about a minute.

Random sparse matrices, 1000 x 1000 with 6,000 explicit elements drawn from N(0, sigma), for a sweep of sigma, 40
repeats each; and the logits of the legal moves of real positions, scaled the same way. For each way of finding the
row maximum, in float32 and float64, with nothing and with the source's 1e-9 added to every row sum: the share of
results with a NaN, the largest deviation of a row's sum from 1, the RMSE against a dense float64 softmax and the mean
error of the row maximum. Writes benchmarks/results/sparse-rows.md with plots of float32, and the summary in
docs/numerics.md between its markers.

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

from benchmarks.row_maxima import (
    SOURCE_EPSILON,
    Exact,
    Iterative,
    Naive,
    PNorm,
    RowMaximum,
    coalesced,
    row_maximum,
    sparse_softmax,
)
from movemask.board.position import Position
from movemask.network.registry import load_registry
from movemask.numeric.ragged import padded
from movemask.pipeline import evaluate_positions
from movemask.settings import shipped_models

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
RESULTS = Path(__file__).parent / "results"
SIZE, ELEMENTS, REPEATS = 1000, 6000, 40
SIGMAS = (1, 2, 5, 10, 20, 30, 40, 60, 100, 1000)
EPSILONS = {"without ε": 0.0, "with ε = 1e-9": SOURCE_EPSILON}
DTYPES = (np.float32, np.float64)
METHODS: dict[str, RowMaximum] = {
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
    "RMSE against dense",
    "mean error of the row maximum",
)
#: From this deviation of a row's sum the summary says that the sums fail.
FAILED = 1e-3

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
    positions = [Position(board) for board in boards if board.is_valid() and any(board.legal_moves)][::6]
    evaluated = evaluate_positions(model, positions, [None] * len(positions))
    return evaluated.unmasked.legal, evaluated.batch.indptr


def reference(values: NDArray[np.float64], indptr: NDArray[np.intp]) -> NDArray[np.float64]:
    """Dense float64 softmax, in the order of the values."""
    dense = padded(values, indptr, -np.inf)
    return scipy.special.softmax(dense[np.diff(indptr) > 0], axis=1)[dense[np.diff(indptr) > 0] > -np.inf]


def measured(
    rows: Ragged, expected: NDArray[np.float64], method: RowMaximum, inside: type, epsilon: float
) -> NDArray[np.float64]:
    """The four measures of one result; the last three over what is not NaN."""
    values, indptr = rows
    result = sparse_softmax(values, indptr, method, epsilon=epsilon, inside=inside).astype(np.float64)
    filled = np.diff(indptr) > 0
    sums = np.add.reduceat(result, indptr[:-1][filled])
    exact = row_maximum(values, indptr, Exact())[filled]
    error = row_maximum(values, indptr, method, epsilon=epsilon, inside=inside)[filled] - exact
    return np.array(
        [
            np.isnan(result).any(),
            np.nanmax(np.abs(sums - 1), initial=0.0),
            np.sqrt(np.nanmean((result - expected) ** 2)),
            np.nanmean(np.abs(error)),
        ]
    )


def swept(draw: Callable[[float, np.random.Generator], Ragged], repeats: int, inside: type, epsilon: float) -> Figures:
    """Means over the repeats, and the largest deviation of them all."""
    figures = {name: np.zeros((len(SIGMAS), len(MEASURES))) for name in METHODS}
    for index, sigma in enumerate(SIGMAS):
        rng = np.random.default_rng(20261121)
        runs = [draw(sigma, rng) for _ in range(repeats)]
        expected = [reference(*rows) for rows in runs]
        for name, method in METHODS.items():
            each = np.array(
                [measured(rows, dense, method, inside, epsilon) for rows, dense in zip(runs, expected, strict=True)]
            )
            figures[name][index] = np.nanmean(each, axis=0)
            figures[name][index, 1] = np.nanmax(each[:, 1])
    return figures


def tables(figures: Figures) -> str:
    """One table for each measure: a row for each method, a column for each sigma."""
    lines = []
    for measure, title in enumerate(MEASURES):
        lines += ["", f"| {title}: σ = | " + " | ".join(map(str, SIGMAS)) + " |", "|---" * (len(SIGMAS) + 1) + "|"]
        for name, rows in figures.items():
            numbers = (f"{number:.2f}" if measure == 0 else f"{number:.1e}" for number in rows[:, measure])
            lines.append(f"| {name} | " + " | ".join(numbers) + " |")
    return "\n".join(lines[1:])


def summary(of_epsilon: dict[str, Figures]) -> str:
    """Where each method first fails, without and with epsilon."""
    cells = [f"{what}, {epsilon}" for epsilon in of_epsilon for what in ("first NaN", "sums first fail")]
    lines = ["| way | " + " | ".join(cells) + " |", "|---" * (len(cells) + 1) + "|"]
    for name in METHODS:
        found = [_first(f[name][:, measure] > (0, FAILED)[measure]) for f in of_epsilon.values() for measure in (0, 1)]
        lines.append(f"| {name} | " + " | ".join(found) + " |")
    return "\n".join(lines)


def _first(failed: NDArray[np.bool_]) -> str:
    return f"σ = {SIGMAS[int(np.argmax(failed))]}" if failed.any() else "never"


def plot(figures: Figures, title: str, file: Path) -> None:
    """The four measures against sigma."""
    figure, axes = plt.subplots(2, 2, figsize=(10, 7), layout="constrained")
    for measure, axis in enumerate(axes.flat):
        for (name, rows), line in zip(figures.items(), ("-", "--", "-.", ":") * 3, strict=False):
            axis.plot(SIGMAS, np.maximum(rows[:, measure], 1e-18), line, marker=".", label=name)
        axis.set(xscale="log", xlabel="σ", title=MEASURES[measure])
        if measure:
            axis.set(yscale="log")
    axes[0, 0].legend(fontsize=8)
    figure.suptitle(title)
    figure.savefig(file, dpi=80, metadata={"Software": None})
    plt.close(figure)


def put(name: str, text: str) -> None:
    """Replaces what stands between `<!-- name -->` and `<!-- /name -->` in docs/numerics.md."""
    document = DOCS / "numerics.md"
    before, rest = document.read_text().split(f"<!-- {name} -->\n")
    after = rest.split(f"<!-- /{name} -->\n")[1]
    document.write_text(f"{before}<!-- {name} -->\n{text}\n<!-- /{name} -->\n{after}")


def main() -> None:
    np.seterr(all="ignore")
    warnings.filterwarnings("ignore", "Mean of empty slice|All-NaN")  # where every result is NaN, so is the mean
    values, indptr = real_rows()
    best = row_maximum(values, indptr, Exact())
    put(
        "real rows",
        f"{len(best)} positions; the best legal logit lies between {best.min():.1f} and {best.max():.1f}, "
        f"and is positive in {100 * (best > 0).mean():.1f} % of them.",
    )

    def scaled(sigma: float, _: np.random.Generator) -> Ragged:
        return values * sigma, indptr

    lines = [
        "# The row maximum of sparse rows: all figures",
        "",
        "`python -m benchmarks.sparse_rows` wrote this page. What it shows: [numerics.md](../../docs/numerics.md).",
        "The last three measures are over what is not NaN.",
    ]
    for data, draw, repeats in (("random", random_rows, REPEATS), ("real", scaled, 1)):
        for inside in DTYPES:
            dtype = np.dtype(inside).name
            of_epsilon = {words: swept(draw, repeats, inside, epsilon) for words, epsilon in EPSILONS.items()}
            for words, figures in of_epsilon.items():
                title = f"{data.capitalize()} rows, {dtype}, {words}"
                lines += ["", f"## {title}", "", tables(figures)]
                if inside is np.float32:
                    image = f"sparse-rows-{data}{'-epsilon' if EPSILONS[words] else ''}.png"
                    plot(figures, title, RESULTS / image)
                    lines += ["", f"![{title}]({image})"]
            put(f"{data} {dtype}", summary(of_epsilon))
    (RESULTS / "sparse-rows.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
