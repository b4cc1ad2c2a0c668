"""`HEADERS`: the headers of answers, each declared once: its value, what OpenAPI says of it, and whether pages of other
origins may read it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from movemask.server.edge.limits import RateLimit

#: Swagger UI, which has a script inside the page.
_INLINE = (
    b"default-src 'self'; script-src 'self' 'unsafe-inline'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
    b"worker-src blob:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
#: The page: its own files, and requests to the service.
_PAGE = (
    b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    b"manifest-src 'self'; require-trusted-types-for 'script'; "
    b"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_NOTHING = b"default-src 'none'; frame-ancestors 'none'"  # for answers that are no page

#: Content-Security-Policy by the path of the route.
_POLICIES = {"/": _PAGE, "/docs": _INLINE, "/docs/oauth2-redirect": _INLINE}

#: Paths whose responses to GET have an ETag in the OpenAPI document.
_CACHED = ("/v1/policy", "/v1/models")


class Answering(NamedTuple):
    """What the value of a header may depend on, if it differs by request. `rate` is false without rates."""

    request_id: str
    client: str
    rate: RateLimit


class Operation(NamedTuple):
    """A status of an operation in the OpenAPI document; `keyed` says whether the operation may need a key."""

    method: str
    path: str
    status: str
    keyed: bool


@dataclass(frozen=True, slots=True)
class Header:
    """A header of answers.

    value : of every answer, or by the template of its path and the scheme; None: the response that needs it sets it. A
        response's own header wins
    by_request : its value, if that differs by request; no response may have it already
    description : in OpenAPI; empty for those that only browsers heed
    documented : whether a response in OpenAPI has it
    exposed : whether pages of other origins may read it
    """

    name: str
    value: bytes | Callable[[str, str], bytes | None] | None = None
    description: str = ""
    documented: Callable[[Operation], bool] = lambda operation: True
    exposed: bool = False
    by_request: Callable[[Answering], bytes | None] | None = None


def _with_status(*statuses: str) -> Callable[[Operation], bool]:
    return lambda operation: operation.status in statuses


def _keyed(operation: Operation) -> bool:
    return operation.keyed


def _cached(operation: Operation) -> bool:
    return (
        operation.method == "get"
        and operation.path in _CACHED
        and operation.status in ("200", "304")
    )


def _caching(route: str, scheme: str) -> bytes | None:
    """For what is asked anew each time, and for what no route answers (`other`)."""
    return (
        b"no-store" if route.startswith(("/v1", "/metrics", "/livez", "/readyz", "other")) else None
    )


HEADERS = (
    Header(
        "X-Request-ID",
        description="The request's X-Request-ID, or else a new one. It is also in the log.",
        exposed=True,
        by_request=lambda answering: answering.request_id.encode(),
    ),
    Header(
        "RateLimit",
        description="Only with rates: positions left, seconds until all are (draft-ietf-httpapi-ratelimit-headers).",
        documented=_keyed,
        exposed=True,
        by_request=lambda answering: (
            answering.rate.left(answering.client) if answering.rate else None
        ),
    ),
    Header(
        "RateLimit-Policy",
        description="Only with rates: most positions at once, and the seconds in which they are granted again.",
        documented=_keyed,
        exposed=True,
        by_request=lambda answering: answering.rate.policy if answering.rate else None,
    ),
    Header(
        "Retry-After",
        None,
        "Seconds after which the request may succeed.",
        _with_status("429", "503"),
        exposed=True,
    ),
    Header("WWW-Authenticate", None, "How to send a key.", _with_status("401", "403")),
    Header(
        "ETag",
        None,
        "Changes with the content. Send it as If-None-Match to get a 304 if the content is the same.",
        _cached,
        exposed=True,
    ),
    Header(
        "Cache-Control",
        _caching,
        "For how many seconds the client may reuse the response.",
        _cached,
    ),
    Header("X-Content-Type-Options", b"nosniff"),
    Header("Referrer-Policy", b"no-referrer"),
    Header("X-Frame-Options", b"DENY"),
    Header("Cross-Origin-Resource-Policy", b"same-origin"),
    Header("Cross-Origin-Opener-Policy", b"same-origin"),
    Header("Content-Security-Policy", lambda route, scheme: _POLICIES.get(route, _NOTHING)),
    Header(
        "Strict-Transport-Security",
        lambda route, scheme: b"max-age=31536000" if scheme == "https" else None,
    ),
)

_BY_REQUEST = [
    (header.name.lower().encode(), header.by_request)
    for header in HEADERS
    if header.by_request is not None
]


@lru_cache(maxsize=256)
def _by_route(route: str, scheme: str) -> list[tuple[bytes, bytes]]:
    """The headers that do not differ by request."""
    values = [
        (
            header.name.lower().encode(),
            header.value(route, scheme) if callable(header.value) else header.value,
        )
        for header in HEADERS
    ]
    return [(name, value) for name, value in values if value is not None]


def with_headers(
    own: list[tuple[bytes, bytes]], route: str, scheme: str, answering: Answering
) -> list[tuple[bytes, bytes]]:
    """A response's own headers, and those of `HEADERS` that it has not. `route` is the template of its path."""
    names = {name for name, _ in own}
    own += [header for header in _by_route(route, scheme) if header[0] not in names]
    for name, value in _BY_REQUEST:
        if (found := value(answering)) is not None:
            own.append((name, found))
    return own
