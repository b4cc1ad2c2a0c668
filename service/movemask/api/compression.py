"""`Compressed`: middleware that compresses large answers with zstd or gzip, if the client accepts one.

Streams are flushed after each part, so that a line is not kept back until a block is full.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from functools import lru_cache
from typing import Protocol

from anyio import to_thread
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

try:
    import zstandard
except ImportError:  # the extra `audit` has it; serving does not need it
    zstandard = None  # type: ignore[assignment]

#: Smallest answer, in bytes, that is compressed: below, the network saves less than compressing costs.
LEAST = 16_384

#: Largest part, in bytes, that is compressed on the event loop; takes at most a millisecond or two.
_SMALL = 131_072

#: Types worth compressing; audit reports and metrics are text too.
_TYPES = ("application/json", "application/problem+json", "application/x-ndjson", "application/x-chess-pgn", "text/")


class Compressor(Protocol):
    """Compresses a stream part by part."""

    def part(self, data: bytes, *, last: bool) -> bytes:
        """All of `data` compressed, so that the client can read it at once."""
        ...


class Gzip:
    """RFC 1952, at a level that takes a tenth of the highest's time for nearly its size on JSON."""

    def __init__(self) -> None:
        self._stream = zlib.compressobj(4, zlib.DEFLATED, 16 + zlib.MAX_WBITS)

    def part(self, data: bytes, *, last: bool) -> bytes:
        return self._stream.compress(data) + self._stream.flush(zlib.Z_FINISH if last else zlib.Z_SYNC_FLUSH)


class Zstd:
    """RFC 8878, at its default level."""

    def __init__(self) -> None:
        self._stream = zstandard.ZstdCompressor().compressobj()

    def part(self, data: bytes, *, last: bool) -> bytes:
        how = zstandard.COMPRESSOBJ_FLUSH_FINISH if last else zstandard.COMPRESSOBJ_FLUSH_BLOCK
        return self._stream.compress(data) + self._stream.flush(how)


#: By content coding, the best first.
_COMPRESSORS: dict[str, Callable[[], Compressor]] = {"gzip": Gzip}
if zstandard is not None:
    _COMPRESSORS = {"zstd": Zstd, **_COMPRESSORS}


@lru_cache(maxsize=64)
def accepted(accept: str, known: tuple[str, ...] = tuple(_COMPRESSORS)) -> str | None:
    """The coding of `known` that an Accept-Encoding header prefers, the first of equals; None for none (RFC 9110)."""
    weights: dict[str, float] = {}
    for item in accept.lower().split(","):
        name, *parameters = (part.strip() for part in item.split(";"))
        weight = next((one[2:] for one in parameters if one.startswith("q=")), "1")
        try:
            weights[name] = float(weight)
        except ValueError:
            weights[name] = 0.0
    rest = weights.get("*", 0.0)
    best = max(known, key=lambda name: weights.get(name, rest), default=None)
    return best if best is not None and weights.get(best, rest) > 0 else None


class Compressed:
    """ASGI middleware; does nothing for a client that names no coding."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        coding = None
        if scope["type"] == "http" and scope["method"] != "HEAD":
            accept = next((value for name, value in scope["headers"] if name == b"accept-encoding"), None)
            coding = None if accept is None else accepted(accept.decode("latin-1"))
        if coding is None:
            await self._app(scope, receive, send)
        else:
            await self._app(scope, receive, _Sender(send, coding).send)


class _Sender:
    """Sends one response, compressed if it is large enough and not compressed yet."""

    def __init__(self, send: Send, coding: str) -> None:
        self._send, self._coding = send, coding
        self._compressor: Compressor | None = None

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = Headers(raw=message["headers"])
            if self._worth(headers):
                self._compressor = _COMPRESSORS[self._coding]()
                changed = MutableHeaders(raw=list(message["headers"]))
                del changed["Content-Length"]
                changed["Content-Encoding"] = self._coding
                changed.add_vary_header("Accept-Encoding")
                message = {**message, "headers": changed.raw}
        elif message["type"] == "http.response.body" and self._compressor is not None:
            compressor, data, last = self._compressor, message.get("body", b""), not message.get("more_body", False)
            if len(data) <= _SMALL:
                body = compressor.part(data, last=last)
            else:
                body = await to_thread.run_sync(lambda: compressor.part(data, last=last))
            message = {**message, "body": body}
        await self._send(message)

    @staticmethod
    def _worth(headers: Headers) -> bool:
        """Whether a response is of a compressible type and large: a stream is, its length being unknown."""
        length = headers.get("content-length")
        return (
            "content-encoding" not in headers
            and headers.get("content-type", "").startswith(_TYPES)
            and (length is None or int(length) >= LEAST)
        )
