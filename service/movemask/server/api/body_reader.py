"""`read_body`, `check_pieces`, `parsed`: a request's body, bounded in bytes and in values, validated by pydantic."""

from __future__ import annotations

import asyncio
import codecs
import zlib
from collections.abc import AsyncIterator
from typing import TypeVar

from fastapi import Request
from pydantic import BaseModel, ValidationError

from movemask.errors import shown
from movemask.server import problems
from movemask.server.edge.context import context_of
from movemask.server.edge.limits import RequestLimits
from movemask.server.problems import ProblemError

M = TypeVar("M", bound=BaseModel)

_GZIP = 31  # zlib's name for gzip with the largest window
_UNPACKED = 65_536  # bytes of a gzipped body that are unpacked at once
_TEXTS = 64  # ends of texts: a request with a PGN has fewer
_NEEDED = "what a request of this route can need"


async def read_body(http: Request, size: int | None, limits: RequestLimits) -> bytes:
    """Returns the body.

    Raises ProblemError: 415 if it is not sent as JSON, 413 as soon as it exceeds `size`, if that is
    not None, or the limit of all bodies.
    """
    limit = limits.body_bytes if size is None else min(size, limits.body_bytes)
    media_type = http.headers.get("content-type", "").partition(";")[0].strip().lower()
    coding = http.headers.get("content-encoding", "identity").strip().lower()
    if coding not in ("identity", "gzip"):
        fault = f"Content-Encoding is {shown(coding)!r}; send the body with gzip, or as it is"
        raise ProblemError("unsupported-media-type", fault, {"Accept-Encoding": "gzip"})
    length = http.headers.get("content-length", "")
    if length.isdigit() and int(length) > limit:
        raise _too_large(f"{length} bytes", limit, limits)
    main, _, subtype = media_type.partition("/")
    if main != "application" or not (subtype == "json" or subtype.endswith("+json")):
        fault = f"is {media_type!r}" if media_type else "is missing"
        fault = f"Content-Type {fault}; send the body with Content-Type: application/json"
        raise ProblemError("unsupported-media-type", fault)
    body = await _joined(http.stream(), limit, limits)
    if coding == "gzip":
        body = await _joined(_unpacked(http, body), limit, limits)
    return body


async def _joined(stream: AsyncIterator[bytes], limit: int, limits: RequestLimits) -> bytes:
    """Returns the whole body; raises ProblemError as soon as its parts exceed the limit."""
    body = bytearray()
    async for part in stream:
        body += part
        if len(body) > limit:
            raise _too_large(f"over {limit} bytes", limit, limits)
    return bytes(body)


async def _unpacked(http: Request, packed: bytes) -> AsyncIterator[bytes]:
    """Yields the parts of a gzipped body, unpacked.

    They count as bytes in flight. They are small, so that a body that is too large is refused
    early. Raises ProblemError if the data are not gzip, and Overloaded.
    """
    unpacking = zlib.decompressobj(wbits=_GZIP)
    try:
        while True:
            part = unpacking.decompress(packed, _UNPACKED)
            context_of(http.scope).hold(len(part))
            yield part
            await asyncio.sleep(0)  # others take their turn
            packed = unpacking.unconsumed_tail
            if not packed and len(part) < _UNPACKED:
                break
    except zlib.error:
        raise ProblemError(
            "malformed-json", "body: is not gzip, as Content-Encoding says"
        ) from None
    if not unpacking.eof or unpacking.unused_data:
        fault = "is followed by other data" if unpacking.eof else "is cut off"
        raise ProblemError("malformed-json", f"body: the gzip data {fault}")


def _too_large(size: str, limit: int, limits: RequestLimits) -> ProblemError:
    why = "MOVEMASK_MAX_BODY_BYTES" if limit == limits.body_bytes else _NEEDED
    return ProblemError("body-too-large", f"body: {size}; at most {limit} are allowed ({why})")


def check_pieces(body: bytes, most: int) -> None:
    """Raises ProblemError if a body has more than `most` brackets and commas, not counting those in its first texts: a
    PGN has many.

    Parsing is one call, which stops every thread of the worker, and takes 100 times the bytes of `[],[],[]`.
    """
    if (count := _pieces(body)) > most:
        texts = body.replace(rb"\\", b"").replace(rb"\"", b"").split(b'"', _TEXTS)[1::2]
        count -= sum(map(_pieces, texts))
    if count > most:
        fault = f"body: {count} brackets and commas; at most {most} are allowed ({_NEEDED})"
        raise ProblemError("body-too-large", fault)


def _pieces(text: bytes) -> int:
    return text.count(b"[") + text.count(b"{") + text.count(b",")


def parsed(body: bytes, model: type[M], limits: RequestLimits) -> M:
    """Returns the validated body.

    Raises ProblemError if it is not JSON or does not fit the model, LimitExceeded if it has too
    many items. Only the first error of each list is reported.
    """
    if not body:
        raise problems.invalid_field("body", "is missing; send a JSON object")
    try:
        return model.model_validate_json(body.removeprefix(codecs.BOM_UTF8), context=limits)
    except ValidationError as error:
        _check_utf8(body)
        raise problems.invalid_request(error, model) from None


def _check_utf8(body: bytes) -> None:
    """Raises ProblemError if a body has bytes that are not UTF-8; the JSON parser does not say so."""
    try:
        body.decode()
    except UnicodeDecodeError as error:
        fault = (
            f"body: is not UTF-8: byte 0x{body[error.start]:02x} at {error.start}, counted from 0"
        )
        raise ProblemError("malformed-json", fault) from None
