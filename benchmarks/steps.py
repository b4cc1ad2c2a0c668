"""Where the microseconds of a batch go, step by step, as a Markdown table: `python -m benchmarks.steps`.

Positions of random games by a model (the shipped one), in batches of 256 and alone, one thread, no HTTP. The last
part compares the legal moves of a batch, found at once, with python-chess's `legal_moves` and a look-up for each.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import chess
import orjson

from service.api.schemas.answers import policy_out
from service.audit.kinds import ALWAYS, Plan
from service.audit.leakage import leakages
from service.audit.served import served
from service.encoding.boards import Boards
from service.encoding.legal_slots import legal_slots
from service.encoding.legality import legal_moves
from service.encoding.position import Position
from service.inference.batcher import Inferred
from service.inference.model import Model
from service.inference.registry import load_registry
from service.pipeline import Asked, Query, answers, prepared, runs_of
from service.policy import Rule, legal_of, policies
from service.settings import shipped_models

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
    fens = _fens()
    columns = [_steps(model, fens, size) for size in SIZES]
    print(f"| µs a position ({model.name}) | batch of {SIZES[0]} | alone |\n|---|---:|---:|")
    for name, cost in columns[0].items():
        print(f"| {name} | {cost:.1f} | {columns[1][name]:.1f} |")
    positions = [Position.read(fen) for fen in fens]
    boards = [Boards.of([one.board for one in part]) for part in _parts(positions, SIZES[0])]
    one_by_one = _timed(lambda: [model.vocabulary.legal_slots(one) for one in positions])
    print("\n| legal moves, µs a position | | times faster |\n|---|---:|---:|")
    print(f"| python-chess's `legal_moves`, each looked up | {one_by_one:.1f} | 1.0 |")
    for name, run in {
        "moves of a batch, positions as bitboards": lambda: [legal_moves(part) for part in boards],
        "moves and slots, from python-chess's boards": lambda: [
            legal_slots(part, model.vocabulary) for part in _parts(positions, SIZES[0])
        ],
    }.items():
        cost = _timed(run)
        print(f"| {name} | {cost:.1f} | {one_by_one / cost:.1f} |")


def _steps(model: Model, fens: list[str], size: int) -> dict[str, float]:
    """Microseconds a position of each step, for batches of a size."""
    queries = [Query(fen) for fen in fens]

    def read(query: Query | Asked) -> Asked:
        return query if isinstance(query, Asked) else Asked(Position.read(query.fen), query.elo, query.rule)

    asked = _parts([read(query) for query in queries], size)
    ready = [prepared(model, part, read) for part in _parts(queries, size)]
    encoded = [[one.encoded for one in part] for part in ready]
    evaluated = [model.evaluate(part) for part in encoded]
    inferred = [Inferred(one.logits, one.value, 0.0, 0.0) for one in evaluated]
    legal = [legal_of(part, one.logits) for part, one in zip(encoded, evaluated, strict=True)]
    made = [policies(part, own, [Rule()] * len(part)) for part, own in zip(encoded, legal, strict=True)]
    least = Plan().least
    runs = [runs_of(part, one, ALWAYS) for part, one in zip(ready, inferred, strict=True)]
    told = [answers(model, part, least=least) for part in runs]
    out = [{"results": [policy_out(one, model, []) for one in part]} for part in told]
    return {
        "FEN read and checked by python-chess": _timed(lambda: [read(query) for query in queries]),
        "legal moves and slots": _timed(
            lambda: [legal_slots([one.position for one in part], model.vocabulary) for part in asked]
        ),
        "planes": _timed(lambda: [model.encoder.encode_all([one.position for one in part]) for part in asked]),
        "network": _timed(lambda: [model.evaluate(part) for part in encoded]),
        "policy": _timed(
            lambda: [policies(part, own, [Rule()] * len(part)) for part, own in zip(encoded, legal, strict=True)]
        ),
        "answer checked by python-chess": _timed(
            lambda: [
                served(one.position.board, policy.moves, policy.probabilities, legal_moves=len(one.moves))
                for part, of in zip(encoded, made, strict=True)
                for one, policy in zip(part, of, strict=True)
            ]
        ),
        "leakage and causes": _timed(
            lambda: [
                leakages(
                    [one.position for one in part], model.vocabulary, one_of.logits, own.slots, own.indptr,
                    [0.0] * len(part), kinds=ALWAYS, least=least,
                )
                for part, one_of, own in zip(encoded, evaluated, legal, strict=True)
            ]
        ),
        "answer as dicts": _timed(lambda: [policy_out(one, model, []) for part in told for one in part]),
        "answer as JSON": _timed(lambda: [orjson.dumps(one) for one in out]),
    }  # fmt: skip


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


def _fens() -> list[str]:
    """Positions of random games that are not over."""
    rng = random.Random(1)
    found: list[str] = []
    while len(found) < 4 * POSITIONS:
        board = chess.Board()
        for _ in range(rng.randrange(1, 150)):
            moves = list(board.legal_moves)
            if not moves:
                break
            board.push(rng.choice(moves))
            if any(board.legal_moves):
                found.append(board.fen())
    return rng.sample(found, POSITIONS)


if __name__ == "__main__":
    main()
