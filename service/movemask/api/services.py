"""`Services`: what the routes use, made in the app's lifespan."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request

from movemask.api.metrics import Metrics
from movemask.api.readers import Readers
from movemask.network.model import Model
from movemask.service import Runtime, running
from movemask.settings import Settings


@dataclass(frozen=True)
class Services(Runtime):
    """The process's runtime, the readers of the audit and the metrics."""

    readers: Readers
    metrics: Metrics


@contextmanager
def running_services(
    settings: Settings, metrics: Metrics, prepare: Callable[[Model], Model] | None = None
) -> Iterator[Services]:
    """The services of one app; closes them in order. `prepare` as in `service.running`."""
    readers = Readers(settings.max_readers)
    with running(settings, metrics, prepare) as runtime:
        try:
            yield Services(**vars(runtime), readers=readers, metrics=metrics)
        finally:
            readers.close()


async def services(request: Request) -> Services:
    """The app's services, as a dependency of routes.

    `async`, because FastAPI runs plain functions on the shared threads, which a probe must not wait for.
    """
    app_services: Services = request.app.state.services
    return app_services


AppServices = Annotated[Services, Depends(services)]
