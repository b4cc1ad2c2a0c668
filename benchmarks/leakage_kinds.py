"""What each kind of leakage costs a position, as a Markdown table: `python -m benchmarks.leakage_kinds`.

The shipped network's logits on tests/data/perft_standard.epd, in batches of 256 and alone, one thread. The
network's own run stands in the last row to compare with.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import chess
import numpy as np

from movemask.board.phase import phases_of
from movemask.board.position import Position, boards_of
from movemask.errors import MovemaskError
from movemask.inference.registry import load_registry
from movemask.leakage import leakage
from movemask.leakage.kinds import KINDS, SERVED, Plan
from movemask.leakage.reasons import explained
from movemask.leakage.served import Told, served
from movemask.leakage.traits import Traits
from movemask.policy import Rule, legal_of, policies
from movemask.settings import shipped_models
from tests.ground_truth import perft

SIZES = (256, 1)
ROUNDS = 15


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="movemask-2")
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


def _costs(model, positions: list[Position], size: int) -> dict[str, float]:  # type: ignore[no-untyped-def]
    """Microseconds a position of each part, for batches of a size: the least of several rounds over them all."""
    batches = []
    for start in range(0, len(positions), size):
        encoded = [model.encode(position) for position in positions[start : start + size]]
        logits = model.evaluate(encoded).logits
        legal = legal_of(encoded, logits)
        black = np.array([one.position.board.turn == chess.BLACK for one in encoded])
        made = policies(encoded, legal, [Rule()] * len(encoded))
        batches.append((encoded, logits, legal, black, made))

    def timed(run: Callable[..., object]) -> float:
        best = np.inf
        for _ in range(ROUNDS):
            started = time.perf_counter()
            for batch in batches:
                run(*batch)
            best = min(best, time.perf_counter() - started)
        return 1e6 * best / len(positions)

    words, least = model.vocabulary, Plan().least
    costs = {}
    for kind in KINDS:
        if kind == SERVED:
            costs[f"`{kind}`"] = timed(
                lambda encoded, logits, legal, black, made: [
                    served(
                        Told(one.position, policy.codes, policy.probabilities, policy.abstention, one.codes),
                        judged=False,
                    )
                    for one, policy in zip(encoded, made, strict=True)
                ]
            )
        else:
            costs[f"`{kind}`"] = timed(
                lambda encoded, logits, legal, black, made, kind=kind: leakage.measure(
                    [kind], leakage.Batch(logits, legal.slots, legal.indptr), words, black
                )
            )
    costs["all at once, `served` aside"] = timed(
        lambda encoded, logits, legal, black, made: leakage.measure(
            KINDS, leakage.Batch(logits, legal.slots, legal.indptr), words, black
        )
    )
    costs[f"`raw`, and illegal moves above {least} with their causes"] = timed(
        lambda encoded, logits, legal, black, made: explained(
            leakage.Batch(logits, legal.slots, legal.indptr).heavy(least),
            [one.position for one in encoded],
            words,
            [one.codes for one in encoded],
        )
    )
    costs["phase, check and the other groups"] = timed(
        lambda encoded, logits, legal, black, made: [
            Traits(one.position.turn, one.in_check, phase, len(one.codes), None)
            for one, phase in zip(encoded, phases_of(boards_of([one.position for one in encoded])), strict=True)
        ]
    )
    costs["the network itself"] = timed(lambda encoded, logits, legal, black, made: model.evaluate(encoded))
    return costs


if __name__ == "__main__":
    main()
