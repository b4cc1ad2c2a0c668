"""`HEADERS`: the headers of answers, each declared once: its value, what OpenAPI says of it, and whether pages of other
origins may read it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from movemask.server.edge.limits import RateLimit
from movemask.server.edge.traits import Traits


class Answering(NamedTuple):
    """What the value of a header may depend on, if it differs by request. `rate` is false without rates."""

    request_id: str
    client: str
    rate: RateLimit


class Operation(NamedTuple):
    """A status of an operation in the OpenAPI document; `keyed` says whether the operation may need a key."""

    traits: Traits
    status: str
    keyed: bool


@dataclass(frozen=True, slots=True)
class Header:
    """A header of answers.

    value : a constant, or a function of the route's traits, the scheme and whether the response is an error. None:
        responses set it themselves. A response's own header wins
    by_request : its value, if that differs by request; no response may have it already
    description : in OpenAPI; empty for those that only browsers heed
    documented : whether a response in OpenAPI has it
    exposed : whether pages of other origins may read it
    """

    name: str
    value: bytes | Callable[[Traits, str, bool], bytes | None] | None = None
    description: str = ""
    documented: Callable[[Operation], bool] = lambda operation: True
    exposed: bool = False
    by_request: Callable[[Answering], bytes | None] | None = None


def _with_status(*statuses: str) -> Callable[[Operation], bool]:
    return lambda operation: operation.status in statuses


def _keyed(operation: Operation) -> bool:
    return operation.keyed


def _cached(operation: Operation) -> bool:
    return operation.traits.cached and operation.status in ("200", "304")


def _caching(traits: Traits, scheme: str, failed: bool) -> bytes | None:
    return None if traits.cached and not failed else b"no-store"


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
    Header("Content-Security-Policy", lambda traits, scheme, failed: traits.csp),
    Header(
        "Strict-Transport-Security",
        lambda traits, scheme, failed: b"max-age=31536000" if scheme == "https" else None,
    ),
)

_BY_REQUEST = [
    (header.name.lower().encode(), header.by_request)
    for header in HEADERS
    if header.by_request is not None
]


@lru_cache(maxsize=256)
def _by_route(traits: Traits, scheme: str, failed: bool) -> list[tuple[bytes, bytes]]:
    """Returns the headers that do not differ by request."""
    values = [
        (
            header.name.lower().encode(),
            header.value(traits, scheme, failed) if callable(header.value) else header.value,
        )
        for header in HEADERS
    ]
    return [(name, value) for name, value in values if value is not None]


def with_headers(
    own: list[tuple[bytes, bytes]],
    traits: Traits,
    scheme: str,
    answering: Answering,
    *,
    failed: bool = False,
) -> list[tuple[bytes, bytes]]:
    """Returns a response's own headers, and those of `HEADERS` that it has not.

    `failed` says whether it is an error.
    """
    names = {name for name, _ in own}
    own += [header for header in _by_route(traits, scheme, failed) if header[0] not in names]
    for name, value in _BY_REQUEST:
        if (current := value(answering)) is not None:
            own.append((name, current))
    return own
