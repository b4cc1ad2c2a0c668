"""The long-lived objects of a serving process: models behind their queues, the audit's store and its recorder."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from movemask.errors import SettingsError, UnknownModel
from movemask.leakage.kinds import DERIVED, KINDS, MEASURED, Plan
from movemask.leakage.table import AuditTable
from movemask.network.cache import Cache, CachedNetwork
from movemask.network.model import Model
from movemask.network.onnx import provider_named
from movemask.network.registry import Registry
from movemask.pipeline import Events, Pipeline
from movemask.serving import Serving
from movemask.settings import Settings
from movemask.store.reader import Figures
from movemask.store.recorder import Recorder
from movemask.store.writer import Store


class RuntimeEvents(Events):
    """Event observer. The base class ignores every event."""

    def models(self, registry: Registry) -> None:
        """The models of the folder are these now."""

    def cached(self, model: str, hits: int, misses: int, size: int) -> None:
        """A batch was looked up in the cache, which now takes `size` bytes."""

    def audit_waits(self, waiting: int, dropped: int) -> None:
        """The audit backlog changed: `waiting` records are not written yet, `dropped` were just lost."""

    def audited(self, table: AuditTable) -> None:
        """Answered positions of one network were audited."""


@dataclass(frozen=True)
class Runtime:
    """Models, store and recorder of a running process."""

    settings: Settings
    serving: Serving
    store: Store
    figures: Figures
    recorder: Recorder

    def unready(self) -> list[str]:
        """Reasons why requests cannot be answered now; empty if they can."""
        reasons = []
        try:
            default = self.registry.entry(None)
        except UnknownModel as error:
            reasons.append(f"the default model is gone: {error}")
        else:
            if not default.served:
                reasons.append(f"the default model {default.name!r} failed its check: {default.failure}")
        return reasons + self.serving.faults()

    @property
    def registry(self) -> Registry:
        """The models now served; a new object whenever the models folder changes."""
        return self.serving.registry


@contextmanager
def running(
    settings: Settings, events: RuntimeEvents, prepare: Callable[[Model], Model] | None = None
) -> Iterator[Runtime]:
    """Opens the store, loads the models and starts the threads; stops them in order, so that no audit record is
    lost. `prepare` is given each model that passed its check, and returns the one to serve."""
    plan = audit_plan(settings)
    provider = provider_named(settings.provider)
    store = Store(
        settings.database_url,
        keep_seconds=settings.audit_keep_days * 86400,
        keep_positions=settings.audit_keep_positions,
        keep_worst=settings.audit_keep_worst,
        positions=settings.audit_positions == "on",
    )
    recorder = Recorder(
        store,
        flush_seconds=settings.audit_flush_seconds,
        max_waiting=settings.audit_buffer,
        on_waiting=events.audit_waits,
        on_table=events.audited,
    )
    cache = Cache(settings.cache_mb * 2**20) if settings.cache_mb else None
    serving: Serving | None = None

    def start(model: Model) -> Pipeline:
        model = model if prepare is None else prepare(model)
        network = None
        if cache is not None:
            network = CachedNetwork(
                model, cache, lambda hits, misses: events.cached(model.name, hits, misses, cache.bytes)
            )
        return Pipeline(
            model,
            recorder.audit,
            expect=recorder.expect,
            max_batch=settings.positions_a_run,
            max_waiting=settings.max_queue,
            max_seconds=settings.max_wait_seconds,
            max_moves=settings.max_moves,
            plan=plan,
            network=network,
            events=events,
        )

    try:
        serving = Serving(
            settings.model_folders,
            settings.default_model,
            settings.threads,
            start,
            provider=provider,
            poll_seconds=settings.models_poll_seconds or None,
            trial_seconds=settings.trial_seconds,
            on_change=events.models,
        )
        yield Runtime(settings, serving, store, Figures(store.database), recorder)
    finally:
        if serving is not None:
            serving.close()
        recorder.close()
        store.close()


def audit_plan(settings: Settings) -> Plan:
    """What is measured by these settings. Raises SettingsError for an unknown kind."""
    named = [name.strip() for name in settings.audit_kinds.split(",") if name.strip()]
    chosen = set(KINDS) if named == ["all"] else {*named, *Plan().always}
    unknown = sorted(chosen - set(KINDS))
    if unknown:
        known = ", ".join(KINDS)
        raise SettingsError(f"MOVEMASK_AUDIT_KINDS: there is no {', '.join(unknown)}; there are {known}, or all")
    sources = {DERIVED.get(kind, kind) for kind in chosen}
    always = tuple(kind for kind in MEASURED if kind in sources)
    return Plan(always, settings.audit_share, settings.audit_cause_threshold)
