"""Apps and clients for the tests of the web: the real app, its real store, the shipped fake or a network made here."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from service.api.app import create_app
from service.settings import Settings
from tests.networks import write_fake
from tests.postgres import Server, binaries, running

#: Longest that a test waits for what was answered to be written.
WRITTEN_SECONDS = 30


class AuditedClient(TestClient):
    """A client whose reads of the audit hold everything that was answered before: the service's own are as fresh as its
    last write, and a test does not wait for a clock. A database that cannot be written is not waited for."""

    def request(self, method: str, url: Any, **options: Any) -> Any:
        if method == "GET" and str(url).startswith(("/v1/leakage", "/v1/models/")):
            self.app.state.services.recorder.flush(WRITTEN_SECONDS)  # type: ignore[attr-defined]
        return super().request(method, url, **options)


Serve = Callable[..., TestClient]

ROOT = Path(__file__).parent.parent


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    """Starts an app on a models folder (one fake if none is given) with the given settings; hands out its client."""
    with ExitStack() as stack:

        def start(models: Path | None = None, **settings: Any) -> TestClient:
            if models is None:
                models = tmp_path / "models"
                write_fake(models)
            usual = {"database_url": f"sqlite:///{tmp_path}/audit.db", "threads": 1, "audit_share": 0}
            chosen = {"models_dir": models, **usual, **settings}
            app = create_app(Settings.read(**chosen))
            return stack.enter_context(AuditedClient(app, raise_server_exceptions=False))

        yield start


@pytest.fixture(scope="session")
def postgres() -> Iterator[Server]:
    """A real PostgreSQL; skips by name where the machine has none."""
    tools = binaries()
    if tools is None:
        pytest.skip("PostgreSQL's server is not installed (Debian: apt-get install postgresql)")
    with running(tools) as server:
        yield server


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty database of each kind."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/audit.db"
    server: Server = request.getfixturevalue("postgres")
    return server.database()


@pytest.fixture
def client(serve: Serve) -> TestClient:
    """A client of the app on the fake."""
    return serve()
