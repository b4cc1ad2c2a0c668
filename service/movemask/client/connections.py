"""Connections to a service, for asyncio and for blocking code: addresses, requests, responses and their errors.

`AsyncConnections` and `BlockingConnections` have the same coroutines. The coroutines of `BlockingConnections` block in
place of waiting for an event loop.
"""

from __future__ import annotations

import asyncio
import os
import re
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import Any, Generic, TypeVar

import httpcore2
import httpx2

from movemask.client.deadline import Deadline
from movemask.client.transport import CORE_ERRORS, DeadlineTransport
from movemask.errors import InvalidParameter, ServiceUnreachable
from movemask.version import __version__

H = TypeVar("H", bound=httpx2.AsyncClient | httpx2.Client)

#: The service closes an idle connection after 5 seconds by default; the client is to close it first.
_LIMITS = httpx2.Limits(max_connections=100, max_keepalive_connections=20, keepalive_expiry=4.0)

#: Share of the remaining time in which asyncio must open a connection.
_CONNECTING = 0.75

#: Most characters of a library's message in an error. The message may quote bytes of the server.
_MOST_OF_MESSAGE = 300

#: Errors of the libraries when the time is over, and when a connection fails.
_LATE = (TimeoutError, httpx2.TimeoutException, httpcore2.TimeoutException)
_LOST = (*CORE_ERRORS, httpx2.RequestError, OSError)

_EXAMPLES = "http://127.0.0.1:8000 or unix:/run/movemask.sock"


@dataclass(frozen=True, slots=True)
class Address:
    """The address of a service.

    url : the URL below which its paths are
    socket : the path of its Unix socket; None for TCP
    shown : the address in messages, without a password
    """

    url: httpx2.URL
    socket: str | None
    shown: str

    @classmethod
    def of(cls, text: str) -> Address:
        """The address that `http://…`, `https://…` or `unix:PATH` names; raises InvalidParameter."""
        if not isinstance(text, str):
            raise InvalidParameter(f"url: {text!r:.60} is not a text, such as {_EXAMPLES}")
        if text.startswith("unix:"):
            path = text.removeprefix("unix:").removeprefix("//")
            if not path or "\0" in path:
                raise InvalidParameter(f"url: {text!r:.60} names no socket; write unix:/run/movemask.sock")
            return cls(httpx2.URL("http://localhost"), path, f"unix:{path}")
        try:
            url = httpx2.URL(text)
        except httpx2.InvalidURL as error:
            raise InvalidParameter(f"url: {text!r:.60} is not an address: {error}") from None
        if url.scheme not in ("http", "https") or not url.host or not 0 < (url.port or 80) < 65_536:
            raise InvalidParameter(f"url: {text!r:.60} is not an address, such as {_EXAMPLES}")
        return cls(url, None, _shown(url))


class Response:
    """The head of a response. `piece` reads the body.

    ok : whether the status is 2xx
    where : the address of the request, for messages
    """

    def __init__(self, response: httpx2.Response, where: str, read: Callable[[], Awaitable[bytes | None]]) -> None:
        self.status = response.status_code
        self.ok = response.is_success
        self.headers: Mapping[str, str] = response.headers
        self.where = where
        self._read = read

    async def piece(self) -> bytes | None:
        """The next bytes of the body, at most 1 MiB, decompressed; None at the end. Raises ServiceUnreachable."""
        return await self._read()


class Connections(ABC, Generic[H]):
    """Connections to one service. A forked process opens connections of its own.

    Parameters
    ----------
    headers : the headers of every request
    given : a client of httpx2 that the caller made. It is used for all requests, and never closed.
    """

    def __init__(self, address: Address, headers: Mapping[str, str], given: H | None) -> None:
        self._address, self._headers, self._given = address, headers, given
        self._shown = address.shown if given is None else _shown(given.base_url)
        self._process = os.getpid()
        self._open: H | None = None
        self._home: object = None
        self._closed = False

    @asynccontextmanager
    async def response(self, method: str, path: str, deadline: Deadline, **options: Any) -> AsyncIterator[Response]:
        """The response to a request, open until the block ends. Raises ServiceUnreachable, InvalidParameter."""
        where, process = f"{self._shown}{path}", os.getpid()
        http = self._client(where)
        with _unreachable(where, deadline):
            request = http.build_request(method, path, timeout=deadline, **options)
            response = await self._send(http, request, deadline)
        pieces = self._pieces(response)

        async def read() -> bytes | None:
            if os.getpid() != process:
                raise ServiceUnreachable(f"{where}: the process was forked while this was read; send the request again")
            with _unreachable(where, deadline):
                return await self._next(pieces, deadline)

        try:
            yield Response(response, where, read)
        finally:
            with suppress(*_LOST):
                await self._end(response)

    async def close(self) -> None:
        """Closes the connections of this process. Later requests raise ServiceUnreachable."""
        opened, self._open, self._closed = self._open, None, True
        if opened is not None and self._home == self._here():
            await self._close(opened)

    def _client(self, where: str) -> H:
        """The client of httpx2 for this process and event loop; raises ServiceUnreachable, InvalidParameter."""
        if self._closed:
            raise ServiceUnreachable(f"{where}: this client was closed; make another")
        if self._given is not None:
            if os.getpid() != self._process:
                raise InvalidParameter("http: was made before this process was forked; make another client here")
            return self._given
        here = self._here()
        if self._open is None or self._home != here:
            # Closing the old client could disturb the parent process, or wait for a lock that no thread here holds.
            self._open, self._home = self._make(), here
        return self._open

    @abstractmethod
    def _here(self) -> object:
        """The owner of connections that are opened now: this process, and for asyncio the running event loop."""

    @abstractmethod
    def _make(self) -> H: ...

    @abstractmethod
    async def _send(self, http: H, request: httpx2.Request, deadline: Deadline) -> httpx2.Response: ...

    @abstractmethod
    def _pieces(self, response: httpx2.Response) -> Any: ...

    @abstractmethod
    async def _next(self, pieces: Any, deadline: Deadline) -> bytes | None: ...

    @abstractmethod
    async def _end(self, response: httpx2.Response) -> None: ...

    @abstractmethod
    async def _close(self, http: H) -> None: ...

    @abstractmethod
    async def sleep(self, seconds: float) -> None:
        """Waits, before the next try."""


