"""Apps and clients for the tests of the web: the real app, its real ledger, the shipped fake or a network made here."""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from fastapi.testclient import TestClient

from movemask.local.network import Network, load
from movemask.network.files import shipped_models, user_models
from movemask.network.model import Model
from movemask.server.app import create_app
from movemask.server.logs import DirectHandler
from movemask.server.settings import Settings
from tests.networks import write_fake, write_net
from tests.postgres import Server, binaries, running
from tests.server.ledger.records import recorded

hypothesis.settings.register_profile("movemask", deadline=None, max_examples=50)  # no test fails for a busy machine
hypothesis.settings.load_profile("movemask")


class AuditedClient(TestClient):
    """A client whose reads of the audit hold everything that was answered before: the service's own are as fresh as its
    last write, and a test does not wait for a clock. A database that cannot be written is not waited for."""

    def request(self, method: str, url: Any, **options: Any) -> Any:
        if method == "GET" and str(url).startswith(("/v1/leakage", "/v1/models/", "/metrics", "/readyz")):
            recorded(self.app.state.services)  # type: ignore[attr-defined]
        return super().request(method, url, **options)


Serve = Callable[..., TestClient]

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="session", autouse=True)
def own_models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The user's own models folder: an empty one of this run, whoever runs it."""
    home = tmp_path_factory.mktemp("home")
    os.environ["XDG_DATA_HOME"] = str(home)
    os.environ["MOVEMASK_TRIAL_SECONDS"] = "0"  # networks made here need no trial; those of `test_trial` ask for one
    os.environ["MOVEMASK_ENGINE"] = ""  # answers are the same where an engine is installed; tests of one name it
    return user_models()


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """Tests that are coroutines run on asyncio's loop."""
    return "asyncio"


@pytest.fixture(autouse=True)
def _log_as_before() -> Iterator[None]:
    """A `movemask serve` inside the tests' own process configures its logging; the next test has none of it."""
    yield
    root = logging.getLogger()
    for handler in [one for one in root.handlers if isinstance(one, DirectHandler)]:
        root.removeHandler(handler)
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
            usual = {"database_url": f"sqlite:///{tmp_path}/audit.db", "threads": 1, "audit_share": 0}
            chosen = {"models_dir": models, **usual, **settings}
            app = create_app(Settings.read(**chosen), prepare=prepare)
            client = stack.enter_context(AuditedClient(app, raise_server_exceptions=False))
            return client

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
def models(tmp_path: Path) -> Path:
    """A models folder with the network `net`."""
    return write_net(tmp_path / "m").parent


@pytest.fixture
def client(serve: Serve) -> TestClient:
    """A client of the app on the fake."""
    return serve()


@pytest.fixture
def shipped(serve: Serve) -> TestClient:
    """A client of the shipped network, which takes both ratings."""
    return serve(shipped_models())


@pytest.fixture(scope="session")
def network() -> Network:
    """The shipped network, without a service."""
    return load()
