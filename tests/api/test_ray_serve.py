"""What would be lost where the service runs on Ray Serve: answers, their audit, and settings that are read."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.error
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import pytest

from benchmarks.ray_nodes import nodes
from movemask.errors import SettingsError
from tests.conftest import ROOT
from tests.networks import write_fake
from tests.processes import call, environment, free_port, started, until

pytestmark = [
    pytest.mark.ray,
    pytest.mark.skipif(find_spec("ray") is None, reason="ray is not installed: pip install 'movemask[ray]'"),
]

FOLDER = ROOT / "deploy" / "ray"
PYTHONPATH = os.pathsep.join([str(ROOT / "service"), str(FOLDER), os.environ.get("PYTHONPATH", "")])


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    port, models = free_port(), write_fake(tmp_path_factory.mktemp("models")).parent
    settings = {"database_url": f"sqlite:///{models}/audit.db", "models_dir": str(models), "threads": 1}
    application = {"name": "movemask", "import_path": "service:application", "args": settings}
    config = {"http_options": {"host": "127.0.0.1", "port": port}, "applications": [application]}
    (models / "serve.json").write_text(json.dumps(config))
    serve = [sys.executable, "-m", "ray.serve.scripts", "run", "-a"]
    with (
        nodes(1, cpus=2, variables={"PYTHONPATH": PYTHONPATH}) as cluster,
        (models / "log.txt").open("wb") as log,
        started(
            [*serve, cluster.address, "serve.json"],
            cwd=models,
            env=environment(PYTHONPATH=PYTHONPATH),
            stdout=log,
            stderr=subprocess.STDOUT,
        ) as process,
    ):
        until(lambda: answers(port) or process.poll() is not None, "the service answers", 240)
        assert process.poll() is None, (models / "log.txt").read_text()
        yield port


def audited(port: int) -> int:
    return int(call(port, "/v1/leakage")["models"].get("fake", {}).get("positions", 0))


def answers(port: int) -> bool:
    try:
        return bool(call(port, "/readyz")["status"] == "ready")
    except OSError as error:  # the proxy answers before the replica does
        if isinstance(error, urllib.error.HTTPError):
            error.close()
        return False


def test_a_replica_answers_as_the_service_does_and_is_audited(port: int) -> None:
    def ask(_: int) -> Any:
        return call(port, "/v1/policy", {"fen": "startpos"})

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(ask, range(40)))
    assert all(len(answer["moves"]) == 20 for answer in found)
    assert all(sum(move["probability"] for move in answer["moves"]) == pytest.approx(1, abs=1e-12) for answer in found)
    until(lambda: audited(port) == 40, "all are audited")
    with pytest.raises(urllib.error.HTTPError) as refused:
        call(port, "/v1/policy", {"fen": "nonsense"})
    with refused.value as problem:
        assert problem.headers["content-type"] == "application/problem+json"


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # Ray's own, at its import
@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"database_url": "sqlite:///x.db"}, "replicas share one database"),
        ({"database": "x"}, "there is no setting database"),
        ({"database_url": "postgresql://x/y", "models_dir": "/nowhere"}, "/nowhere"),
    ],
)
def test_wrong_settings_stop_the_start(monkeypatch: pytest.MonkeyPatch, given: dict[str, str], words: str) -> None:
    monkeypatch.syspath_prepend(FOLDER)
    with pytest.raises(SettingsError, match=words):
        import_module("service").application(given)
