"""`RootPath`: an ASGI app that a proxy serves under a path prefix, such as `/chess`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from starlette.responses import RedirectResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from movemask.server.settings import ROOT_PATH, Settings

_FORWARDED = re.compile(ROOT_PATH.encode())


class RootPath:
    """Sets ASGI's `root_path`, with which the links of /docs and /openapi.json begin, and removes it from the path.

    The prefix is the value of X-Forwarded-Prefix from the nearest trusted proxy, which has removed it from the path
    already. Without that header it is MOVEMASK_ROOT_PATH, which the proxy may have left in the path.
    """

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self._app, self._root_path, self._proxied = app, settings.root_path, settings.proxies > 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        root_path, path = self._root_path, scope["path"]
        if root_path and path.startswith(root_path + "/"):
            path = path.removeprefix(root_path)
        elif root_path and path == root_path:  # the page's links are relative
            query = scope["query_string"].decode("latin-1")
            url = f"{root_path}/{'?' if query else ''}{query}"
            await RedirectResponse(url, 308)(scope, receive, send)
            return
        if self._proxied:
            forwarded = [value for name, value in scope["headers"] if name == b"x-forwarded-prefix"]
            if forwarded and _FORWARDED.fullmatch(forwarded[-1]):
                root_path = forwarded[-1].decode()
        await self._app({**scope, "root_path": root_path, "path": path}, receive, send)


@contextmanager
def whole_path(scope: Scope) -> Iterator[None]:
    """Makes `path` begin with `root_path`, as Starlette expects. Other layers use the path without it."""
    path, root_path = scope.get("path", ""), scope.get("root_path", "")
    if not root_path:
        yield
        return
    scope["path"] = root_path + path
    try:
        yield
    finally:
        scope["path"] = path
