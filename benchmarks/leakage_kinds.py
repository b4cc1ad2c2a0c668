"""What each kind of leakage costs a position, as a Markdown table: `python -m benchmarks.leakage_kinds`.

The shipped network's logits on tests/data/perft_standard.epd, in batches of 256 and alone, one thread. The
network's own run stands in the last row to compare with.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from movemask.board.position import Position
from movemask.errors import MovemaskError
from movemask.evaluate import Evaluated, evaluate_positions
from movemask.leakage.answer_check import check_answer
from movemask.leakage.explain import Explained, explained
from movemask.leakage.kinds import KINDS, SERVED, Plan
from movemask.leakage.measure import UnmaskedLogits, measure
from movemask.network.files import shipped_models
from movemask.network.model import Batch, Model
from movemask.network.registry import load_registry
from movemask.policy.ragged import Index
from tests.ground_truth import perft

SIZES = (256, 1)
ROUNDS = 15


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="movemask-6")
    parser.add_argument("--models-dir", default=shipped_models())
    arguments = parser.parse_args()
    model = load_registry(arguments.models_dir, None, 1).get(arguments.model)
    positions = _positions(256)
    columns = [_costs(model, positions, size) for size in SIZES]
    print(f"| µs a position ({model.name}) | batch of {SIZES[0]} | alone |\n|---|---:|---:|")
    for name in columns[0]:
        print(f"| {name} | {columns[0][name]:.1f} | {columns[1][name]:.1f} |")


def _positions(count: int) -> list[Position]:
    found = []
    for line in perft("standard")[:: len(perft("standard")) // (2 * count)]:
        try:
            position = Position.read(line.fen)
        except MovemaskError:
            continue
        if any(position.board.legal_moves):
            found.append(position)
    return found[:count]


def _costs(model: Model, positions: list[Position], size: int) -> dict[str, float]:
    """Microseconds a position of each part, for batches of a size: the least of several rounds over them all."""
    parts = [positions[start : start + size] for start in range(0, len(positions), size)]
    evaluated = [evaluate_positions(model, part, [None] * len(part)) for part in parts]

    def timed(run: Callable[[Evaluated], object]) -> float:
        best = np.inf
        for _ in range(ROUNDS):
            started = time.perf_counter()
            for one in evaluated:
                run(one)
            best = min(best, time.perf_counter() - started)
        return 1e6 * best / len(positions)

    words, least = model.vocabulary, Plan().least

    def measured(one: Evaluated, *kinds: str) -> object:
        return measure(kinds, _fresh(one), words, one.batch.boards.black)

    costs = {}
    for kind in KINDS:
        costs[f"`{kind}`"] = timed(_check if kind == SERVED else lambda one, kind=kind: measured(one, kind))
    costs["all at once, `served` aside"] = timed(lambda one: measured(one, *KINDS))
    costs[f"`raw`, illegal moves above {least} with their causes, phase and the other groups"] = timed(
        lambda one: _columns(one, least)
    )
    costs["the network itself"] = timed(lambda one: model.run(one.batch))
    return costs


def _fresh(one: Evaluated) -> UnmaskedLogits:
    """The logits without what was made of them."""
    return UnmaskedLogits(one.unmasked.logits, one.batch.slots, one.batch.indptr)


def _legal(batch: Batch) -> list[Index]:
    return [batch.codes[batch.legal(row)] for row in range(len(batch))]


def _check(one: Evaluated) -> None:
    codes, probabilities, indptr, abstention = replace(one.policies).lists
    legal = _legal(one.batch)
    for row, position in enumerate(one.batch.positions):
        kept = slice(indptr[row], indptr[row + 1])
        check_answer(position, legal[row].tolist(), codes[kept], probabilities[kept], abstention[row])


def _columns(one: Evaluated, least: float) -> Explained:
    batch, heavy = one.batch, _fresh(one).heavy(least)
    return explained(heavy, batch.boards, one.model.vocabulary, batch.codes, batch.indptr)


if __name__ == "__main__":
    main()
