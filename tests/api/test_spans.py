"""What an operator would lose: the span of a request, in the trace of who asked."""

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


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("POST", "/v1/policy", {"moves": []}, 200),
        ("POST", "/v1/policy", {"fen": "x"}, 422),
        ("GET", "/v1/models", None, 200),
    ],
)
def test_a_request_has_one_span_in_the_trace_of_who_asked(
    client: TestClient, exporter: Any, method: str, path: str, body: Any, status: int
) -> None:
    headers = {"traceparent": f"00-{TRACE}-00f067aa0ba902b7-01", "X-Request-ID": "mine"}
    assert client.request(method, path, json=body, headers=headers).status_code == status
    (span,) = exporter.get_finished_spans()
    assert (span.name, f"{span.context.trace_id:032x}") == (f"{method} {path}", TRACE)
    expected = {"http.route": path, "http.response.status_code": status, "movemask.request_id": "mine"}
    assert expected.items() <= span.attributes.items()
