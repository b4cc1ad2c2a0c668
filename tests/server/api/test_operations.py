"""Probes, metrics, models and the API page."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from movemask.errors import LedgerError
from movemask.server.ledger.reader import LedgerReader
from tests.conftest import Serve
from tests.networks import write_fake
from tests.server.asking import refused, sample


def test_probes(client: TestClient) -> None:
    assert client.get("/livez").json() == {"status": "alive"}
    ready = client.get("/readyz")
    assert ready.status_code == 200
    assert ready.json()["models"] == {"fake": "served"}
    assert ready.json()["ledger"] == {"waiting": 0, "lost": 0, "failure": None}


def test_failed_default_model_is_not_ready(serve: Serve, tmp_path: Path) -> None:
    write_fake(tmp_path / "m", "good")
    (tmp_path / "m" / "bad.toml").write_text("[contract]\n")
    client = serve(tmp_path / "m", default_model="bad")
    assert client.get("/livez").status_code == 200
    ready = client.get("/readyz")
    assert ready.status_code == 503
    assert "'bad' failed its check: bad.toml: contract.planes: this key is missing" in ready.json()["detail"]
    response = client.post("/v1/policy", json={"moves": []})
    refused(response, 503, "model-unavailable")
    assert client.post("/v1/policy", json={"moves": [], "model": "good"}).status_code == 200
    entry = client.get("/v1/models/bad").json()
    assert (entry["served"], entry["default"]) == (False, True)
    assert "this key is missing" in entry["failure"]


def test_recorded_default_that_fails_is_not_ready(serve: Serve, tmp_path: Path) -> None:
    folder = write_fake(tmp_path / "m", "good").parent
    (folder / "default").write_text("bad\n")
    for words in ("'bad' is not in the models folder", "'bad' failed its check: bad.toml: contract.planes"):
        client = serve(folder)
        ready = client.get("/readyz")
        assert ready.status_code == 503
        assert words in ready.json()["detail"]
        refused(client.post("/v1/policy", json={"moves": []}), 503, "model-unavailable")
        assert client.post("/v1/policy", json={"moves": [], "model": "good"}).status_code == 200
        (folder / "bad.toml").write_text("[contract]\n")


def test_unreadable_ledger_is_503_with_reason_in_log(
    client: TestClient, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: Any, **__: Any) -> Any:
        raise LedgerError("the ledger cannot be read: connection to db.internal (10.0.0.5), port 5432 failed")

    monkeypatch.setattr(LedgerReader, "summaries", broken)
    response = client.get("/v1/leakage")
    refused(response, 503, "ledger-unavailable")
    assert "db.internal" not in response.text
    assert "5432" not in response.text
    assert "db.internal (10.0.0.5), port 5432" in caplog.text


def test_model_page_without_database(serve: Serve, tmp_path: Path) -> None:
    """An alert sends the operator there when a model is not served."""
    client = serve(database_url=f"sqlite:///{tmp_path}/gone/audit.db")
    refused(client.get("/v1/leakage"), 503, "ledger-unavailable")
    response = client.get("/v1/models/fake")
    assert response.status_code == 200
    assert response.json()["contract"]["terms"]["planes"] == "maia2-18"
    assert "leakage" not in response.json()


def test_metrics(serve: Serve) -> None:
    client = serve()
    client.post("/v1/policy", json={"moves": []})
    client.post(
        "/v1/policy/batch", json={"positions": [{"moves": []}, {"fen": "x"}, {"fen": "7k/5Q2/6K1/8/8/8/8/8 b - - 0 1"}]}
    )
    client.post("/v1/policy", json={"fen": "x"})
    client.get("/nowhere")
    ok = 'movemask_requests_total{method="POST",route="/v1/policy",status="200"}'
    assert sample(client, ok) == 1
    assert sample(client, ok.replace("200", "422")) == 1
    assert sample(client, 'movemask_requests_total{method="GET",route="other",status="404"}') == 1
    client.post("/v1/games", content=b"{}")
    client.post("/v1/move", json={"fen": " " * 70_000})
    assert sample(client, 'movemask_requests_total{method="POST",route="/v1/games",status="415"}') == 1
    assert sample(client, 'movemask_requests_total{method="POST",route="/v1/move",status="413"}') == 1
    assert sample(client, 'movemask_positions_total{model="fake",status="ongoing"}') == 2
    assert sample(client, 'movemask_positions_total{model="fake",status="stalemate"}') == 1
    assert sample(client, 'movemask_invalid_total{problem="invalid-fen"}') == 2
    assert sample(client, 'movemask_batches_total{model="fake"}') == 2
    assert sample(client, 'movemask_batch_size_sum{model="fake"}') == 2
    assert sample(client, 'movemask_queue_seconds_count{model="fake"}') == 2
    assert sample(client, 'movemask_inference_seconds_count{model="fake"}') == 2
    leakage = 'movemask_leakage_count{kind="raw",model="fake",trained_with_mask="false"}'
    assert sample(client, leakage) == 2
    assert sample(client, "movemask_served_leakage_total") == 0
    assert "rnbqkbnr" not in client.get("/metrics").text


@pytest.mark.parametrize(
    "accept",
    [
        "*/*",
        "text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
        "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,text/plain;version=1.0.0;q=0.4",
        "application/json",
    ],
)
def test_metrics_content_type(client: TestClient, accept: str) -> None:
    response = client.get("/metrics", headers={"Accept": accept})
    assert response.status_code == 200
    assert re.match(r"text/plain; version=\d", response.headers["content-type"])


def test_docs_work_offline_and_examples_run(serve: Serve, tmp_path: Path) -> None:
    for name in ("maia-1100", "maia-1500", "maia-1900"):  # the names of the examples
        write_fake(tmp_path / "m", name, elo=True)
    client = serve(tmp_path / "m")
    for path in ("/docs", "/docs/oauth2-redirect"):
        page = client.get(path)
        assert page.status_code == 200
        assert not re.search(r"(src|href)=[\"']https?://", page.text)
    schema = client.get("/openapi.json").json()
    ran = 0
    for path, methods in schema["paths"].items():
        for body in (method["requestBody"] for method in methods.values() if "requestBody" in method):
            reference = body["content"]["application/json"]["schema"]["$ref"].rpartition("/")[2]
            for example in schema["components"]["schemas"][reference]["examples"]:
                response = client.post(path, json=example)
                assert response.status_code == 200, response.text
                ran += 1
    assert ran >= 5
    item = schema["components"]["schemas"]["BatchIn"]["properties"]["positions"]["items"]
    assert "HTTPValidationError" not in schema["components"]["schemas"]
    assert item == {"$ref": "#/components/schemas/BatchPositionIn"}


def test_request_seconds_leave_out_probes_and_files(serve: Serve) -> None:
    client = serve()
    for path in ("/v1/models", "/livez", "/"):
        client.get(path)
    metrics = client.get("/metrics").text
    timed = re.findall(r'movemask_request_seconds_count\{route="(.*?)"', metrics)
    assert timed == ["/v1/models"]  # no probes, no files of the page
