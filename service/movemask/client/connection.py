"""What both clients share: how they connect, and how requests are written."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal

import orjson

from movemask import __version__
from movemask.client.calls import Call
from movemask.client.retries import Retries
from movemask.errors import ApiError, ServiceUnreachable
from movemask.extras import require

require("client", "movemask.Client")  # names the extra; the import below would only name the package

import httpx2  # noqa: E402

URL = "http://127.0.0.1:8000"

Temperature = float | Literal["calibrated"]


class ClientSettings:
    """What a client is made with, as its HTTP client takes it."""

    def __init__(self, url: str, key: str | None, timeout: float, retries: int) -> None:
        headers = {"User-Agent": f"movemask/{__version__}"} | ({"Authorization": f"Bearer {key}"} if key else {})
        self.http: dict[str, Any] = {"base_url": url, "headers": headers, "timeout": timeout}
        self.retries = Retries(retries)


def arguments(call: Call[Any]) -> dict[str, Any]:
    """A call as the arguments of `httpx2.Client.request`."""
    sent: dict[str, Any] = {"headers": {"Accept": call.accept}}
    if call.body is not None:
        sent["content"] = orjson.dumps(call.body)
        sent["headers"]["Content-Type"] = "application/json"
    if call.query:
        sent["params"] = call.query
    return sent


@contextmanager
def connection_errors() -> Iterator[None]:
    """Turns errors of the connection into ServiceUnreachable."""
    try:
        yield
    except httpx2.TransportError as error:
        where = error.request.url if error._request is not None else "the service"
        raise ServiceUnreachable(f"{where}: {type(error).__name__}: {error}") from error


def too_many(error: ApiError, part: Sequence[Any]) -> bool:
    """Whether a service takes less at once than a part of a batch, which can be halved."""
    return error.name in ("limit-exceeded", "body-too-large") and len(part) > 1


def halves(part: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The two halves of a part."""
    middle = len(part) // 2
    return part[:middle], part[middle:]
