"""What FastAPI's routing costs a request, as a Markdown table: `python -m benchmarks.routing`.

The same small body is posted to three routes of the app, without HTTP, to an endpoint that answers at once: a
`PostRoute`, a route of FastAPI's with a handler of its own that reads the body alike, and a plain route. All pass the
same middleware. CPU time, the least of many rounds: what else the machine does matters little.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import chess
from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.routing import APIRoute

from movemask.server.app import create_app
from movemask.server.bodies import parsed, position_limits
from movemask.server.parameters import known_parameters
from movemask.server.post_routes import Router
from movemask.server.requests import PolicyIn
from movemask.server.settings import Settings
from movemask.server.state import AppServices

ROUNDS, REQUESTS = 15, 300
BODY = json.dumps({"fen": chess.STARTING_FEN, "include": ["san"]}).encode()
ROUTES = {"/post": "`PostRoute`", "/handler": "a route with a handler of its own", "/plain": "a plain route"}


async def endpoint(request: PolicyIn, http: Request, services: AppServices) -> Response:
    """Answers at once."""
    return Response(b"{}", media_type="application/json")


class OwnHandler(APIRoute):
    """A route that reads its body as `PostRoute` does."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        async def handle(http: Request) -> Response:
            services = http.app.state.services
            body = await http.body()
            request = parsed(body, PolicyIn, position_limits(services.settings), services.settings)
            await known_parameters(http)
            return await endpoint(request, http, services)

        return handle


async def post(app: FastAPI, path: str) -> None:
    """One request, as uvicorn hands it over."""
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(BODY)).encode())]
    scope = {"type": "http", "http_version": "1.1", "method": "POST", "path": path, "raw_path": path.encode()}
    scope |= {"asgi": {"version": "3.0"}, "query_string": b"", "root_path": "", "scheme": "http", "headers": headers}
    scope |= {"client": ("client", 1), "server": ("server", 80)}

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": BODY}

    async def send(message: Any) -> None:
        assert message.get("status", 200) == 200

    await app(scope, receive, send)


async def measured(folder: Path) -> dict[str, float]:
    """Seconds of CPU time a request, by path."""
    app = create_app(Settings.read(database_url=f"sqlite:///{folder}/audit.db", threads=1))
    app.add_api_route("/plain", endpoint, methods=["POST"])
    router = APIRouter(route_class=OwnHandler)
    router.add_api_route("/handler", endpoint, methods=["POST"])
    app.include_router(router)
    posts = Router(tags=["benchmark"])
    posts.post("/post", limits=position_limits)(endpoint)
    app.state.posts |= {route.path: route for route in posts.posts}  # as `create_app` does
    least = dict.fromkeys(ROUTES, float("inf"))
    async with app.router.lifespan_context(app):
        for _ in range(ROUNDS):
            for path in ROUTES:
                started = time.process_time()
                for _ in range(REQUESTS):
                    await post(app, path)
                least[path] = min(least[path], (time.process_time() - started) / REQUESTS)
    return least


def main() -> None:
    """Prints the table."""
    with tempfile.TemporaryDirectory() as folder:
        least = asyncio.run(measured(Path(folder)))
    print("| a small request through | CPU, µs |\n|---|---:|")
    for path, seconds in least.items():
        print(f"| {ROUTES[path]} | {1e6 * seconds:.0f} |")


if __name__ == "__main__":
    main()
