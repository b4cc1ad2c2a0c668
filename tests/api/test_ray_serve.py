"""What would be lost where the service runs on Ray Serve: answers, their audit, the metrics of a replica, a request
while a model is replaced."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import urllib.error
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest

from benchmarks.ray_nodes import nodes
from movemask.api.replica_metrics import GONE_SECONDS, ReplicaMetrics
from movemask.tasks.mirror import Mirror
from tests.api.on_ray import answers, command, configured, counts, without_ray
from tests.networks import write_fake
from tests.ports import free_port
from tests.processes import call, environment, started, until


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_fake(tmp_path_factory.mktemp("models")).parent


@pytest.fixture(scope="module")
def port(models: Path) -> Iterator[int]:
    port = free_port()
    config = configured(models, port, {"database_url": f"sqlite:///{models / 'audit.db'}"})
    (models / "serve.yaml").write_text(json.dumps(config))
    with (
        nodes(1, cpus=2) as cluster,
        (models / "log.txt").open("wb") as log,
        started(
            command("run", "-a", cluster.address, "serve.yaml"), cwd=models, stdout=log, stderr=subprocess.STDOUT
        ) as process,
    ):
        until(lambda: answers(port) or process.poll() is not None, "the service answers", 240)
        assert process.poll() is None, (models / "log.txt").read_text()
        until(lambda: len(replicas(port)) == 2, "two replicas answer", 120)
        yield port


def policy(port: int, model: str = "fake") -> Any:
    return call(port, "/v1/policy", {"fen": "startpos", "model": model})


def replicas(port: int) -> set[str]:
    """Those that have answered, after some requests."""
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda _: policy(port), range(32)))
    return set(counts(port))


def audited(port: int) -> int:
    """Positions that the replica which answers finds in the store: others may not have written theirs yet."""
    return int(call(port, "/v1/leakage")["models"].get("fake", {}).get("positions", 0))


@pytest.mark.ray
@without_ray
def test_a_replica_answers_as_the_service_does_and_is_audited(models: Path, port: int) -> None:
    answer = policy(port)
    assert len(answer["moves"]) == 20
    assert sum(move["probability"] for move in answer["moves"]) == pytest.approx(1, abs=1e-12)
    assert answer["leakage"]["served"] == 0
    before = audited(port)
    for _ in range(10):
        policy(port)
    until(lambda: audited(port) >= before + 10, "all are audited")
    with pytest.raises(urllib.error.HTTPError) as refused:
        call(port, "/v1/policy", {"fen": "nonsense"})
    with refused.value as problem:
        assert problem.headers["content-type"] == "application/problem+json"


@pytest.mark.ray
@without_ray
def test_the_metrics_are_of_all_replicas(port: int) -> None:
    before = sum(counts(port).values())
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda _: policy(port), range(64)))
    until(lambda: sum(counts(port).values()) >= before + 64, "both replicas have sent their metrics")
    assert len(counts(port)) == 2


@pytest.mark.ray
@without_ray
def test_models_come_and_go_without_a_lost_request(models: Path, port: int) -> None:
    with ThreadPoolExecutor(4) as pool:
        asked = [pool.submit(policy, port) for _ in range(200)]
        write_fake(models, "newer", planes="maia2-18", vocabulary="maia2-1880")
        assert all(len(one.result()["moves"]) == 20 for one in asked)
    until(lambda: knows(port, "newer"), "the new model is served")


def knows(port: int, model: str) -> bool:
    try:
        return bool(policy(port, model)["model"]["name"] == model)
    except urllib.error.HTTPError as error:
        error.close()
        return False


@pytest.mark.ray
@without_ray
def test_a_replica_that_is_killed_is_replaced_and_no_answer_is_wrong(port: int) -> None:
    right = policy(port)["moves"]
    before = set(counts(port))
    os.kill(replica_processes()[0], signal.SIGKILL)
    failed, codes = 0, set()
    for _ in range(100):
        try:
            assert policy(port)["moves"] == right
        except (urllib.error.HTTPError, ConnectionError) as error:
            failed += 1
            if isinstance(error, urllib.error.HTTPError):
                error.close()
                codes.add(error.code)
    assert failed < 100
    assert codes <= {500, 502, 503}
    until(lambda: len(replicas(port) - before) == 1, "another replica answers", 180)


def replica_processes() -> list[int]:
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if file.read_bytes().startswith(b"ray::ServeReplica:movemask:movemask"):
                found.append(int(file.parent.name))
        except OSError:
            continue
    assert found
    return sorted(found)


@pytest.mark.ray
@without_ray
def test_settings_are_refused_before_a_replica_starts() -> None:
    code = "import sys, json; from movemask.api.ray_serve import application; application(json.loads(sys.argv[1]))"
    for arguments, words in (
        ('{"database_url": "sqlite:///x.db"}', "is a file in each replica's own folder"),
        ('{"database": "x"}', "there is no setting database"),
        ('{"database_url": "postgresql://x/y", "models_dir": "/nowhere"}', "/nowhere"),
    ):
        found = subprocess.run(
            [sys.executable, "-c", code, arguments], env=environment(), capture_output=True, text=True
        )
        assert found.returncode == 1
        assert words in found.stderr.splitlines()[-1]


def exposed(name: str, value: float) -> bytes:
    registry = CollectorRegistry()
    Counter(name, "What.", ["model"], registry=registry).labels("m").inc(value)
    Gauge("waiting", "Waiting.", registry=registry).set(value)
    return generate_latest(registry)


def test_metrics_of_replicas_are_told_apart_and_forgotten_with_them() -> None:
    now = 0.0
    metrics = ReplicaMetrics(clock=lambda: now)
    metrics.report("a", exposed("answers", 3))
    now = GONE_SECONDS / 2
    metrics.report("b", exposed("answers", 4))
    text = metrics.exposition().decode()
    assert 'answers_total{model="m",replica="a"} 3.0' in text
    assert 'answers_total{model="m",replica="b"} 4.0' in text
    assert 'waiting{replica="b"} 4.0' in text
    assert text.count("# TYPE answers_total counter") == 1
    now = GONE_SECONDS * 1.25
    text = metrics.exposition().decode()
    assert 'replica="a"' not in text
    assert 'replica="b"' in text


def test_a_mirror_follows_its_folder(tmp_path: Path) -> None:
    source, to = tmp_path / "source", tmp_path / "to"
    to.mkdir()
    write_fake(source, "one")
    (source / "notes.txt").write_text("not a model")
    mirror = Mirror(f"file://{source}", to, None)
    assert [file.name for file in to.iterdir()] == ["one.toml"]
    write_fake(source, "two")
    (source / "one.toml").write_text("changed")
    mirror.copy()
    assert (to / "one.toml").read_text() == "changed"
    assert (to / "two.toml").exists()
    (source / "one.toml").unlink()
    mirror.copy()
    assert [file.name for file in to.iterdir()] == ["two.toml"]
    shutil.rmtree(source)
    with pytest.raises(OSError, match="source"):
        mirror.copy()
    assert (to / "two.toml").exists()
