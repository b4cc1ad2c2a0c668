"""The metrics files of a worker: allocation, label sets without room, a full disk, replaced workers."""

from __future__ import annotations

from pathlib import Path

import pytest
from prometheus_client import values

from movemask.leakage.kinds import KINDS
from movemask.server.metrics import Metrics
from movemask.server.metrics_files import METRICS_FOLDER, SharedValues, forget_gauges
from tests.conftest import Serve
from tests.disks import file_system

KIB = 1024


def worker_metrics(monkeypatch: pytest.MonkeyPatch, folder: Path, number: int = 0, models: int = 1) -> Metrics:
    """The metrics of a worker with this number."""
    monkeypatch.setenv(METRICS_FOLDER, str(folder))
    monkeypatch.setattr(values, "ValueClass", SharedValues(folder, number, models))
    return Metrics()


def samples(metrics: Metrics, name: str) -> dict[str, float]:
    """Values in the exposition whose name begins with `name`."""
    lines = metrics.exposition().decode().splitlines()
    return {key: float(value) for key, value in (line.rsplit(" ", 1) for line in lines if line.startswith(name))}


def test_metrics_files_are_allocated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    worker_metrics(monkeypatch, tmp_path, number=3, models=2)
    sizes = {file.name: file.stat().st_size // KIB for file in tmp_path.iterdir()}
    assert sizes == {
        "counter_3.db": 256,
        "histogram_3.db": 128 + 2 * 96,
        "gauge_livesum_3.db": 64,
        "gauge_livemin_3.db": 64,
    }
    for file in tmp_path.iterdir():
        assert 512 * file.stat().st_blocks >= file.stat().st_size, f"{file.name} is sparse"


def test_eight_models_with_all_kinds_have_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    metrics = worker_metrics(monkeypatch, tmp_path, models=8)
    for number in range(8):
        model = f"a-network-with-a-rather-long-name-{number}"
        for metric in (metrics.batch_size, metrics.queue_seconds, metrics.inference_seconds):
            metric.labels(model).observe(1)
        for kind in KINDS:
            metrics.leakage.labels(model, kind, "false").observe(0.1)
    assert metrics.refused == 0
    assert len(samples(metrics, "movemask_leakage_count")) == 8 * len(KINDS)


@pytest.mark.parametrize("metric", ["requests", "leakage"])
def test_label_sets_without_room_are_refused_and_counted(
    metric: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    metrics = worker_metrics(monkeypatch, tmp_path)
    file = tmp_path / f"{'counter' if metric == 'requests' else 'histogram'}_0.db"
    size, count = file.stat().st_size, 0
    while not metrics.refused:
        count += 1
        labels = getattr(metrics, metric).labels(f"/{count}", "x" * (count % 50), "true")
        labels.inc() if metric == "requests" else labels.observe(0.5)
    assert count > (500 if metric == "requests" else 20)
    assert file.stat().st_size == size
    name = f"movemask_{metric}_total" if metric == "requests" else f"movemask_{metric}_count"
    assert sum(samples(metrics, name).values()) == count - 1
    if metric == "leakage":
        assert len(samples(metrics, "movemask_leakage_bucket")) == 16 * (count - 1), "a label set is whole or refused"
    metrics.update_gauges(0, {}, 0, ledger_writable=True)
    assert samples(metrics, "movemask_metrics_refused_total") == {"movemask_metrics_refused_total": 1}


def test_counters_go_on_with_the_number_also_in_a_full_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    metrics = worker_metrics(monkeypatch, tmp_path)
    count = 0
    while not metrics.refused:
        count += 1
        metrics.requests.labels(f"/{count}", "GET", "200").inc()
    metrics = worker_metrics(monkeypatch, tmp_path)
    metrics.requests.labels("/1", "GET", "200").inc()
    assert metrics.refused == 0
    assert samples(metrics, 'movemask_requests_total{method="GET",route="/1"') == {
        'movemask_requests_total{method="GET",route="/1",status="200"}': 2
    }


def test_gauges_of_an_ended_worker_are_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = worker_metrics(monkeypatch, tmp_path, number=0)
    first.connections.set(5)
    second = worker_metrics(monkeypatch, tmp_path, number=1)
    second.connections.set(2)
    assert samples(second, "movemask_connections") == {"movemask_connections": 7}
    forget_gauges(tmp_path, 0)
    assert samples(second, "movemask_connections") == {"movemask_connections": 2}
    assert (tmp_path / "gauge_livesum_0.db").stat().st_size == 64 * KIB, "the next worker has its room"


def test_metrics_without_room_stay_in_memory(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with file_system(tmp_path / "small", "size=400k") as folder:
        monkeypatch.setattr(values, "ValueClass", SharedValues(folder, 0, models=1))
        assert f"{folder} has no room for this worker's metrics (No space left on device)" in caplog.text
        assert {file.name for file in folder.iterdir()} == {"counter_0.db"}, "a file that is not whole is removed"
        client = serve()
        assert client.post("/v1/policy", json={"moves": []}).status_code == 200
        assert client.get("/readyz").json()["metrics"] == {"in_memory": True, "refused": 0}
        assert 'movemask_positions_total{model="fake",status="ongoing"} 1.0' in client.get("/metrics").text


def test_metrics_files_that_cannot_grow_are_used_as_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with file_system(tmp_path / "small", "size=700k") as folder:
        worker_metrics(monkeypatch, folder).positions.labels("a", "ongoing").inc()
        metrics = worker_metrics(monkeypatch, folder, models=8)
        metrics.positions.labels("a", "ongoing").inc()
        assert not metrics.in_memory
        assert list(samples(metrics, "movemask_positions_total").values()) == [2]
