"""`Services`: what the routes use, made in the app's lifespan."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Annotated

from anyio import CapacityLimiter
from fastapi import Depends, Request

from movemask.api.metrics import Metrics
from movemask.api.readers import Readers
from movemask.api.telemetry import context_of
from movemask.network.model import Model
from movemask.pipeline import Pipeline
from movemask.service import Runtime, running
from movemask.settings import Settings

_PARSED_AT_ONCE = 2


@dataclass(frozen=True)
class Services(Runtime):
    """The process's runtime, the readers of the audit and the metrics; `parsing` bounds the large bodies that are
    parsed at once, each of which may take many times its size in memory."""

    readers: Readers
    metrics: Metrics
    parsing: CapacityLimiter

    @asynccontextmanager
    async def pipeline(self, model: str | None, http: Request) -> AsyncIterator[Pipeline]:
        """The pipeline of a model, on behalf of the client of a request; the model stays loaded meanwhile."""
        async with self.serving.lease(model) as pipeline:
            yield pipeline.for_caller(context_of(http.scope))


@contextmanager
def running_services(
    settings: Settings, metrics: Metrics, prepare: Callable[[Model], Model] | None = None
) -> Iterator[Services]:
    """The services of one app; closes them in order. `prepare` as in `service.running`."""
    readers = Readers(settings.max_readers)
    with running(settings, metrics, prepare) as runtime:
        try:
            yield Services(**vars(runtime), readers=readers, metrics=metrics, parsing=CapacityLimiter(_PARSED_AT_ONCE))
        finally:
            readers.close()


async def services(request: Request) -> Services:
    """The app's services, as a dependency of routes.

    `async`, because FastAPI runs plain functions on the shared threads, which a probe must not wait for.
    """
    app_services: Services = request.app.state.services
    return app_services


AppServices = Annotated[Services, Depends(services)]
