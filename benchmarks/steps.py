"""Where the microseconds of a batch go, step by step, as a Markdown table: `python -m benchmarks.steps`.

Positions of random games by a model (the shipped one), in batches of 256 and alone, one thread, no HTTP. The second
table is what is done once the replies are out. Steps of `pipeline` in their order.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import orjson

from benchmarks.positions import random_games
from movemask.board.moves import legal_moves
from movemask.board.position import Position, boards_of
from movemask.evaluate import Answer, Query
from movemask.leakage.answer_check import check_answer
from movemask.leakage.kinds import KINDS, Plan
from movemask.leakage.measure import UnmaskedLogits, measure
from movemask.network.files import shipped_models
from movemask.network.model import Batch, Model
from movemask.network.registry import load_registry
from movemask.policy.normalisation import Normalisation, Policies, policies
from movemask.policy.ragged import Float
from movemask.server.api.responses import policy_out
from movemask.server.ledger.entries import AnsweredBatch, LedgerTable
from movemask.server.ledger.ledger import Ledger
from movemask.server.ledger.recorder import Recorder
from movemask.server.metrics import Metrics
from movemask.server.queue.pipeline import Pipeline

POSITIONS = 1024
SIZES = (256, 1)
ROUNDS = 7

Costs = dict[str, float]


def main() -> None:
    """Prints the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="movemask-6")
    parser.add_argument("--models-dir", type=Path, default=shipped_models())
    arguments = parser.parse_args()
    model = load_registry(arguments.models_dir, None, 1).get(arguments.model)
    fens = random_games(POSITIONS)
    before, after = zip(*(_steps(model, fens, size) for size in SIZES), strict=True)
    print(_table(f"µs a position ({model.name})", before))
    print()
    print(_table("after the reply, µs a position", after))


def _table(title: str, columns: Sequence[Costs]) -> str:
    lines = [f"| {title} | batch of {SIZES[0]} | alone |", "|---|---:|---:|"]
    lines += [f"| {name} | {cost:.1f} | {columns[1][name]:.1f} |" for name, cost in columns[0].items()]
    return "\n".join(lines)


def _steps(model: Model, fens: Sequence[str], size: int) -> tuple[Costs, Costs]:
    """Microseconds a position of each step before the reply and after it, for batches of a size."""
    texts = [fens[start : start + size] for start in range(0, len(fens), size)]
    read = [[Position.read(fen) for fen in part] for part in texts]
    boards = [boards_of(part) for part in read]
    both = list(zip(read, boards, strict=True))
    legal = [legal_moves(position.board for position in part) for part in read]
    batches = [model.whole_batch(part) for part in read]
    logits = [model.run(batch).logits for batch in batches]
    gathered = [UnmaskedLogits(own, batch.slots, batch.indptr) for own, batch in zip(logits, batches, strict=True)]
    weighed = [_weighed(one) for one in gathered]
    made = [_policies(batch, one.legal) for batch, one in zip(batches, gathered, strict=True)]
    answers, answered = _run(model, texts)
    plan = Plan()
    judged = list(zip(batches, made, strict=True))
    unmasked = list(zip(batches, weighed, strict=True))
    before = {
        "FEN read and checked": _timed(lambda: [[Position.read(fen) for fen in part] for part in texts]),
        "boards as arrays": _timed(lambda: [boards_of(part) for part in read]),
        "legal moves": _timed(lambda: [legal_moves(position.board for position in part) for part in read]),
        "slots": _timed(lambda: [model.vocabulary.slots(*one) for one in zip(legal, boards, strict=True)]),
        "planes": _timed(lambda: [model.encoder.encode_all(*one) for one in both]),
        "network": _timed(lambda: [model.run(batch) for batch in batches]),
        "policy": _timed(lambda: [_policies(batch, one.legal) for batch, one in unmasked]),
        "`raw` and `multiplied`": _timed(
            lambda: [
                UnmaskedLogits(own, batch.slots, batch.indptr).masses()
                for own, batch in zip(logits, batches, strict=True)
            ]
        ),
        "answer checked": _timed(lambda: [_check(*one) for one in judged]),
        "answer written as JSON": _timed(lambda: [orjson.dumps(policy_out(answer, [])) for answer in answers]),
    }
    after = {
        "the kinds of every answer": _timed(lambda: [_measured(model, *one, plan.always) for one in unmasked]),
        "all kinds": _timed(lambda: [_measured(model, *one, KINDS) for one in unmasked]),
        "heavy slots": _timed(lambda: [one.heavy(plan.least) for one in weighed]),
        "table: kinds and causes": _timed(lambda: [LedgerTable.of([one], plan.always, plan.least) for one in answered]),
        "table of many batches together": _timed(lambda: LedgerTable.of(answered, plan.always, plan.least)),
        "recorded: table, metrics, cells and rows in SQLite (CPU time)": _recorded(answered),
    }
    return before, after


def _weighed(unmasked: UnmaskedLogits) -> UnmaskedLogits:
    """With the sums that `masses` makes and the recorder uses again."""
    unmasked.masses()
    return unmasked


def _policies(batch: Batch, legal: Float) -> Policies:
    return policies(batch.codes, legal, batch.indptr, [Normalisation()] * len(batch))


def _measured(model: Model, batch: Batch, unmasked: UnmaskedLogits, kinds: Sequence[str]) -> object:
    return measure(kinds, unmasked, model.vocabulary, batch.boards.black)


def _check(batch: Batch, made: Policies) -> None:
    codes, probabilities, indptr, abstention = replace(made).lists  # anew: they are made once for each batch
    legal, bounds = batch.codes.tolist(), batch.indptr.tolist()
    for row, position in enumerate(batch.positions):
        kept = slice(indptr[row], indptr[row + 1])
        own = legal[bounds[row] : bounds[row + 1]]
        check_answer(position, own, codes[kept], probabilities[kept], abstention[row])


def _run(model: Model, texts: Sequence[Sequence[str]]) -> tuple[list[Answer], list[AnsweredBatch]]:
    """What the pipeline answers to each batch, and what it hands to the recorder."""
    batches: list[AnsweredBatch] = []
    pipeline = Pipeline(model, batches.append, max_batch=max(SIZES), max_waiting=max(SIZES))

    async def ask() -> list[Answer]:
        results = [await pipeline.submit([(Query(fen), lambda answer: answer) for fen in part]) for part in texts]
        return [one for part in results for one in part if isinstance(one, Answer)]

    answers = asyncio.run(ask())
    pipeline.close()
    assert len(answers) == sum(map(len, batches)) == POSITIONS
    return answers, batches


def _recorded(batches: Sequence[AnsweredBatch]) -> float:
    """CPU time of the process from what the pipeline hands over to what is written, in microseconds a position."""
    with TemporaryDirectory() as folder:
        ledger = Ledger(f"sqlite:///{folder}/ledger.db", keep_seconds=1e12, keep_positions=10**6)
        recorder = Recorder(ledger, Metrics(), max_waiting=10**6)
        best = np.inf
        for _ in range(ROUNDS):
            started = time.process_time()
            for batch in batches:
                recorder.record(batch)
            while recorder.waiting:
                time.sleep(0.01)
            best = min(best, time.process_time() - started)
        recorder.close()
        ledger.close()
    return 1e6 * best / POSITIONS


def _timed(run: Callable[[], object]) -> float:
    """The least of some rounds over all positions, in microseconds a position."""
    best = np.inf
    for _ in range(ROUNDS):
        started = time.perf_counter()
        run()
        best = min(best, time.perf_counter() - started)
    return 1e6 * best / POSITIONS


if __name__ == "__main__":
    main()
