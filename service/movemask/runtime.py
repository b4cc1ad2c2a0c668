"""`Services`: everything that a running app holds, made in its lifespan and handed to the routes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request

from movemask.api.metrics import Metrics
from movemask.api.readers import Readers
from movemask.errors import SettingsError, UnknownModel
from movemask.inference.batcher import Batcher
from movemask.inference.cache import EvaluationCache
from movemask.inference.model import Model
from movemask.inference.onnx import provider_named
from movemask.inference.registry import Registry
from movemask.inference.serving import Serving
from movemask.leakage.kinds import ALWAYS, KINDS, Plan
from movemask.leakage.record import AuditRecord
from movemask.pipeline import Pipeline
from movemask.settings import Settings
from movemask.store.figures import Figures
from movemask.store.recorder import Recorder
from movemask.store.store import Store


@dataclass(frozen=True, slots=True)
class Services:
    settings: Settings
    serving: Serving
    pipeline: Pipeline
    store: Store
    figures: Figures
    recorder: Recorder
    readers: Readers
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
    plan = audit_plan(settings)
    provider = provider_named(settings.provider)
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
    readers = Readers(settings.max_readers)
    serving: Serving | None = None

    def start(model: Model) -> Batcher:
        return Batcher(model, max_batch=settings.positions_a_run, max_waiting=settings.max_queue, watch=metrics.ran)

    def record(records: Sequence[AuditRecord], failed: int) -> None:
        recorder.record(records, failed)
        metrics.audited(records)

    try:
        serving = Serving(
            settings.models_dir,
            settings.default_model,
            settings.threads,
            start,
            provider=provider,
            memory=settings.models_memory_mb * 2**20 if settings.models_memory_mb else None,
            poll_seconds=settings.models_poll_seconds or None,
        )
        pipeline = Pipeline(
            record,
            executor,
            max_moves=settings.max_moves,
            plan=plan,
            judge_share=settings.judge_share,
            cache=EvaluationCache(settings.cache_mb * 2**20),
            watch=metrics,
        )
        yield Services(settings, serving, pipeline, store, Figures(store.database), recorder, readers, metrics)
    finally:
        if serving is not None:
            serving.close()
        executor.shutdown()
        readers.close()
        recorder.close()
        store.close()


def audit_plan(settings: Settings) -> Plan:
    """What is measured, as the settings say; raises SettingsError for a kind that there is not."""
    named = [name.strip() for name in settings.audit_kinds.split(",") if name.strip()]
    chosen = set(KINDS) if named == ["all"] else {*named, *ALWAYS}
    unknown = sorted(chosen - set(KINDS))
    if unknown:
        known = ", ".join(KINDS)
        raise SettingsError(f"MOVEMASK_AUDIT_KINDS: there is no {', '.join(unknown)}; there are {known}, or all")
    always = tuple(kind for kind in KINDS if kind in chosen)
    return Plan(always, settings.audit_share, settings.audit_cause_threshold)


async def services(request: Request) -> Services:
    """The app's services, for a route. Not a plain function: FastAPI would run it on one of the shared threads, which
    a probe must not wait for."""
    found: Services = request.app.state.services
    return found


Given = Annotated[Services, Depends(services)]
