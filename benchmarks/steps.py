"""Where the microseconds of a batch go, step by step, as a Markdown table: `python -m benchmarks.steps`.

Positions of random games by a model (the shipped one), in batches of 256 and alone, one thread, no HTTP. The last
part compares the legal moves of a batch, found at once, with python-chess's `legal_moves` and a look-up for each.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from benchmarks.positions import random_games
from movemask.answering import Answer, Query, Ready, answers, prepared, runs_of
from movemask.api.schemas.answers import policy_out
from movemask.board.encoded import EncodedPosition
from movemask.board.legality import legal_moves
from movemask.board.position import Position, boards_of
from movemask.inference.batcher import Inferred
from movemask.inference.model import Model
from movemask.inference.registry import load_registry
from movemask.leakage.kinds import ALWAYS, MULTIPLIED, RAW, Plan
from movemask.leakage.leakage import Batch, leakages, measure
from movemask.leakage.served import Told, served
from movemask.policy import Policy, Rule, legal_of, policies
from movemask.settings import shipped_models
from movemask.vocabulary.legal_slots import legal_slots

POSITIONS = 1024
SIZES = (256, 1)
ROUNDS = 7


def main() -> None:
    """Prints the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="movemask-2")
    parser.add_argument("--models-dir", type=Path, default=shipped_models())
    arguments = parser.parse_args()
    model = load_registry(arguments.models_dir, None, 1).get(arguments.model)
    fens = random_games(POSITIONS)
    columns = [_steps(model, fens, size) for size in SIZES]
    print(f"| µs a position ({model.name}) | batch of {SIZES[0]} | alone |\n|---|---:|---:|")
    for name, cost in columns[0].items():
        print(f"| {name} | {cost:.1f} | {columns[1][name]:.1f} |")
    parsed = [_positions(part) for part in _parts(fens, SIZES[0])]
    boards = [boards_of(part) for part in parsed]
    alone = [Position.read(fen).board for fen in fens]
    words = model.vocabulary
    one_by_one = _timed(lambda: [[words.slot(move, board) for move in board.legal_moves] for board in alone])
    print("\n| legal moves, µs a position | | times faster |\n|---|---:|---:|")
    print(f"| python-chess's `legal_moves`, each looked up | {one_by_one:.1f} | 1.0 |")
    for name, run in {
        "legal moves of a batch": lambda: [legal_moves(part) for part in boards],
        "legal moves and slots of a batch": lambda: [legal_slots(part, words) for part in parsed],
    }.items():
        cost = _timed(run)
        print(f"| {name} | {cost:.1f} | {one_by_one / cost:.1f} |")


def _steps(model: Model, fens: list[str], size: int) -> dict[str, float]:
    """Microseconds a position of each step, for batches of a size."""
    parts = _parts(fens, size)
    queries = [[Query(fen) for fen in part] for part in parts]
    read = [_positions(part) for part in parts]
    ready = [[one for one in prepared(model, part) if isinstance(one, Ready)] for part in queries]
    encoded = [[one.encoded for one in part] for part in ready]
    evaluated = [model.evaluate(part) for part in encoded]
    inferred = [Inferred(one, 0.0, 0.0) for one in evaluated]
    legal = [legal_of(part, one.logits) for part, one in zip(encoded, evaluated, strict=True)]
    rules = [[Rule()] * len(part) for part in parts]
    made = [policies(part, own, rule) for part, own, rule in zip(encoded, legal, rules, strict=True)]
    least = Plan().least
    runs = [runs_of(part, one) for part, one in zip(ready, inferred, strict=True)]
    told = [answers(model, part, least=least) for part in runs]
    out = [{"results": [policy_out(one, model, []) for one in part if isinstance(one, Answer)]} for part in told]
    batches = [Batch(one.logits, own.slots, own.indptr) for one, own in zip(evaluated, legal, strict=True)]
    codes = [[one.codes for one in part] for part in encoded]
    return {
        "FEN read and checked": _timed(lambda: [_positions(part) for part in parts]),
        "legal moves and slots": _timed(lambda: [legal_slots(part, model.vocabulary) for part in read]),
        "planes": _timed(lambda: [model.encoder.encode_all(part) for part in read]),
        "network": _timed(lambda: [model.evaluate(part, alone=False) for part in encoded]),
        "policy": _timed(
            lambda: [
                policies(part, legal_of(part, one.logits), rule)
                for part, one, rule in zip(encoded, evaluated, rules, strict=True)
            ]
        ),
        "answer checked": _timed(lambda: _checked(encoded, made, judged=False)),
        "answer judged by python-chess": _timed(lambda: _checked(encoded, made, judged=True)),
        "`raw` and `multiplied`": _timed(
            lambda: [
                measure([RAW, MULTIPLIED], Batch(one.logits, own.slots, own.indptr), model.vocabulary, _NO_BLACK)
                for one, own in zip(evaluated, legal, strict=True)
            ]
        ),
        "leakage with its causes": _timed(
            lambda: [
                leakages(
                    part,
                    model.vocabulary,
                    Batch(one.logits, one.slots, one.indptr),
                    legal_codes,
                    kinds=ALWAYS,
                    least=least,
                )
                for part, one, legal_codes in zip(read, batches, codes, strict=True)
            ]
        ),
        "answer as dicts": _timed(
            lambda: [policy_out(one, model, []) for part in told for one in part if isinstance(one, Answer)]
        ),
        "answer as JSON": _timed(lambda: [orjson.dumps(one) for one in out]),
    }


_NO_BLACK = np.zeros(0, dtype=np.bool_)


def _positions(fens: list[str]) -> list[Position]:
    return [one for one in Position.read_all(fens) if isinstance(one, Position)]


def _checked(encoded: list[list[EncodedPosition]], made: list[list[Policy]], *, judged: bool) -> None:
    for part, policies_of in zip(encoded, made, strict=True):
        for one, policy in zip(part, policies_of, strict=True):
            told = Told(one.position, policy.codes, policy.probabilities, policy.abstention, one.codes)
            served(told, judged=judged)


def _parts(items: list[Any], size: int) -> list[Any]:
    return [items[start : start + size] for start in range(0, len(items), size)]


def _timed(run: Callable[[], object]) -> float:
    """The least of some rounds over all positions, in microseconds a position."""
    best = float("inf")
    for _ in range(ROUNDS):
        started = time.perf_counter()
        run()
        best = min(best, time.perf_counter() - started)
    return 1e6 * best / POSITIONS


if __name__ == "__main__":
    main()
