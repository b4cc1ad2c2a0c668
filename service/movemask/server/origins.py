"""`OwnOrigin`: an ASGI app that web pages of other origins cannot reach, for /mcp."""

from __future__ import annotations

import ipaddress

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from movemask.server.forwarded import without_port
from movemask.server.problems import ProblemError, shown
from movemask.server.settings import Settings


class OwnOrigin:
    """Refuses requests of web pages of other origins: 403, unless MOVEMASK_CORS_ORIGINS names the origin.

    A page of any site can have a browser send requests to a server on the user's machine, by a name that the site
    points at 127.0.0.1 (DNS rebinding), and then its origin seems to be the server's own. So a service that listens
    there alone, without keys, proxies or MOVEMASK_TRUSTED_HOSTS, is asked by the names of the machine only.
    Source: https://modelcontextprotocol.io/specification/2025-06-18/basic/transports, "Security Warning".
    """

    def __init__(self, app: ASGIApp, settings: Settings, *, keyed: bool) -> None:
        self._app = app
        self._origins = set((settings.cors_origins or "").split(","))
        trusted = keyed or settings.proxies > 0 or settings.trusted_hosts != "*"
        self._local_only = not trusted and _is_loopback(settings.host)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers(scope=scope)
        host, origin = headers.get("host", ""), headers.get("origin")
        if self._local_only and not _is_loopback(without_port(host)):
            fault = f"Host: {shown(host)!r} is no name of this machine; set MOVEMASK_TRUSTED_HOSTS to serve it"
            raise ProblemError("untrusted-host", fault)
        own = f"{scope['scheme']}://{host}"
        if origin is not None and origin != own and not self._origins & {origin, "*"}:
            fault = f"Origin: pages of {shown(origin)!r} may not call {scope['path']} (MOVEMASK_CORS_ORIGINS)"
            raise ProblemError("forbidden", fault)
        await self._app(scope, receive, send)


def _is_loopback(host: str) -> bool:
    if host.lower() in ("localhost", ""):
        return host != ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
