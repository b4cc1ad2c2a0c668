"""How requests reach a service, from asyncio and from blocking code: addresses, connections, and their errors.

Both kinds of connections have the same coroutines. Those of the blocking kind never wait for an event loop.
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

from movemask import __version__
from movemask.client.deadline import Deadline
from movemask.client.transport import CORE_ERRORS, DeadlineTransport
from movemask.errors import InvalidParameter, ServiceUnreachable

H = TypeVar("H", bound=httpx2.AsyncClient | httpx2.Client)

#: An idle connection is closed before the service closes it, which it does after 5 seconds by default.
_LIMITS = httpx2.Limits(max_connections=100, max_keepalive_connections=20, keepalive_expiry=4.0)

_CONNECTING = 0.75  # of the time that is left, when asyncio opens a connection

#: Characters of a library's message that an error shows; it may quote bytes that the other side sent.
_SHOWN = 300

#: What a library raises when the time is over, and what it raises when a connection fails.
_LATE = (TimeoutError, httpx2.TimeoutException, httpcore2.TimeoutException)
_LOST = (*CORE_ERRORS, httpx2.RequestError, OSError)

_EXAMPLES = "http://127.0.0.1:8000 or unix:/run/movemask.sock"


@dataclass(frozen=True, slots=True)
class Address:
    """Where a service is: a URL, and the path of a Unix socket if it listens on one. `shown` is for messages."""

    url: httpx2.URL
    socket: str | None
    shown: str

    @classmethod
    def of(cls, text: str) -> Address:
        """The address in `http://…`, `https://…` or `unix:PATH`; raises InvalidParameter."""
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
    """The head of a response, and its body, which `piece` reads."""

    def __init__(self, response: httpx2.Response, where: str, read: Callable[[], Awaitable[bytes | None]]) -> None:
        self.status = response.status_code
        self.ok = response.is_success
        self.headers: Mapping[str, str] = response.headers
        self.where = where
        self._read = read

    async def piece(self) -> bytes | None:
        """The next bytes of the body, decompressed, at most 1 MiB; None at its end. Raises ServiceUnreachable."""
        return await self._read()


class Connections(ABC, Generic[H]):
    """Connections to one service. A process that was forked opens connections of its own.

    Parameters
    ----------
    address : where the service is
    headers : what every request says
    given : the caller's client of httpx2, used in place of one made here and never closed
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
        """Sends a request; the response can be read until the block ends. Raises ServiceUnreachable."""
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
        """Closes the connections that this process opened. No request can be sent afterwards."""
        opened, self._open, self._closed = self._open, None, True
        if opened is not None and self._home == self._here():
            await self._close(opened)

    def _client(self, where: str) -> H:
        """The client of httpx2, another one after a fork; raises ServiceUnreachable and InvalidParameter."""
        if self._closed:
            raise ServiceUnreachable(f"{where}: this client was closed; make another")
        if self._given is not None:
            if os.getpid() != self._process:
                raise InvalidParameter("http: was made before this process was forked; make another client here")
            return self._given
        here = self._here()
        if self._open is None or self._home != here:
            # The old one is not closed: the other process goes on with its sockets, and may hold its locks.
            self._open, self._home = self._make(), here
        return self._open

    @abstractmethod
    def _here(self) -> object:
        """The process, and the event loop if there is one, to which connections that are opened now belong."""

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
        """Waits before a request is sent again."""


class AsyncConnections(Connections[httpx2.AsyncClient]):
    """Connections that are used from asyncio; each event loop has its own."""

    def _here(self) -> object:
        return os.getpid(), asyncio.get_running_loop()

    def _make(self) -> httpx2.AsyncClient:
        return asynchronous_client(self._address, self._headers)

    async def _send(self, http: httpx2.AsyncClient, request: httpx2.Request, deadline: Deadline) -> httpx2.Response:
        # httpx2 closes a socket whose handshake is late by its own clock, and forgets one whose handshake is cancelled.
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
    """Connections that block the calling thread; threads share them."""

    def __init__(self, address: Address, headers: Mapping[str, str], given: httpx2.Client | None) -> None:
        super().__init__(address, headers, given)
        self._client(self._shown)  # now, so that two threads do not open two

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
        if deadline.left <= 0:  # a transport of the caller's bounds each wait alone
            raise TimeoutError
        return next(pieces, None)

    async def _end(self, response: httpx2.Response) -> None:
        response.close()

    async def _close(self, http: httpx2.Client) -> None:
        http.close()

    async def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


def headers_of(key: str | None) -> dict[str, str]:
    """What every request of a client with this API key says; raises InvalidParameter, which does not show the key."""
    headers = {"User-Agent": f"movemask/{__version__}"}
    if key is None:
        return headers
    if not isinstance(key, str) or not re.fullmatch(r"[!-~]*", key):
        raise InvalidParameter("key: is not one word of ASCII, as keys are")
    return headers | ({"Authorization": f"Bearer {key}"} if key else {})


def asynchronous_client(address: Address, headers: Mapping[str, str]) -> httpx2.AsyncClient:
    """A client of httpx2 for the service at an address. It bounds neither time nor bytes of a whole answer."""
    socket = address.socket
    return httpx2.AsyncClient(
        base_url=address.url,
        headers=headers,
        limits=_LIMITS,
        cookies=_no_cookies(),
        transport=None if socket is None else httpx2.AsyncHTTPTransport(uds=socket, limits=_LIMITS),
    )


def _shown(url: httpx2.URL) -> str:
    """A URL without its user and password, as the beginning of the addresses below it."""
    return str(url.copy_with(username=None, password=None)).rstrip("/")


def _no_cookies() -> CookieJar:
    """A jar that keeps nothing: the service sets no cookies, and another server could fill memory with them."""
    return CookieJar(DefaultCookiePolicy(allowed_domains=()))


@contextmanager
def _unreachable(where: str, deadline: Deadline) -> Iterator[None]:
    """Raises what goes wrong on the way as ServiceUnreachable."""
    try:
        yield
    except _LATE as error:
        raise ServiceUnreachable(f"{where}: not answered within {deadline:g} s ({type(error).__name__})") from error
    except _LOST as error:
        message = "".join(filter(str.isprintable, str(error)))[:_SHOWN]
        raise ServiceUnreachable(f"{where}: {type(error).__name__}: {message}") from error
