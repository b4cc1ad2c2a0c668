"""What an operator of the service on Ray Serve would lose: a new version without a lost request, replicas that come
with the load, one audit of them all in PostgreSQL, keys and shares, and requests that go to where their model is."""

from __future__ import annotations

import json
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from click.testing import CliRunner

from benchmarks.ray_nodes import nodes
from movemask.cli.main import main
from tests.api.on_ray import answers, configured, counts, deploy, replicas, running, without_ray
from tests.networks import write_fake
from tests.ports import free_port
from tests.postgres import Server
from tests.processes import call, until

pytestmark = [pytest.mark.ray, without_ray]

TWO = {"min_replicas": 2, "max_replicas": 2}


class Cluster(NamedTuple):
    """A cluster to deploy onto: its dashboard's port, and that of the service."""

    dashboard: int
    port: int


@pytest.fixture(scope="module", params=["proxy", "haproxy"])
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """By Ray's own proxy, and by HAProxy as docs/scaling.md advises."""
    found = Cluster(free_port(), free_port())
    variables = {
        "RAY_SERVE_ENABLE_HA_PROXY": "1",
        "RAY_SERVE_THROUGHPUT_OPTIMIZED": "1",
        "RAY_SERVE_HAPROXY_METRICS_PORT": str(free_port()),
        "RAY_SERVE_HAPROXY_STATS_PORT": str(free_port()),
        "RAY_SERVE_DIRECT_INGRESS_MIN_DRAINING_PERIOD_S": "3",
    }
    used = variables if request.param == "haproxy" else None
    with nodes(1, cpus=2, dashboard=found.dashboard, variables=used):
        yield found


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = write_fake(tmp_path_factory.mktemp("models")).parent
    write_fake(folder, "newer", planes="maia2-18", vocabulary="maia2-1880")
    return folder


def served(cluster: Cluster, models: Path, arguments: dict[str, Any], **deployment: Any) -> None:
    """Deploys it, and waits until it runs."""
    deploy(models, cluster.dashboard, configured(models, cluster.port, arguments, **deployment))
    until(lambda: running(cluster.dashboard) and answers(cluster.port), "the service runs as it was deployed", 240)


@contextmanager
def asked(port: int, clients: int, **headers: str) -> Iterator[Counter[str]]:
    """Clients that ask all the time; counts the models that answered, and what went wrong."""
    outcomes: Counter[str] = Counter()
    ended = threading.Event()

    def client() -> None:
        while not ended.is_set():
            try:
                found = call(port, "/v1/policy", {"fen": "startpos"}, **headers)
                outcomes[found["model"]["name"] if len(found["moves"]) == 20 else "a wrong answer"] += 1
            except urllib.error.HTTPError as error:
                with error:
                    outcomes[f"{error.code} {error.read()[:100]!r}"] += 1
            except OSError as error:
                outcomes[repr(error)] += 1

    threads = [threading.Thread(target=client) for _ in range(clients)]
    for one in threads:
        one.start()
    try:
        yield outcomes
    finally:
        ended.set()
        for one in threads:
            one.join()


def test_a_new_version_takes_over_without_a_lost_request_and_its_answers_are_in_one_audit(
    cluster: Cluster, models: Path, postgres: Server
) -> None:
    database = {"database_url": postgres.database()}
    served(cluster, models, {**database, "default_model": "fake"}, autoscaling=TWO)
    with asked(cluster.port, 4) as outcomes:
        until(lambda: outcomes["fake"] > 50, "the old version answers")
        served(cluster, models, {**database, "default_model": "newer"}, autoscaling=TWO)
        before = outcomes["fake"]
        until(lambda: outcomes["newer"] > 200, "the new version answers")
    assert set(outcomes) == {"fake", "newer"}
    assert outcomes["fake"] - before < 4, "an old replica answered after the new version ran"
    until(lambda: audited(cluster.port) == dict(outcomes), "all answers of all replicas are in the audit")


def audited(port: int) -> dict[str, int]:
    return {name: one["positions"] for name, one in call(port, "/v1/leakage")["models"].items()}


def test_a_replica_comes_with_the_load(cluster: Cluster, models: Path, tmp_path: Path) -> None:
    scaling = {"min_replicas": 1, "max_replicas": 2, "target_ongoing_requests": 2, "downscale_delay_s": 1}
    served(cluster, models, {"database_url": f"sqlite:///{tmp_path}/audit.db"}, autoscaling=scaling)
    until(lambda: replicas(cluster.dashboard) == 1, "one replica runs")
    with asked(cluster.port, 12) as outcomes:
        until(lambda: replicas(cluster.dashboard) == 2, "another replica comes", 120)
        until(lambda: len(counts(cluster.port)) == 2, "the other replica answers")
    assert set(outcomes) == {"fake"}
    until(lambda: replicas(cluster.dashboard) == 1, "it goes with the load", 120)


def test_keys_and_shares_hold_on_every_replica(cluster: Cluster, models: Path, tmp_path: Path) -> None:
    file = tmp_path / "keys"
    made = CliRunner().invoke(main, ["keys", "new", "one", "--file", str(file), "--scope", "policy"])
    ours = {"Authorization": f"Bearer {made.stdout.strip()}"}
    settings = {
        "database_url": f"sqlite:///{tmp_path}/audit.db",
        "api_keys_file": str(file),
        "client_rate": 0.01,
        "client_burst": 5,
    }
    served(cluster, models, settings, autoscaling=TWO)
    strangers = Counter(
        refusal(cluster.port, "/v1/policy", **headers) for headers in ({}, {"Authorization": "Bearer x"})
    )
    assert strangers == {(401, "application/problem+json"): 2}
    answered = Counter(refusal(cluster.port, "/v1/policy", **ours) for _ in range(20))
    assert 5 <= answered[200, "application/json"] <= 10  # a share of 5 on each replica
    assert answered[429, "application/problem+json"] == 20 - answered[200, "application/json"]
    assert refusal(cluster.port, "/v1/leakage/positions", **ours) == (403, "application/problem+json")


def refusal(port: int, path: str, **headers: str) -> tuple[int, str]:
    """The status and the type of an answer."""
    body = json.dumps({"fen": "startpos"}).encode() if path == "/v1/policy" else None
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}{path}", body, {"Content-Type": "application/json", **headers}
    )
    try:
        answer = urllib.request.urlopen(request, timeout=30)
    except urllib.error.HTTPError as error:
        answer = error
    with answer:
        return answer.status, answer.headers["content-type"]


@pytest.mark.parametrize("cluster", ["proxy"], indirect=True)
def test_requests_for_a_model_go_to_the_replica_that_has_it(cluster: Cluster, models: Path, tmp_path: Path) -> None:
    served(cluster, models, {"database_url": f"sqlite:///{tmp_path}/audit.db"}, autoscaling=TWO)
    with asked(cluster.port, 4) as outcomes:
        until(lambda: len(counts(cluster.port)) == 2, "both replicas answer")
    until(lambda: sum(counts(cluster.port).values()) == outcomes.total(), "all are counted")
    header = {"serve_multiplexed_model_id": "newer"}
    before = counts(cluster.port)
    for asked_for in range(41):
        call(cluster.port, "/v1/policy", {"fen": "startpos", "model": "newer"}, **header)
        if not asked_for:
            time.sleep(3)  # the proxy hears of the model within a second, and nothing shows when
    until(lambda: sum(counts(cluster.port).values()) == sum(before.values()) + 41, "all are counted")
    assert sorted(count - before[name] for name, count in counts(cluster.port).items()) == [0, 41]