class AsyncConnections(Connections[httpx2.AsyncClient]):
    """Connections for asyncio. Each event loop has connections of its own."""

    def _here(self) -> object:
        return os.getpid(), asyncio.get_running_loop()

    def _make(self) -> httpx2.AsyncClient:
        return asynchronous_client(self._address, self._headers)

    async def _send(self, http: httpx2.AsyncClient, request: httpx2.Request, deadline: Deadline) -> httpx2.Response:
        # httpx2 closes the socket if a TLS handshake exceeds this timeout, but not if asyncio cancels the handshake.
        request.extensions["timeout"]["connect"] = _CONNECTING * deadline.left
        async with asyncio.timeout(deadline.left):
            return await http.send(request, stream=True)

    def _pieces(self, response: httpx2.Response) -> AsyncIterator[bytes]:
        return response.aiter_bytes()

    async def _next(self, pieces: AsyncIterator[bytes], deadline: Deadline) -> bytes | None:
        async with asyncio.timeout(deadline.left):
            return await anext(pieces, None)

    async def _end(self, response: httpx2.Response) -> None:
        await response.aclose()

    async def _close(self, http: httpx2.AsyncClient) -> None:
        await http.aclose()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class BlockingConnections(Connections[httpx2.Client]):
    """Connections that block the calling thread. Threads share them."""

    def __init__(self, address: Address, headers: Mapping[str, str], given: httpx2.Client | None) -> None:
        super().__init__(address, headers, given)
        self._client(self._shown)  # made now, because two threads could make two

    def _here(self) -> object:
        return os.getpid()

    def _make(self) -> httpx2.Client:
        return httpx2.Client(
            base_url=self._address.url,
            headers=self._headers,
            cookies=_no_cookies(),
            transport=DeadlineTransport(self._address.url, _LIMITS, self._address.socket),
        )

    async def _send(self, http: httpx2.Client, request: httpx2.Request, deadline: Deadline) -> httpx2.Response:
        return http.send(request, stream=True)

    def _pieces(self, response: httpx2.Response) -> Iterator[bytes]:
        return response.iter_bytes()

    async def _next(self, pieces: Iterator[bytes], deadline: Deadline) -> bytes | None:
        if deadline.left <= 0:  # the transport of a `given` client bounds each wait, not their sum
            raise TimeoutError
        return next(pieces, None)

    async def _end(self, response: httpx2.Response) -> None:
        response.close()

    async def _close(self, http: httpx2.Client) -> None:
        http.close()

    async def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


def headers_of(key: str | None) -> dict[str, str]:
    """The headers of every request with this API key; raises InvalidParameter, without the key in the message."""
    headers = {"User-Agent": f"movemask/{__version__}"}
    if key is None:
        return headers
    if not isinstance(key, str) or not re.fullmatch(r"[!-~]*", key):
        raise InvalidParameter("key: is not one word of ASCII, as keys are")
    return headers | ({"Authorization": f"Bearer {key}"} if key else {})


def asynchronous_client(address: Address, headers: Mapping[str, str]) -> httpx2.AsyncClient:
    """A client of httpx2 for the service at an address. The caller has to bound the time and bytes of an answer."""
    socket = address.socket
    return httpx2.AsyncClient(
        base_url=address.url,
        headers=headers,
        limits=_LIMITS,
        cookies=_no_cookies(),
        transport=None if socket is None else httpx2.AsyncHTTPTransport(uds=socket, limits=_LIMITS),
    )


def _shown(url: httpx2.URL) -> str:
    """A URL for messages: without user, password and final slash."""
    return str(url.copy_with(username=None, password=None)).rstrip("/")


def _no_cookies() -> CookieJar:
    """A cookie jar that stays empty. The service sets no cookies, and cookies of another server could fill memory."""
    return CookieJar(DefaultCookiePolicy(allowed_domains=()))


@contextmanager
def _unreachable(where: str, deadline: Deadline) -> Iterator[None]:
    """Turns the libraries' errors into ServiceUnreachable."""
    try:
        yield
    except _LATE as error:
        raise ServiceUnreachable(f"{where}: not answered within {deadline:g} s ({type(error).__name__})") from error
    except _LOST as error:
        message = "".join(filter(str.isprintable, str(error)))[:_MOST_OF_MESSAGE]
        refused = isinstance(error, httpx2.ConnectError | httpcore2.ConnectError) and "SSL" not in message
        hint = "; is the service running at this address?" if refused else ""
        raise ServiceUnreachable(f"{where}: {type(error).__name__}: {message}{hint}") from error
