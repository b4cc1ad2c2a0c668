"""What a response may be, by the request's headers: `preferred`, its media type; `Compression`, its coding;
`is_current`, whether the client has it already."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from starlette.middleware.gzip import GZipMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send

from movemask.server.edge.context import context_of

#: An answer that is no JSON, in OpenAPI. Without a schema, clients' generators would know no type for any answer.
TEXT: dict[str, Any] = {"schema": {"type": "string"}}

#: Smallest response, in bytes, that is compressed.
_COMPRESSED = 16_384

#: An entity tag, without the mark of a weak one.
_TAG = re.compile(r'"[^"]*"')


class Compression(GZipMiddleware):
    """Compresses large responses for clients that accept gzip. Starlette's middleware looks for the letters `gzip`, and
    compressed for `gzip;q=0` too."""

    def __init__(self, app: ASGIApp) -> None:
        super().__init__(app, minimum_size=_COMPRESSED, compresslevel=4)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            if not context_of(scope).traits.compressed:
                await self.app(scope, receive, send)
                return
            accepted = [value for name, value in scope["headers"] if name == b"accept-encoding"]
            if accepted:
                others = [header for header in scope["headers"] if header[0] != b"accept-encoding"]
                is_gzip = accepts_gzip(b",".join(accepted).decode("latin-1"))
                coding = b"gzip" if is_gzip else b"identity"
                scope["headers"] = [*others, (b"accept-encoding", coding)]
        await super().__call__(scope, receive, send)


def preferred(accept: str, offered: Sequence[str]) -> str:
    """Returns the offered media type with the highest quality in an Accept header.

    Source: RFC 9110, section 12.5.1.

    The quality of a type is that of the range that names it most exactly. Of types with equal
    quality, one that is named exactly is preferred, then the one that the header has first. A
    header that accepts none gets the first type offered.
    """
    ranges = _qualities(accept)

    def rank(media_type: str) -> tuple[float, int, int]:
        for exactness, media_range in (
            (2, media_type),
            (1, media_type.partition("/")[0] + "/*"),
            (0, "*/*"),
        ):
            if media_range in ranges:
                quality, order = ranges[media_range]
                return quality, exactness, order
        return 0.0, 0, 0

    best = max(offered, key=rank)
    return best if rank(best)[0] > 0 else offered[0]


@lru_cache(maxsize=16)  # most clients send one of a few
def accepts_gzip(accept_encoding: str) -> bool:
    """Returns whether an Accept-Encoding header names gzip, and prefers nothing else.

    `*` does not name it: no client is known that sends `*` and unpacks gzip. Source: RFC 9110,
    section 12.5.3.
    """
    codings = _qualities(accept_encoding)
    gzip, _ = codings.get("gzip", (0.0, 0))
    return gzip > 0 and gzip >= codings.get("identity", (0.0, 0))[0]


def is_current(if_none_match: str, tag: str) -> bool:
    """Returns whether an If-None-Match header names this entity tag, in quotation marks and without
    `W/`; compared weakly (RFC 9110, section 13.1.2).
    """
    return if_none_match.strip() == "*" or tag in _TAG.findall(if_none_match)


def _qualities(header: str) -> dict[str, tuple[float, int]]:
    """Returns the quality of each value of a list, by the value in lower case, and its place,
    negative.
    """
    qualities: dict[str, tuple[float, int]] = {}
    for place, part in enumerate(header.lower().split(",")):
        value, *parameters = (word.strip() for word in part.split(";"))
        quality = next((word[2:] for word in parameters if word.startswith("q=")), "1")
        try:
            qualities.setdefault(value, (float(quality), -place))
        except ValueError:
            qualities.setdefault(value, (0.0, -place))
    return qualities
