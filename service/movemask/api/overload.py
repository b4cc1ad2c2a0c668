"""Answers under overload, made once: to what cannot be taken now, thousands a second, and to whether we are alive."""

from __future__ import annotations

from functools import lru_cache

import orjson

from movemask.api import problems, web
from movemask.api.admission import PROBES
from movemask.api.schemas.operations import AliveOut
from movemask.errors import Overloaded

PROBLEM = problems.problem_of(Overloaded("too many requests are in flight; try again later", retry_after=1))
_BODY = orjson.dumps(PROBLEM.model_dump(mode="json", exclude_unset=True))
_HEAD = (
    b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/problem+json\r\nretry-after: 1\r\n"
    b"cache-control: no-store\r\nx-content-type-options: nosniff\r\ncontent-length: %d\r\n" % len(_BODY)
)
_KEPT = _HEAD + b"\r\n" + _BODY

_PROBES = frozenset(path.encode() for path in PROBES)
_LENGTH = b"\r\ncontent-length:"
_LONGEST = 2048  # bytes of a head that is looked at

#: Headers with which a request ends otherwise than by its length, or wants more than an answer.
_SPECIAL = (b"\r\nconnection:", b"\r\ntransfer-encoding:", b"\r\nexpect:", b"\r\nupgrade:", b"\r\n ", b"\r\n\t")


def answer(*, keep: bool = True, head: bool = False) -> bytes:
    """The answer; whether the connection is kept, and whether it was asked for by HEAD, so that it has no body."""
    if keep and not head:
        return _KEPT
    return _HEAD + (b"\r\n" if keep else b"connection: close\r\n\r\n") + (b"" if head else _BODY)


@lru_cache(maxsize=2)
def alive(scheme: str) -> bytes:
    """The answer to `GET /livez` without its first line and Date, just as the app gives it but for a request id."""
    body = AliveOut(status="alive").model_dump_json().encode()
    fields = [(b"content-length", b"%d" % len(body)), (b"content-type", b"application/json")]
    fields += web.headers({"type": "http", "path": "/livez", "scheme": scheme})
    return b"".join(name + b": " + value + b"\r\n" for name, value in fields) + b"\r\n" + body


def is_plain_livez(data: bytes) -> bool:
    """Whether `data` is one whole `GET /livez` that keeps the connection."""
    if not data.startswith(b"GET /livez HTTP/1.1\r\n"):
        return False
    return is_plain_request(data.replace(b"/livez", b"/", 1))


def is_probe(target: bytes) -> bool:
    """Whether a request's target is answered however much is in flight."""
    return target.partition(b"?")[0] in _PROBES


def is_plain_request(data: bytes) -> bool:
    """Whether `data` is one whole request that can be refused unparsed, at a third of the cost: a POST or GET of
    HTTP/1.1 that keeps the connection, whose body has just the length that its head says. Others may be just as good,
    and are parsed."""
    head, end, body = data.partition(b"\r\n\r\n")
    return bool(end) and len(head) <= _LONGEST and _plain_length(head) == len(body)


@lru_cache(maxsize=512)
def _plain_length(head: bytes) -> int:
    """Length of the body after the head of a plain request; -1 for another. Who comes again sends the same head."""
    if not head.startswith((b"POST /", b"GET /")):
        return -1
    words = head.partition(b"\r\n")[0].split(b" ")
    if len(words) != 3 or words[2] != b"HTTP/1.1" or is_probe(words[1]) or head.count(b"\n") != head.count(b"\r\n"):
        return -1
    lower = head.lower()
    if any(special in lower for special in _SPECIAL) or lower.count(_LENGTH) > 1:
        return -1
    length = lower.partition(_LENGTH)[2].partition(b"\r\n")[0].strip(b" \t")
    if not length and _LENGTH not in lower:
        return 0
    return int(length) if length.isdigit() and len(length) < 10 else -1
