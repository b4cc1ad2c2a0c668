"""The service on Ray Serve, for a cluster that runs Ray anyway. Each replica is a whole service.

    cd deploy/ray && serve run service:application database_url=postgresql://movemask@postgres/movemask

Arguments are settings by name; `MOVEMASK_…` variables of the nodes count too. Replicas share one database and need the
same models folder; each has its own /metrics, queue and rate limits. We recommend Kubernetes with `deploy/kubernetes`
instead: Ray Serve answers 0.12 to 0.58 of the requests that the plain service answers (benchmarks/results/cluster.md).
"""

from __future__ import annotations

from typing import Any

from ray import serve
from ray.serve import Application
from starlette.types import ASGIApp

from movemask.api.app import create_app
from movemask.errors import SettingsError
from movemask.settings import Settings


@serve.deployment(
    name="movemask",
    max_ongoing_requests=64,  # a replica gathers its batches from these
    max_queued_requests=1024,  # more are refused with a 503
    autoscaling_config={"min_replicas": 1, "max_replicas": 32, "target_ongoing_requests": 16},
    ray_actor_options={"num_cpus": 2},
)
@serve.ingress()
class Replica:
    """One replica of the service."""

    def __init__(self, arguments: dict[str, Any]) -> None:
        self._app = create_app(Settings.read(**arguments))

    def __serve_build_asgi_app__(self) -> ASGIApp:
        return self._app

    def check_health(self) -> None:
        """Raises if only another process can help: Ray then replaces this one."""
        if faults := self._app.state.services.serving.faults():
            raise RuntimeError("; ".join(faults))


def application(arguments: dict[str, Any]) -> Application:
    """The application; raises SettingsError before a replica starts."""
    unknown = sorted(set(arguments) - set(Settings.model_fields))
    if unknown:
        raise SettingsError(f"arguments: there is no setting {', '.join(unknown)}")
    settings = Settings.read(**arguments)
    if settings.database_url.startswith("sqlite:///") and not settings.database_url.startswith("sqlite:////"):
        raise SettingsError("MOVEMASK_DATABASE_URL: replicas share one database: name one in PostgreSQL")
    settings.model_folders.files(settings.default_model)
    return Replica.bind(arguments)
