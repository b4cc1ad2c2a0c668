"""`Services`: everything that a running app holds, made in its lifespan and handed to the routes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request

from service.api.metrics import Metrics
from service.audit.record import AuditRecord
from service.audit.recorder import Recorder
from service.audit.store import Store
from service.errors import UnknownModel
from service.inference.batcher import Batcher
from service.inference.model import Model
from service.inference.registry import Registry
from service.inference.serving import Serving
from service.pipeline import Pipeline
from service.settings import Settings


@dataclass(frozen=True, slots=True)
class Services:
    settings: Settings
    serving: Serving
    pipeline: Pipeline
    store: Store
    recorder: Recorder
    metrics: Metrics

    def unready(self) -> list[str]:
        """Why requests cannot be answered now; empty if they can."""
        reasons = []
        try:
            default = self.registry.entry(None)
        except UnknownModel as error:
            reasons.append(f"the default model is gone: {error}")
        else:
            if not default.served:
                reasons.append(f"the default model {default.name!r} failed its check: {default.failure}")
        reasons += [f"the thread of model {name!r} has stopped" for name in self.serving.stopped()]
        return reasons

    @property
    def registry(self) -> Registry:
        """The models as they are now; another one after the folder has changed."""
        return self.serving.registry


@contextmanager
def running(settings: Settings, metrics: Metrics) -> Iterator[Services]:
    """Opens the store, loads the models and starts the threads; ends them in order, so that nothing answered
    is lost."""
    store = Store(
        settings.database_url,
        keep_seconds=settings.audit_keep_days * 86400,
        keep_positions=settings.audit_keep_positions,
        keep_worst=settings.audit_keep_worst,
    )
    recorder = Recorder(
        store,
        flush_seconds=settings.audit_flush_seconds,
        max_waiting=settings.audit_buffer,
        watch=metrics.audit_waits,
    )
    executor = ThreadPoolExecutor(2, thread_name_prefix="positions")
    serving: Serving | None = None

    def start(model: Model) -> Batcher:
        return Batcher(model, max_batch=settings.max_batch, max_waiting=settings.max_queue, watch=metrics.ran)

    def record(records: Sequence[AuditRecord]) -> None:
        recorder.record(records)
        metrics.audited(records)

    try:
        serving = Serving(
            settings.models_dir,
            settings.default_model,
            settings.threads,
            start,
            memory=settings.models_memory_mb * 2**20 if settings.models_memory_mb else None,
            poll_seconds=settings.models_poll_seconds or None,
        )
        pipeline = Pipeline(record, executor, max_moves=settings.max_moves)
        yield Services(settings, serving, pipeline, store, recorder, metrics)
    finally:
        if serving is not None:
            serving.close()
        executor.shutdown()
        recorder.close()
        store.close()


def services(request: Request) -> Services:
    """The app's services, for a route."""
    found: Services = request.app.state.services
    return found


Given = Annotated[Services, Depends(services)]
