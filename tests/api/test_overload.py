"""What a user would lose: a clear word when there is no room, and no work for a client that has gone."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx2
import pytest
import uvicorn
from fastapi.testclient import TestClient

from movemask.api.app import create_app
from movemask.network.model import Array, Model, Session, TensorInfo
from movemask.settings import Settings
from tests.conftest import Serve
from tests.networks import write_fake


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    write_fake(tmp_path / "m")
    url = f"sqlite:///{tmp_path}/audit.db"
    return Settings.read(models_dir=tmp_path / "m", database_url=url, threads=1, max_queue=2, max_batch=4)


class Gated:
    """A session behind a gate: a run begins, says so, and waits until it is let through."""

    session: Session
    at_once = 1

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
    made = Gated()
    yield made
    made.open.set()


async def begun(gate: Gated) -> None:
    assert await asyncio.to_thread(gate.begun.acquire, timeout=30)


async def queued(app: Any, count: int) -> None:
    """Lets the loop run until so many positions wait for the network."""
    async with app.state.services.serving.lease("fake") as pipeline:
        while pipeline.waiting != count:
            await asyncio.sleep(0.001)


def test_a_full_queue_is_a_503_with_retry_after_and_the_rest_is_answered(settings: Settings, gate: Gated) -> None:
    async def story() -> None:
        app = create_app(settings, prepare=gate)
        transport = httpx2.ASGITransport(app)
        async with (
            app.router.lifespan_context(app),
            httpx2.AsyncClient(transport=transport, base_url="http://t") as web,
        ):
            first = asyncio.create_task(web.post("/v1/policy", json={"moves": []}))
            await begun(gate)
            rest = [asyncio.create_task(web.post("/v1/policy", json={"moves": ["e2e4"]})) for _ in range(2)]
            await queued(app, 2)
            refused = await web.post("/v1/policy", json={"moves": []})
            assert refused.status_code == 503
            assert int(refused.headers["Retry-After"]) >= 1
            assert refused.json()["type"] == "urn:movemask:problem:overloaded"
            assert "the queue takes 2" in refused.json()["detail"]
            gate.open.set()
            for answer in await asyncio.gather(first, *rest):
                assert answer.status_code == 200
            metrics = (await web.get("/metrics")).text
            assert 'movemask_rejected_total{reason="overloaded"} 1.0' in metrics

    asyncio.run(story())


def test_a_client_that_goes_takes_its_positions_out_of_the_queue(settings: Settings, gate: Gated) -> None:
    async def story() -> None:
        app = create_app(settings, prepare=gate)
        body = b'{"moves": ["e2e4"]}'
        sent: list[Any] = []
        gone = asyncio.Event()

        async def receive() -> Any:
            if not sent:
                sent.append("body")
                return {"type": "http.request", "body": body, "more_body": False}
            await gone.wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            sent.append(message)

        async with app.router.lifespan_context(app):
            transport = httpx2.ASGITransport(app)
            async with httpx2.AsyncClient(transport=transport, base_url="http://t") as web:
                first = asyncio.create_task(web.post("/v1/policy", json={"moves": []}))
                await begun(gate)
                headers = [(b"content-type", b"application/json")]
                scope = {
                    "type": "http",
                    "asgi": {"version": "3.0"},
                    "http_version": "1.1",
                    "method": "POST",
                    "path": "/v1/policy",
                    "raw_path": b"/v1/policy",
                    "query_string": b"",
                    "root_path": "",
                    "scheme": "http",
                    "headers": headers,
                    "client": ("t", 1),
                    "server": ("t", 80),
                }
                second = asyncio.create_task(app(scope, receive, send))
                await queued(app, 1)
                gone.set()
                await second
                await queued(app, 0)
                gate.open.set()
                assert (await first).status_code == 200
            assert gate.sizes == [1]
            assert sent[1]["status"] == 499

    asyncio.run(story())
    assert threading.active_count() < 50


def test_a_stopping_server_finishes_what_it_has_begun_and_writes_the_audit(settings: Settings, gate: Gated) -> None:
    app = create_app(settings, prepare=gate)
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="error", timeout_graceful_shutdown=30))
    running = threading.Thread(target=server.run)
    running.start()
    while not server.started:
        running.join(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    answers: list[httpx2.Response] = []
    url = f"http://127.0.0.1:{port}/v1/policy"
    client = threading.Thread(target=lambda: answers.append(httpx2.post(url, json={"moves": []}, timeout=30)))
    client.start()
    assert gate.begun.acquire(timeout=30)
    server.should_exit = True
    gate.open.set()
    client.join(30)
    running.join(30)
    assert not running.is_alive()
    assert [answer.status_code for answer in answers] == [200]
    with TestClient(create_app(settings)) as again:
        assert again.get("/v1/leakage").json()["models"]["fake"]["positions"] == 1


def test_too_much_in_flight_is_refused_before_it_is_read_and_probes_answer(settings: Settings, gate: Gated) -> None:
    async def story() -> None:
        app = create_app(settings.model_copy(update={"max_in_flight_mb": 1, "max_queue": 4096}), prepare=gate)
        transport = httpx2.ASGITransport(app)
        async with (
            app.router.lifespan_context(app),
            httpx2.AsyncClient(transport=transport, base_url="http://t") as web,
        ):
            padded = b'{"moves": []' + b" " * 20_000 + b"}"
            headers = {"Content-Type": "application/json"}
            first = asyncio.create_task(web.post("/v1/policy", content=padded, headers=headers))
            await begun(gate)
            large = b" " * 1_040_000
            refused = await web.post("/v1/policy/batch", content=large, headers=headers)
            assert refused.status_code == 503
            assert "1 MiB" in refused.json()["detail"]
            assert refused.headers["Retry-After"] == "1"
            assert (await web.get("/livez")).status_code == 200
            gate.open.set()
            assert (await first).status_code == 200
            again = await web.post("/v1/policy/batch", content=large, headers=headers)
            assert again.status_code == 400  # it is read, and is no JSON

    asyncio.run(story())


def test_an_idle_service_takes_what_its_limit_says_and_single_positions_beside(settings: Settings, gate: Gated) -> None:
    async def story() -> None:
        app = create_app(settings.model_copy(update={"max_queue": 1024}), prepare=gate)
        transport = httpx2.ASGITransport(app)
        async with (
            app.router.lifespan_context(app),
            httpx2.AsyncClient(transport=transport, base_url="http://t") as web,
        ):
            body = {"positions": [{"fen": "startpos", "elo": {"self": 1500, "opponent": 1500}}] * 256}
            first = [asyncio.create_task(web.post("/v1/policy/batch", json=body)) for _ in range(4)]
            await begun(gate)
            small = asyncio.create_task(web.post("/v1/policy", json={"moves": []}))
            refused = await web.post("/v1/policy/batch", json=body)
            assert refused.status_code == 503
            assert "the queue takes 1024" in refused.json()["detail"]
            gate.open.set()
            assert (await small).status_code == 200
            assert [(await one).status_code for one in first] == [200] * 4

    asyncio.run(story())


def test_a_large_answer_comes_in_pieces_and_whole(serve: Serve) -> None:
    client = serve()
    answer = client.post("/v1/policy/batch", json={"positions": [{"fen": "startpos"}] * 400})
    assert len(answer.content) > 300_000
    assert len(answer.json()["results"]) == 400
