"""`Services`: what the app's routes are handed, made in its lifespan."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request

from movemask.api.metrics import Metrics
from movemask.api.readers import Readers
from movemask.inference.model import Model
from movemask.runtime import Runtime, running
from movemask.settings import Settings


@dataclass(frozen=True)
class Services(Runtime):
    """The process's runtime, and what only the web needs."""

    readers: Readers
    metrics: Metrics


@contextmanager
def running_services(
    settings: Settings, metrics: Metrics, prepare: Callable[[Model], Model] | None = None
) -> Iterator[Services]:
    """The runtime with the web's own; ends them in order."""
    readers = Readers(settings.max_readers)
    with running(settings, metrics, prepare) as runtime:
        try:
            yield Services(
                runtime.settings, runtime.serving, runtime.store, runtime.figures, runtime.recorder, readers, metrics
            )
        finally:
            readers.close()


async def services(request: Request) -> Services:
    """The app's services, for a route. Not a plain function: FastAPI would run it on one of the shared threads, which
    a probe must not wait for."""
    found: Services = request.app.state.services
    return found


Given = Annotated[Services, Depends(services)]
