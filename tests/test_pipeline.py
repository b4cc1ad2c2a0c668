"""What a user would lose to an odd query of somebody else: an answer; and an operator: the audit's other records."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from movemask.api.telemetry import Metrics
from movemask.errors import InferenceFailed, MovemaskError
from movemask.leakage.causes import Cause
from movemask.leakage.kinds import Plan
from movemask.network.model import Batch, Model, Outputs
from movemask.pipeline import Pipeline, Query
from movemask.store.writer import Store
from tests.networks import fake_model, pipeline
from tests.store.records import joined, record, recording


def answered(asked: Pipeline, queries: Sequence[Query]) -> Sequence[Mapping[int, float] | MovemaskError]:
    """Each query's probabilities by move, and the pipeline closed."""
    try:
        return asyncio.run(asked.answer(queries, lambda answer: dict(zip(*answer.policy, strict=True))))
    finally:
        asked.close()


def test_a_batch_whose_leakage_cannot_be_measured_is_answered_and_counted_as_dropped(tmp_path: Path) -> None:
    class Broken(Plan):
        def drawn(self, chance: float) -> tuple[str, ...]:
            raise MemoryError

    store = Store(f"sqlite:///{tmp_path}/audit.db", keep_seconds=3600, keep_positions=100, keep_worst=10)
    recorder = recording(store)
    asked = Pipeline(fake_model(), recorder, plan=Broken(), max_batch=8, max_waiting=100)
    outcomes = answered(asked, [Query(moves=("e2e4",)), Query(moves=("d2d4",))])
    assert not any(isinstance(outcome, MovemaskError) for outcome in outcomes)
    recorder.close(60)
    assert (recorder.dropped, recorder.waiting) == (2, 0)
    store.close()


def test_a_network_that_fails_fails_its_batch_by_name_and_the_next_is_answered() -> None:
    faults = [RuntimeError("out of memory")]

    class Broken(Model):
        def run(self, batch: Batch) -> Outputs:
            if faults:
                raise faults.pop()
            return super().run(batch)

    async def story(asked: Pipeline) -> None:
        with pytest.raises(InferenceFailed, match="model broken: RuntimeError: out of memory"):
            await asked.answer([Query()], lambda answer: answer.status)
        assert await asked.answer([Query()], lambda answer: answer.status) == ["ongoing"]

    whole = fake_model()
    asked = pipeline(Broken("broken", whole.digest, whole.contract, whole.session))
    asyncio.run(story(asked))
    asked.close()


def test_counters_never_take_what_would_spoil_them_for_good() -> None:
    metrics = Metrics()
    good = record(0.25, causes={Cause.BLOCKED: 0.25})
    bad = [record(None), record(math.inf), record(-1.0), record(0.25, causes={Cause.BLOCKED: math.nan})]
    for table in (good, *bad, *joined([good, record(0.5, more={}), *bad])):
        metrics.audited(table)
    text = metrics.exposition().decode()
    assert 'movemask_leakage_sum{kind="raw",model="net",trained_with_mask="false"} 1.5' in text
    assert 'movemask_illegal_mass_total{cause="blocked",model="net",trained_with_mask="false"} 0.5' in text
    assert "NaN" not in text
