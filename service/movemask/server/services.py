"""`Services`: the models behind their queues, the ledger, recorder and readers, made in the app's lifespan."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Annotated, TypeVar

from anyio import CapacityLimiter, to_thread
from fastapi import Depends, Request

from movemask.errors import Overloaded, SettingsError
from movemask.games.engine import Engine
from movemask.leakage.kinds import DERIVED, KINDS, MEASURED, Plan
from movemask.network.model import Model
from movemask.network.onnx import provider_named
from movemask.server.certificates import certificate_end
from movemask.server.edge.context import RequestContext
from movemask.server.edge.limits import RequestLimits
from movemask.server.edge.shared_rates import Rates
from movemask.server.edge.spans import Wait
from movemask.server.ledger.ledger import Ledger
from movemask.server.ledger.reader import LedgerReader
from movemask.server.ledger.recorder import Recorder
from movemask.server.metrics import Metrics
from movemask.server.queue.engine_queue import EngineQueue
from movemask.server.queue.pipeline import ClientPipeline, Pipeline
from movemask.server.queue.queue import Submission
from movemask.server.queue.served_models import ServedModels
from movemask.server.settings import Settings

T = TypeVar("T")

#: One thread computes while the other waits for the database; more would only contend with the event loop for the GIL.
_READING_THREADS = 2

#: Reads of the ledger that run or wait at once, in all workers together; more are refused.
_READERS = 16


@dataclass(frozen=True)
class Services:
    """The long-lived objects of one app.

    reading : limits the threads that read the ledger
    large_bodies : held by the large body that is validated next
    """

    limits: RequestLimits
    models: ServedModels
    ledger: Ledger
    reader: LedgerReader
    recorder: Recorder
    metrics: Metrics
    engine: EngineQueue
    reading: CapacityLimiter
    workers: int
    large_bodies: asyncio.Lock = field(default_factory=asyncio.Lock)

    def evaluator(self, model: str | None, context: RequestContext) -> ClientPipeline:
        """Returns the model, for the queries of a request.

        Raises UnknownModel or ModelUnavailable.
        """

        def done(submission: Submission) -> None:
            context.answers += submission.answers
            if context.waits is not None and submission.evaluated:
                context.waits.append(
                    Wait(
                        submission.model,
                        len(submission.evaluated),
                        submission.submitted,
                        submission.started,
                        submission.ended,
                    )
                )

        return ClientPipeline(self.models.pipeline(model), context.client, done)

    def looked(self, connections: int) -> None:
        """Keeps in the metrics what is open and what waits; called now and then."""
        self.metrics.update_gauges(
            connections,
            self.models.waiting,
            self.recorder.waiting,
            ledger_writable=self.recorder.failure is None,
        )

    async def read(self, read: Callable[[], T]) -> T:
        """Returns the result of `read`, called on a thread of `reading`.

        Raises Overloaded if too many reads wait.
        """
        under_way = self.reading.borrowed_tokens + self.reading.statistics().tasks_waiting
        if under_way >= max(1, _READERS // self.workers):
            raise Overloaded(
                f"{under_way} requests for leakage figures are already running", retry_after=1
            )
        return await to_thread.run_sync(read, limiter=self.reading)

    async def streamed(self, parts: Iterator[bytes]) -> AsyncIterator[bytes]:
        """Returns the parts, each read on demand.

        The first is read at once, so that a database error is raised here, before the response
        begins; later parts are never refused.
        """
        first = await self.read(lambda: next(parts, None))

        async def all_parts() -> AsyncIterator[bytes]:
            part = first
            while part is not None:
                yield part
                part = await to_thread.run_sync(next, parts, None, limiter=self.reading)

        return all_parts()


@contextmanager
def running_services(
    settings: Settings,
    metrics: Metrics,
    rates: Rates,
    needed: Collection[str] | None = (),
    prepare: Callable[[Model], Model] | None = None,
) -> Iterator[Services]:
    """Opens the ledger, loads the models and starts the threads; stops them in order, so that no position is lost.

    Raises UnknownLedgerVersion for a ledger of another movemask. A database that cannot be opened now stops no start.

    `prepare` gets each model that passed its check, and returns the model to serve.
    """
    plan = ledger_plan(settings)
    ledger = Ledger(
        settings.database_url,
        keep_seconds=settings.ledger_keep_days * 86400,
        keep_positions=settings.ledger_keep_positions,
        positions=settings.ledger_positions == "on",
    )
    recorder = Recorder(ledger, metrics, plan)
    models: ServedModels | None = None

    def start(model: Model) -> Pipeline:
        model = model if prepare is None else prepare(model)
        return Pipeline(
            model,
            recorder.record,
            max_batch=settings.positions_a_run,
            max_waiting=max(1, settings.max_queue // rates.processes),
            workers=rates.processes,
            max_moves=settings.max_moves,
        )

    try:
        models = ServedModels(
            settings.model_folders,
            settings.default_model,
            start,
            needed,
            runs=settings.runs,
            provider=provider_named(settings.provider),
        )
        for entry in models.registry:
            metrics.model_served.labels(entry.name).set(float(entry.served))
        if settings.tls_cert is not None:
            end = certificate_end(settings.tls_cert)
            metrics.certificate_end_seconds.labels(settings.tls_cert.name).set(end)
        recorder.check_version()
        yield Services(
            RequestLimits(settings.max_body_bytes, settings.max_moves, settings.max_positions),
            models,
            ledger,
            LedgerReader(ledger.database),
            recorder,
            metrics,
            EngineQueue(Engine(settings.engine_program)),
            reading=CapacityLimiter(_READING_THREADS),
            workers=rates.processes,
        )
    finally:
        if models is not None:
            models.close()
        recorder.close()
        ledger.close()


def ledger_plan(settings: Settings) -> Plan:
    """Returns the kinds of leakage to measure by these settings.

    Raises SettingsError for an unknown kind.
    """
    named = [name.strip() for name in settings.ledger_kinds.split(",") if name.strip()]
    chosen = set(KINDS) if named == ["all"] else {*named, *Plan().always}
    unknown = sorted(chosen - set(KINDS))
    if unknown:
        known = ", ".join(KINDS)
        raise SettingsError(
            f"MOVEMASK_LEDGER_KINDS: there is no {', '.join(unknown)}; available: {known}, or all"
        )
    sources = {DERIVED.get(kind, kind) for kind in chosen}
    always = tuple(kind for kind in MEASURED if kind in sources)
    return Plan(always, settings.ledger_share)


async def services(http: Request) -> Services:
    """Returns the app's services, as a dependency of routes.

    It is `async`, because FastAPI runs plain functions on the shared threads, and a probe must not
    wait for these.
    """
    app_services: Services = http.app.state.services
    return app_services


AppServices = Annotated[Services, Depends(services)]
