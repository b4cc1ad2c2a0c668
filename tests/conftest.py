"""Apps and clients for the tests of the web: the real app, its real ledger, the shipped fake or a network made here."""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import Any

import hypothesis
import pytest
import sqlalchemy as sa
from fastapi import FastAPI
from fastapi.testclient import TestClient

from movemask.local.network import Network, load
from movemask.network.files import shipped_models, user_models
from movemask.network.model import Model
from movemask.server.app import create_app
from movemask.server.ledger import postgresql, recorder
from movemask.server.ledger.tables import CELL, MODEL, POSITION, WORST
from movemask.server.logs import LogHandler
from movemask.server.settings import Settings
from tests.networks import write_fake, write_net
from tests.postgres import Server, binaries, running
from tests.processes import served
from tests.server.ledger.records import written

#: No test fails for a busy machine. scripts/test-deep tries many more examples.
_PATIENT = hypothesis.settings(deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
hypothesis.settings.register_profile("movemask", _PATIENT, max_examples=20)
hypothesis.settings.register_profile("deep", _PATIENT, max_examples=500)
hypothesis.settings.load_profile("movemask")


class AuditedClient(TestClient):
    """A client whose reads of the ledger hold everything that was answered before: the service's own are as fresh as
    its last write, and a test does not wait for a clock. A database that cannot be written is not waited for."""

    def __init__(self, app: FastAPI) -> None:
        super().__init__(app, base_url="http://localhost", raise_server_exceptions=False)

    def request(self, method: str, url: Any, **options: Any) -> Any:
        if method == "GET" and str(url).startswith(("/v1/leakage", "/v1/models/", "/metrics", "/readyz")):
            written(self.app.state.services.recorder)  # type: ignore[attr-defined]
        return super().request(method, url, **options)


Serve = Callable[..., TestClient]

#: Settings of every app here that a test does not set.
_USUAL: dict[str, Any] = {"runs": 1, "ledger_share": 0}

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="session", autouse=True)
def own_models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The user's own models folder: an empty one of this run, whoever runs it."""
    home = tmp_path_factory.mktemp("home")
    os.environ["XDG_DATA_HOME"] = str(home)
    os.environ["MOVEMASK_TRIAL_SECONDS"] = "0"  # networks made here need no trial; those of `test_trial` ask for one
    os.environ["MOVEMASK_ENGINE"] = ""  # answers are the same where an engine is installed; tests of one name it
    return user_models()


@pytest.fixture(scope="session", autouse=True)
def _recorded_at_once() -> None:
    """Answers are not gathered: a test that looks at what is recorded of them would wait for more."""
    recorder._TOGETHER = 0.0


@pytest.fixture(scope="session", autouse=True)
def _patient_postgresql() -> None:
    """PostgreSQL waits for a client that a busy machine holds up: 3 s between two statements once were too few."""
    postgresql._IDLE_SECONDS = 300


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """Tests that are coroutines run on asyncio's loop."""
    return "asyncio"


@pytest.fixture(autouse=True)
def _log_as_before() -> Iterator[None]:
    """A `movemask serve` inside the tests' own process configures its logging; the next test has none of it."""
    yield
    root = logging.getLogger()
    for handler in [one for one in root.handlers if isinstance(one, LogHandler)]:
        root.removeHandler(handler)
        handler.close()
        root.setLevel(logging.WARNING)
        logging.captureWarnings(False)
    logging.raiseExceptions = True


@pytest.fixture(scope="session", autouse=True)
def _signals() -> None:
    """SIGTERM, by which `timeout` and CI end a run, ends every fixture too. The processes of a run that a shell started
    with `&`, which ignores SIGINT, know Ctrl-C."""
    signal.signal(signal.SIGTERM, lambda *_: pytest.exit("SIGTERM"))
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    """Starts an app on a models folder (one fake if none is given) with the given settings; hands out its client.

    `prepare` puts another model in the place of one that was loaded."""
    with ExitStack() as stack:

        def start(
            models: Path | None = None, prepare: Callable[[Model], Model] | None = None, **settings: Any
        ) -> TestClient:
            if models is None:
                models = tmp_path / "models"
                write_fake(models)
            chosen = {"models_dir": models, "database_url": f"sqlite:///{tmp_path}/audit.db", **_USUAL, **settings}
            app = create_app(Settings.read(**chosen), prepare=prepare)
            client = stack.enter_context(AuditedClient(app))
            return client

        yield start


@pytest.fixture(scope="session")
def postgres() -> Iterator[Server]:
    """A real PostgreSQL; skips with a reason where the machine has none."""
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
def models(tmp_path: Path) -> Path:
    """A models folder with the network `net`."""
    return write_net(tmp_path / "m").parent


@pytest.fixture(scope="session")
def _kept(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[Path], TestClient]]:
    """Starts one app for each models folder in a test process; hands out its client with an empty ledger."""
    with ExitStack() as stack:

        @cache
        def started(models: Path) -> TestClient:
            url = f"sqlite:///{tmp_path_factory.mktemp('audit')}/audit.db"
            app = create_app(Settings.read(models_dir=models, database_url=url, **_USUAL))
            return stack.enter_context(AuditedClient(app))

        def emptied(models: Path) -> TestClient:
            client = started(models)
            client.cookies.clear()
            services = client.app.state.services  # type: ignore[attr-defined]
            written(services.recorder)
            with services.ledger.database.writing() as connection:
                for table in (POSITION, WORST, CELL, MODEL):
                    connection.execute(sa.delete(table))
            return client

        yield emptied


@pytest.fixture(scope="session")
def _fake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A models folder with the fake."""
    return write_fake(tmp_path_factory.mktemp("fake")).parent


@pytest.fixture
def client(_kept: Callable[[Path], TestClient], _fake: Path) -> TestClient:
    """A client of the app on the fake, which is started once; its ledger is empty, its metrics count on. A test that
    changes the app, or counts from nothing, starts one of its own by `serve`."""
    return _kept(_fake)


@pytest.fixture
def shipped(_kept: Callable[[Path], TestClient]) -> TestClient:
    """A client of the shipped network, which takes both ratings; as `client`."""
    return _kept(shipped_models())


@pytest.fixture(scope="session")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The port of a real service of the network `net`, with one worker, started once, because that takes three seconds.
    What stops, kills or sets a service starts its own by `served`."""
    with served(write_net(tmp_path_factory.mktemp("service") / "m").parent, "--workers", "1") as (_, port):
        yield port


@pytest.fixture(scope="session")
def network() -> Network:
    """The shipped network, without a service."""
    return load()
