"""The service on Ray Serve: `serve run deploy/ray/serve.yaml`. The only module of the web that imports Ray.

Each replica is a whole service: the app of `create_app` with its own models, queue and batches. Ray balances the
requests, and starts and stops replicas by how many requests they are busy with.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ray import serve
from ray.serve import Application
from ray.serve.handle import DeploymentHandle
from starlette.types import ASGIApp, Receive, Scope, Send

from movemask.api.app import create_app
from movemask.api.replica_metrics import ReplicaMetrics
from movemask.api.services import Services
from movemask.audit.files import is_uri
from movemask.errors import SettingsError
from movemask.extras import require
from movemask.settings import Settings
from movemask.tasks.mirror import Mirror

#: The models that a replica tells Ray that it has loaded, so that requests for them come to it.
_ROUTED_MODELS = 64


def application(arguments: Mapping[str, Any]) -> Application:
    """The application of serve.yaml. Raises SettingsError before a replica starts.

    `arguments` are settings by name, without the prefix; `models_dir` may be the URI of a folder in object storage.
    """
    settings = _settings(arguments)
    if settings.database_url.startswith("sqlite:///") and not settings.database_url.startswith("sqlite:////"):
        raise SettingsError(
            f"MOVEMASK_DATABASE_URL: {settings.database_url} is a file in each replica's own folder, but replicas "
            "share one database: name one in PostgreSQL, or on a single node a file by an absolute path"
        )
    if not is_uri(str(arguments.get("models_dir", ""))):
        settings.model_folders.files(settings.default_model)
    metrics = serve.deployment(ReplicaMetrics, name="metrics", num_replicas=1, ray_actor_options={"num_cpus": 0}).bind()
    replica = serve.deployment(serve.ingress()(Replica), name="movemask")
    return replica.bind(dict(arguments), metrics)


class Replica:
    """One replica of the service."""

    def __init__(self, arguments: dict[str, Any], metrics: DeploymentHandle) -> None:
        self._metrics = metrics
        self._mirror: Mirror | None = None
        source = str(arguments.get("models_dir", ""))
        if is_uri(source):
            require("audit", "a models_dir in object storage")
            self._folder = tempfile.TemporaryDirectory(prefix="movemask-models-")
            arguments = {**arguments, "models_dir": self._folder.name}
            poll = _settings(arguments).models_poll_seconds
            self._mirror = Mirror(source, Path(self._folder.name), poll or None)
        self._app = create_app(_settings(arguments), exposition=self._exposition)

    def __serve_build_asgi_app__(self) -> ASGIApp:
        async def app(scope: Scope, receive: Receive, send: Send) -> None:  # uvicorn takes a method for ASGI 2
            await self._serve(scope, receive, send)

        return app

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The app, which tells Ray of the model that a request is routed by."""
        if scope["type"] == "http":
            model = serve.get_multiplexed_model_id()
            if model:
                await self.route(model)
        await self._app(scope, receive, send)

    @serve.multiplexed(max_num_models_per_replica=_ROUTED_MODELS)  # type: ignore[untyped-decorator,unused-ignore]
    async def route(self, model: str) -> str:
        """Tells Ray that this replica has the model from now on. The request itself loads it, if need be."""
        return model

    async def check_health(self) -> None:
        """Raises if only another process can help: Ray then replaces this one. Also sends the replica's metrics."""
        services: Services = self._app.state.services
        stopped = services.serving.stopped()
        if stopped:
            raise RuntimeError(f"the threads of these models have stopped: {', '.join(stopped)}")
        if self._mirror is not None and self._mirror.stopped:
            raise RuntimeError("the thread that copies the models has stopped")
        await self._report()

    async def _exposition(self) -> bytes:
        """The metrics of all replicas."""
        await self._report()
        text: bytes = await self._metrics.exposition.remote()
        return text

    async def _report(self) -> None:
        services: Services = self._app.state.services
        replica = serve.get_replica_context().replica_id.unique_id
        await self._metrics.report.remote(replica, services.metrics.exposition())


def _settings(arguments: Mapping[str, Any]) -> Settings:
    unknown = sorted(set(arguments) - set(Settings.model_fields))
    if unknown:
        raise SettingsError(f"args of the application: there is no setting {', '.join(unknown)}")
    return Settings.read(**arguments)
