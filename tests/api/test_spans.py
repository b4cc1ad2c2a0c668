"""What an operator would lose: where the time of a request went, in the trace of who asked."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from movemask.api.app import create_app
from movemask.settings import Settings
from tests.networks import write_fake

sdk: Any = pytest.importorskip("opentelemetry.sdk.trace", reason="OpenTelemetry's SDK is not installed")
export: Any = pytest.importorskip("opentelemetry.sdk.trace.export", reason="OpenTelemetry's SDK is not installed")
memory: Any = pytest.importorskip("opentelemetry.sdk.trace.export.in_memory_span_exporter")

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"


@pytest.fixture
def exporter() -> Any:
    return memory.InMemorySpanExporter()


@pytest.fixture
def client(tmp_path: Path, exporter: Any) -> Iterator[TestClient]:
    write_fake(tmp_path / "models")
    settings = Settings.read(models_dir=tmp_path / "models", database_url=f"sqlite:///{tmp_path}/audit.db", threads=1)
    provider = sdk.TracerProvider()
    provider.add_span_processor(export.SimpleSpanProcessor(exporter))
    with TestClient(create_app(settings, tracer_provider=provider)) as made:
        yield made


@pytest.mark.parametrize(("path", "body"), [("/v1/policy", {"moves": []}), ("/v1/games", {"pgn": "1. e4 e5 *"})])
def test_queue_network_and_answer_are_inside_their_request(
    client: TestClient, exporter: Any, path: str, body: Any
) -> None:
    headers = {"traceparent": f"00-{TRACE}-00f067aa0ba902b7-01", "X-Request-ID": "mine"}
    assert client.post(path, json=body, headers=headers).status_code == 200
    found = {span.name: span for span in exporter.get_finished_spans()}
    assert set(found) == {f"POST {path}", "queue", "network", "answer"}
    whole = found[f"POST {path}"]
    assert f"{whole.context.trace_id:032x}" == TRACE
    assert whole.attributes["http.route"] == path
    assert whole.attributes["http.response.status_code"] == 200
    assert whole.attributes["movemask.request_id"] == "mine"
    queue, network, answer = found["queue"], found["network"], found["answer"]
    for span in (queue, network, answer):
        assert span.parent.span_id == whole.context.span_id
    assert whole.start_time <= queue.start_time <= queue.end_time == network.start_time
    assert network.start_time < network.end_time == answer.start_time <= answer.end_time <= whole.end_time
    assert network.attributes["movemask.model"] == "fake"
    assert network.attributes["movemask.positions"] == {"/v1/policy": 1, "/v1/games": 2}[path]


def test_a_stream_has_a_queue_and_a_network_for_each_part(client: TestClient, exporter: Any) -> None:
    body: Any = {"positions": [{"moves": []}] * 130}
    client.post("/v1/policy/batch", json=body, headers={"Accept": "application/x-ndjson"})
    names = [span.name for span in exporter.get_finished_spans()]
    assert sorted(names) == ["POST /v1/policy/batch", "answer", *["network"] * 3, *["queue"] * 3]


def test_a_problem_and_a_finished_game_have_no_network(client: TestClient, exporter: Any) -> None:
    client.post("/v1/policy", json={"fen": "x"})
    client.post("/v1/policy", json={"fen": "7k/5Q2/6K1/8/8/8/8/8 b - - 0 1"})
    client.get("/v1/models/fake")
    spans = exporter.get_finished_spans()
    assert [span.name for span in spans] == ["POST /v1/policy", "POST /v1/policy", "GET /v1/models/{name}"]
    assert [span.attributes["http.response.status_code"] for span in spans] == [422, 200, 200]
