"""What an operator would lose: the audit records of everyone whose answer went out together with one that is odd."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import chess
import pytest

from movemask.answering import Answer, Asked, Query
from movemask.api.metrics import Metrics
from movemask.board.position import Position
from movemask.inference.batcher import Batcher
from movemask.inference.registry import open_model
from movemask.leakage.causes import Cause
from movemask.leakage.record import AuditRecord, Figure
from movemask.pipeline import Pipeline
from movemask.policy import Rule
from tests.networks import write_fake
from tests.store.records import record


def unwritable() -> Asked:
    """A position whose move number has more digits than Python writes."""
    board = chess.Board()
    board.fullmove_number = 10**5000
    return Asked(Position(board), None, Rule())


def test_an_answer_that_cannot_be_recorded_costs_its_own_record_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    recorded: list[tuple[list[AuditRecord], int]] = []

    async def ask(pipeline: Pipeline, batcher: Batcher) -> list[object]:
        queries: Sequence[Query | Asked] = [Query(moves=("e2e4",)), unwritable(), Query(moves=("d2d4",))]
        outcomes: list[object] = list(await pipeline.evaluate(queries, batcher))
        await asyncio.sleep(0)  # records are made after the turn of the loop in which the answers go out
        return outcomes

    model = open_model(write_fake(tmp_path), 1)
    with ThreadPoolExecutor(1) as executor:
        batcher = Batcher(model, max_batch=8, max_waiting=100)
        pipeline = Pipeline(lambda records, failed: recorded.append((list(records), failed)), executor, max_moves=10)
        outcomes = asyncio.run(ask(pipeline, batcher))
        batcher.close()
    assert all(isinstance(outcome, Answer) for outcome in outcomes)
    ((records, failed),) = recorded
    assert [one.fen.split()[0] for one in records] == [
        "rnbqkbnr/pppppppp/8/8/4P3/8/PPPP1PPP/RNBQKBNR",
        "rnbqkbnr/pppppppp/8/8/3P4/8/PPP1PPPP/RNBQKBNR",
    ]
    assert failed == 1
    assert "an answer of model fake cannot be recorded" in caplog.text


def test_counters_never_take_what_would_spoil_them_for_good() -> None:
    metrics = Metrics()
    good = record(0.25, causes={Cause.BLOCKED: 0.25})
    bad = [record(math.nan), record(math.inf), record(-1.0), record(causes={Cause.BLOCKED: math.nan})]
    bad.append(record(more={"rounded": Figure(object())}))  # type: ignore[arg-type]
    metrics.audited([good, *bad, good])
    text = metrics.exposition().decode()
    assert 'movemask_leakage_sum{kind="raw",model="net",trained_with_mask="false"} 0.5' in text
    assert 'movemask_illegal_mass_total{cause="blocked",model="net",trained_with_mask="false"} 0.5' in text
    assert "NaN" not in text
