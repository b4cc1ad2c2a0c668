"""`through`: the service of a TestClient, asked by a client of httpx2 for asyncio."""

from __future__ import annotations

import asyncio

import httpx2
from fastapi.testclient import TestClient


class _Transport(httpx2.AsyncBaseTransport):
    def __init__(self, http: TestClient) -> None:
        self._http = http

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        content = await request.aread()
        headers = [(name, value) for name, value in request.headers.raw if name != b"host"]
        answered = await asyncio.to_thread(
            self._http.request, request.method, request.url.raw_path.decode(), headers=headers, content=content
        )
        plain = [(name, value) for name, value in answered.headers.raw if name != b"content-encoding"]
        return httpx2.Response(answered.status_code, headers=plain, content=answered.content)


def through(http: TestClient) -> httpx2.AsyncClient:
    """For `Client(http=…)` and `AsyncClient(http=…)`."""
    return httpx2.AsyncClient(transport=_Transport(http), base_url="http://localhost")
