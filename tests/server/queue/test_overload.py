"""Overloaded and hanging services: status codes, probes, clients that leave."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx2
import pytest
from fastapi.testclient import TestClient
from pydantic import SecretStr

from benchmarks.load import request
from movemask.network.model import Array, Model, Session, TensorInfo
from movemask.server.app import create_app
from movemask.server.settings import Settings
from tests.networks import write_fake
from tests.server.asking import refused
from tests.server.edge.test_guard import listening, sent

pytestmark = pytest.mark.anyio


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    models, url = write_fake(tmp_path / "m").parent, f"sqlite:///{tmp_path}/audit.db"
    return Settings.read(models_dir=models, database_url=url, runs=1, max_queue=2, max_batch=4)


class Gated:
    """A session behind a gate: a run begins, says so, and waits until it is let through."""

    session: Session
    runs = 1

    def __init__(self) -> None:
        self.begun = threading.Semaphore(0)
        self.open = threading.Event()
        self.sizes: list[int] = []

    def __call__(self, model: Model) -> Model:
        """The model with the gate before its network."""
        self.session = model.session
        return replace(model, session=self)

    @property
    def inputs(self) -> tuple[TensorInfo, ...]:
        return self.session.inputs

    @property
    def outputs(self) -> tuple[TensorInfo, ...]:
        return self.session.outputs

    def run(self, feeds: Mapping[str, Array], outputs: Sequence[str]) -> list[Array]:
        self.sizes.append(len(feeds["planes"]))
        self.begun.release()
        assert self.open.wait(30)
        return self.session.run(feeds, outputs)


@pytest.fixture
def gate() -> Iterator[Gated]:
    network = Gated()
    yield network
    network.open.set()


async def begun(gate: Gated) -> None:
    assert await asyncio.to_thread(gate.begun.acquire, timeout=30)


async def queued(app: Any, count: int) -> None:
    """Lets the loop run until so many positions wait for the network."""
    while sum(app.state.services.models.waiting.values()) != count:
        await asyncio.sleep(0.001)


@asynccontextmanager
async def opened(
    settings: Settings, gate: Callable[[Model], Model], **limits: Any
) -> AsyncIterator[tuple[Any, httpx2.AsyncClient]]:
    """The app behind the gate, and a client of it."""
    app = create_app(settings.model_copy(update=limits), prepare=gate)
    transport = httpx2.ASGITransport(app)
    async with (
        app.router.lifespan_context(app),
        httpx2.AsyncClient(transport=transport, base_url="http://localhost") as web,
    ):
        yield app, web


async def test_hanging_network_is_not_ready(settings: Settings, gate: Gated, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("movemask.server.queue.queue._STUCK_SECONDS", 0.5)
    owner, client = "o" * 20, "c" * 20
    async with opened(settings, gate, api_keys=SecretStr(f"{owner},{client}:policy")) as (_, web):
        web.headers["Authorization"] = f"Bearer {owner}"
        hanging = asyncio.create_task(web.post("/v1/policy", json={"moves": []}))
        await begun(gate)
        ends = time.monotonic() + 60  # a busy machine has taken its time with the first batches too
        while (response := await web.get("/readyz")).status_code == 200:
            assert time.monotonic() < ends, "still ready"
            await asyncio.sleep(0.1)
        assert "the default model 'fake' hangs: its network has been running for " in response.json()["detail"]
        unscoped = await web.get("/readyz", headers={"Authorization": f"Bearer {client}"})
        assert unscoped.json()["detail"] == "the default model cannot answer"
        assert (await web.get("/livez")).status_code == 200
        gate.open.set()
        assert (await hanging).status_code == 200
        assert (await web.get("/readyz")).status_code == 200


async def test_other_hanging_model_leaves_service_ready(
    settings: Settings, gate: Gated, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_fake(tmp_path / "m", "other")
    monkeypatch.setattr("movemask.server.queue.queue._STUCK_SECONDS", 0.0)

    def other_hangs(model: Model) -> Model:
        return gate(model) if model.name == "other" else model

    async with opened(settings, other_hangs, default_model="fake") as (_, web):
        hanging = asyncio.create_task(web.post("/v1/policy", json={"moves": [], "model": "other"}))
        await begun(gate)
        ready = await web.get("/readyz")
        assert ready.status_code == 200
        assert ready.json()["models"] == {
            "fake": "served",
            "other": "hangs: its network has been running for 0 s",
        }
        gate.open.set()
        assert (await hanging).status_code == 200


async def test_metrics_of_waiting_work_while_hanging(settings: Settings, gate: Gated, tmp_path: Path) -> None:
    def told(app: Any) -> list[str]:
        """The gauges, as a worker keeps them twice a second."""
        app.state.services.looked(1)
        lines = app.state.metrics.exposition().decode().splitlines()
        return [line for line in lines if line.startswith(("movemask_waiting_positions{", "movemask_ledger_waiting "))]

    async with opened(settings, gate) as (app, web):
        first = asyncio.create_task(web.post("/v1/policy", json={"moves": []}))
        await begun(gate)
        second = asyncio.create_task(web.post("/v1/policy", json={"moves": []}))
        await queued(app, 1)
        assert told(app) == ['movemask_waiting_positions{model="fake"} 1.0', "movemask_ledger_waiting 0.0"]
        with closing(sqlite3.connect(tmp_path / "audit.db", isolation_level=None, timeout=60)) as other:
            other.execute("BEGIN IMMEDIATE")
            gate.open.set()
            assert [(await one).status_code for one in (first, second)] == [200, 200]
            assert told(app) == ['movemask_waiting_positions{model="fake"} 0.0', "movemask_ledger_waiting 2.0"]


async def test_full_queue_is_503_with_retry_after(settings: Settings, gate: Gated) -> None:
    async with opened(settings, gate) as (app, web):
        first = asyncio.create_task(web.post("/v1/policy", json={"moves": []}))
        await begun(gate)
        rest = [asyncio.create_task(web.post("/v1/policy", json={"moves": ["e2e4"]})) for _ in range(2)]
        await queued(app, 2)
        answer = await web.post("/v1/policy", json={"moves": []})
        refused(answer, 503, "overloaded", "the queue has room for 2")
        assert int(answer.headers["Retry-After"]) >= 1
        gate.open.set()
        for answer in await asyncio.gather(first, *rest):
            assert answer.status_code == 200
        assert 'movemask_rejected_total{reason="overloaded"} 1.0' in (await web.get("/metrics")).text


async def test_probe_beside_large_bodies(settings: Settings, gate: Gated) -> None:
    large = {"model": "nobody", "positions": [{"fen": "startpos"}] * 800}
    answered: list[int] = []

    async def asked(answer: Awaitable[httpx2.Response]) -> None:
        answered.append((await answer).status_code)

    async with opened(settings, gate) as (_, web):
        bodies = [asked(web.post("/v1/policy/batch", json=large)) for _ in range(20)]
        await asyncio.gather(*bodies, asked(web.get("/livez")))
    assert sorted(answered) == [200] + [404] * 20
    assert answered.index(200) < 5


async def test_positions_of_a_client_that_leaves_are_dropped(settings: Settings, gate: Gated) -> None:
    async with opened(settings, gate) as (app, web), listening(app) as (_, port):
        first = asyncio.create_task(web.post("/v1/policy", json={"moves": []}))
        await begun(gate)
        _, second = await asyncio.open_connection("127.0.0.1", port)
        second.write(request("/v1/policy", b'{"moves": ["e2e4"]}'))
        await queued(app, 1)
        second.close()
        await queued(app, 0)
        gate.open.set()
        assert (await first).status_code == 200
        assert gate.sizes == [1]
        assert 'route="/v1/policy",status="499"} 1.0' in (await web.get("/metrics")).text


@pytest.mark.parametrize("path", ["/v1/policy", "/v1/policy/batch", "/v1/games"])
async def test_client_that_leaves_during_its_body_is_499(
    settings: Settings, gate: Gated, path: str, caplog: pytest.LogCaptureFixture
) -> None:
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 30000\r\n\r\n"
    counted = f'movemask_requests_total{{method="POST",route="{path}",status="499"}} 3.0'
    async with opened(settings, gate) as (app, web), listening(app) as (_, port):
        for start in (b"", b'{"fen": "rnbq', b" " * 20_000):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(head.encode() + start)
            await writer.drain()
            writer.close()
        while counted not in (await web.get("/metrics")).text:
            await asyncio.sleep(0.01)
    assert [entry for entry in caplog.records if entry.levelname == "ERROR" or entry.exc_info] == []


async def test_slow_body_is_408(settings: Settings, gate: Gated) -> None:
    async with opened(settings, gate) as (app, web), listening(app, body_seconds=0.2) as (_, port):
        answer = await sent(port, request("/v1/policy", b'{"moves": []}')[:-1])
        assert answer.startswith(b"HTTP/1.1 408 ")
        while (metrics := (await web.get("/metrics")).text).count('route="/v1/policy"') == 0:
            await asyncio.sleep(0.01)
    assert 'movemask_requests_total{method="POST",route="/v1/policy",status="408"} 1.0' in metrics


async def test_client_that_leaves_before_first_line_is_499(settings: Settings, gate: Gated) -> None:
    async with opened(settings, gate) as (app, web), listening(app) as (_, port):
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        raw = request("/v1/policy/batch", b'{"positions": [{"moves": []}]}')
        writer.write(raw.replace(b"\r\n", b"\r\nAccept: application/x-ndjson\r\n", 1))
        await begun(gate)
        writer.close()
        while 'route="/v1/policy/batch",status=' not in (metrics := (await web.get("/metrics")).text):
            await asyncio.sleep(0.01)
        gate.open.set()
    assert 'movemask_requests_total{method="POST",route="/v1/policy/batch",status="499"} 1.0' in metrics


async def test_too_many_bytes_in_flight_are_refused_unread(settings: Settings, gate: Gated) -> None:
    async with opened(settings, gate, max_queue=4096, max_body_bytes=8 << 20) as (app, web):
        headers = {"Content-Type": "application/json"}
        large = b'{"positions": [{"moves": []}]' + b" " * 8_000_000 + b"}"
        waiting = [asyncio.create_task(web.post("/v1/policy/batch", content=large, headers=headers)) for _ in range(4)]
        await begun(gate)
        await queued(app, len(waiting) - sum(gate.sizes))
        answer = await web.post("/v1/policy/batch", content=large, headers=headers)
        refused(answer, 503, "overloaded", "30 MiB of yours")
        assert answer.headers["Retry-After"] == "1"
        assert (await web.get("/livez")).status_code == 200
        gate.open.set()
        assert [(await one).status_code for one in waiting] == [200] * 4
        again = await web.post("/v1/policy/batch", content=large, headers=headers)
        assert again.status_code == 200


def test_large_answer_comes_whole(client: TestClient) -> None:
    answer = client.post("/v1/policy/batch", json={"positions": [{"fen": "startpos"}] * 400})
    assert len(answer.content) > 300_000
    assert len(answer.json()["results"]) == 400


async def test_broken_stream_names_unanswered_positions(settings: Settings, gate: Gated) -> None:
    body = {"positions": [{"moves": [], "id": f"p{number}"} for number in range(100)]}
    async with opened(settings, gate) as (app, web):
        posted = web.post("/v1/policy/batch", json=body, headers={"Accept": "application/x-ndjson"})
        stream = asyncio.create_task(posted)
        await begun(gate)
        pipeline = app.state.services.models.pipeline(None)
        pipeline.queue.closed = True  # as at a stop, without waiting for the run behind the gate
        gate.open.set()
        results = [json.loads(line) for line in (await stream).text.splitlines()]
    assert [(result["index"], result["id"]) for result in results] == [(place, f"p{place}") for place in range(100)]
    assert ["moves" in result for result in results] == [True] * 64 + [False] * 36
    assert {result["error"]["type"] for result in results[64:]} == {"urn:movemask:problem:shutting-down"}
