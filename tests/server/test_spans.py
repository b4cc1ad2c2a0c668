"""OpenTelemetry spans of a request."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from movemask.server.app import create_app
from movemask.server.settings import Settings
from tests.networks import write_fake
from tests.parts import part_of
from tests.processes import call, environment, served, stopped

sdk: Any = pytest.importorskip("opentelemetry.sdk.trace", reason="OpenTelemetry's SDK is not installed")
export: Any = pytest.importorskip("opentelemetry.sdk.trace.export", reason="OpenTelemetry's SDK is not installed")
memory: Any = pytest.importorskip("opentelemetry.sdk.trace.export.in_memory_span_exporter")

NO_EXPORTER = "OpenTelemetry's exporter is not installed: pip install 'movemask[otel]'"
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"


@pytest.fixture
def exporter() -> Any:
    return memory.InMemorySpanExporter()


@pytest.fixture
def client(tmp_path: Path, exporter: Any) -> Iterator[TestClient]:
    write_fake(tmp_path / "models")
    settings = Settings.read(models_dir=tmp_path / "models", database_url=f"sqlite:///{tmp_path}/audit.db", runs=1)
    provider = sdk.TracerProvider()
    provider.add_span_processor(export.SimpleSpanProcessor(exporter))
    with TestClient(create_app(settings, tracer_provider=provider), base_url="http://localhost") as test_client:
        yield test_client


@pytest.mark.parametrize(("path", "body"), [("/v1/policy", {"moves": []}), ("/v1/games", {"pgn": "1. e4 e5 *"})])
def test_request_has_queue_network_and_answer(client: TestClient, exporter: Any, path: str, body: Any) -> None:
    headers = {"traceparent": f"00-{TRACE}-00f067aa0ba902b7-01", "X-Request-ID": "mine"}
    assert client.post(path, json=body, headers=headers).status_code == 200
    result = {span.name: span for span in exporter.get_finished_spans()}
    assert set(result) == {f"POST {path}", "queue", "network", "answer"}
    whole = result[f"POST {path}"]
    assert f"{whole.context.trace_id:032x}" == TRACE
    assert whole.attributes["http.route"] == path
    assert whole.attributes["http.response.status_code"] == 200
    assert whole.attributes["movemask.request_id"] == "mine"
    queue, network, response = result["queue"], result["network"], result["answer"]
    for span in (queue, network, response):
        assert span.parent.span_id == whole.context.span_id
    assert whole.start_time <= queue.start_time <= queue.end_time == network.start_time
    assert network.start_time < network.end_time == response.start_time <= response.end_time <= whole.end_time
    assert network.attributes["movemask.model"] == "fake"
    assert network.attributes["movemask.positions"] == {"/v1/policy": 1, "/v1/games": 2}[path]


def test_problem_and_finished_game_have_no_network(client: TestClient, exporter: Any) -> None:
    client.post("/v1/policy", json={"fen": "x"})
    client.post("/v1/policy", json={"fen": "7k/5Q2/6K1/8/8/8/8/8 b - - 0 1"})
    client.get("/v1/models/fake")
    spans = exporter.get_finished_spans()
    assert [span.name for span in spans] == ["POST /v1/policy", "POST /v1/policy", "GET /v1/models/{name}"]
    assert [span.attributes["http.response.status_code"] for span in spans] == [422, 200, 200]


@contextmanager
def collector() -> Iterator[tuple[str, list[tuple[str, bytes]]]]:
    """An OTLP endpoint, and the path and body of each export that it got."""
    exports: list[tuple[str, bytes]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            exports.append((self.path, self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever).start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}", exports
        finally:
            server.shutdown()


@pytest.mark.parametrize("workers", part_of(["2", "1"], 2))
def test_spans_reach_collector(models: Path, workers: str) -> None:
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http.trace_exporter", reason=NO_EXPORTER)
    messages: Any = pytest.importorskip("opentelemetry.proto.collector.trace.v1.trace_service_pb2")
    with collector() as (url, exports):
        variables = environment(OTEL_EXPORTER_OTLP_ENDPOINT=url, OTEL_SERVICE_NAME="mine")
        with served(models, "--workers", workers, env=variables) as (process, port):
            call(port, "/v1/policy", {"moves": []}, traceparent=f"00-{TRACE}-00f067aa0ba902b7-01")
            assert stopped(process) == 0  # which sends what waits
    result = set()
    for path, body in exports:
        assert path == "/v1/traces"
        for resource in messages.ExportTraceServiceRequest.FromString(body).resource_spans:
            named = {(item.key, item.value.string_value) for item in resource.resource.attributes}
            assert ("service.name", "mine") in named
            spans = [span for scope in resource.scope_spans for span in scope.spans]
            result |= {span.name for span in spans if span.trace_id.hex() == TRACE}
    assert result == {"POST /v1/policy", "queue", "network", "answer"}, (models / "log.txt").read_text()


def test_missing_collector_does_not_delay_stop(models: Path) -> None:
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http.trace_exporter", reason=NO_EXPORTER)
    with collector() as (url, _):
        pass
    variables = environment(OTEL_EXPORTER_OTLP_ENDPOINT=url, OTEL_EXPORTER_OTLP_TIMEOUT="1")
    with served(models, env=variables) as (process, port):
        call(port, "/v1/policy", {"moves": []})
        assert stopped(process) == 0
