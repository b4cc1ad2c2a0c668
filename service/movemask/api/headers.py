"""`SecurityHeaders`: middleware around all answers, which also checks hosts and finds the client behind proxies."""

from __future__ import annotations

import ipaddress
from contextlib import suppress
from functools import lru_cache

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from movemask.api import problems
from movemask.api.telemetry import Metrics
from movemask.settings import Settings

#: Pages whose scripts are their own, by the beginning of their path. Swagger UI and ReDoc have a script in the page.
_INLINE = (
    "default-src 'self'; script-src 'self' 'unsafe-inline'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
    "worker-src blob:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
#: The page: its own files, and what they ask of the service.
_PAGE = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "require-trusted-types-for 'script'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
POLICIES: dict[str, str] = {"/": _PAGE, "/docs": _INLINE, "/redoc": _INLINE}

#: The Content-Security-Policy of everything else: nothing in it is a page.
NOTHING = "default-src 'none'; frame-ancestors 'none'"

_ALWAYS = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-frame-options", b"DENY"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
)
_NO_STORE = (b"cache-control", b"no-store")
_STRICT = (b"strict-transport-security", b"max-age=31536000")

#: Paths that are asked by address, whatever the service is called.
_PROBES = ("/livez", "/readyz")


class SecurityHeaders:
    """ASGI middleware that adds security headers to every answer, refuses hosts that are not trusted, and replaces the
    client's address and scheme by those that the trusted proxies tell."""

    def __init__(self, app: ASGIApp, settings: Settings, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics
        self._proxies = settings.proxies
        names = [name.strip().lower() for name in settings.trusted_hosts.split(",") if name.strip()]
        self._any_host = "*" in names
        self._hosts = frozenset(name for name in names if not name.startswith("*."))
        self._domains = tuple(name[1:] for name in names if name.startswith("*."))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if self._proxies:
            _see_through(scope, self._proxies)
        extra = headers(scope["path"], scope["scheme"])

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                given = list(message.get("headers", ()))
                names = {name for name, _ in given}
                message["headers"] = given + [pair for pair in extra if pair[0] not in names]
            await send(message)

        if not self._any_host and scope["path"] not in _PROBES:
            host = _host(scope)
            if host not in self._hosts and not host.endswith(self._domains or ("/",)):
                refused = problems.problem(
                    "untrusted-host",
                    f"Host: {problems.shown(host)!r} is not served here (MOVEMASK_TRUSTED_HOSTS)",
                )
                self._metrics.problem(refused)
                await problems.response(refused)(scope, receive, send_with_headers)
                return
        await self._app(scope, receive, send_with_headers)


@lru_cache(maxsize=256)
def headers(path: str, scheme: str) -> list[tuple[bytes, bytes]]:
    """The security headers of an answer; an answer's own header of the same name wins."""
    policy = next((policy for page, policy in POLICIES.items() if path == page or path.startswith(page + "/")), NOTHING)
    found = [*_ALWAYS, (b"content-security-policy", policy.encode())]
    if path.startswith(("/v1", "/metrics")):
        found.append(_NO_STORE)
    if scheme == "https":
        found.append(_STRICT)
    return found


def _host(scope: Scope) -> str:
    """The name that the request is for, without the port."""
    host = next((value.decode("latin-1") for name, value in scope["headers"] if name == b"host"), "").lower()
    return host.partition("]")[0] + "]" if host.startswith("[") else host.partition(":")[0]


def _without_port(address: str) -> str:
    """An address of X-Forwarded-For without the port that some proxies add: `192.0.2.1:443`, `[2001:db8::1]:443`."""
    if address.startswith("["):
        return address[1:].partition("]")[0]
    return address.partition(":")[0] if address.count(":") == 1 else address


def _see_through(scope: Scope, proxies: int) -> None:
    """Takes the client's address and scheme from what the nearest `proxies` proxies have added.

    Each appends the address that it was asked from; anything before that was written by the client.
    """
    found = [value.decode("latin-1") for name, value in scope["headers"] if name == b"x-forwarded-for"]
    addresses = [address.strip() for value in found for address in value.split(",")]
    if len(addresses) >= proxies:
        with suppress(ValueError):  # not an address
            address = ipaddress.ip_address(_without_port(addresses[-proxies]))
            # A proxy that listens on :: writes ::ffff:192.0.2.1, and all of these would be of one network.
            mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
            scope["client"] = (str(mapped or address), 0)
    for name, value in scope["headers"]:
        if name == b"x-forwarded-proto" and value in (b"http", b"https"):
            scope["scheme"] = value.decode()
