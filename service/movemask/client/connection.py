"""`Connection`: requests to one service over httpx2, and the libraries' errors in words."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from typing import Any
from urllib.request import getproxies, proxy_bypass

import httpx2

from movemask.errors import InvalidParameter, ServiceUnreachable
from movemask.version import __version__

#: The service closes an idle connection after 5 seconds by default; the client is to close it first.
_LIMITS = httpx2.Limits(max_connections=100, max_keepalive_connections=20, keepalive_expiry=4.0)

#: Share of a call's time in which a connection must open. httpx2 closes the socket of a TLS handshake that exceeds its
#: own timeout, but not of one that asyncio cancels.
_CONNECTING = 0.75

#: What OpenSSL says where the other side does not speak TLS.
_NO_TLS = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG")

_EXAMPLES = "http://127.0.0.1:8000 or unix:/run/movemask.sock"


@dataclass(frozen=True, slots=True)
class Address:
    """The address of a service.

    url : the URL below which its paths are
    socket : the path of its Unix socket; None for TCP
    label : the address in messages, without a password
    """

    url: httpx2.URL
    socket: str | None
    label: str

    @classmethod
    def of(cls, text: str) -> Address:
        """Returns the address that `http://…`, `https://…` or `unix:PATH` names.

        Raises InvalidParameter.
        """
        if not isinstance(text, str):
            raise InvalidParameter(f"url: {text!r:.60} is not a text, such as {_EXAMPLES}")
        if text.startswith("unix:"):
            path = text.removeprefix("unix:").removeprefix("//")
            if not path or "\0" in path:
                raise InvalidParameter(
                    f"url: {text!r:.60} names no socket; write unix:/run/movemask.sock"
                )
            return cls(httpx2.URL("http://localhost"), path, f"unix:{path}")
        try:
            url = httpx2.URL(text)
        except httpx2.InvalidURL as error:
            raise InvalidParameter(f"url: {text!r:.60} is not an address: {error}") from None
        if url.scheme not in ("http", "https") or not url.host or not 0 < (url.port or 80) < 65_536:
            raise InvalidParameter(f"url: {text!r:.60} is not an address, such as {_EXAMPLES}")
        return cls(url, None, _label(url))

    def proxy(self) -> str | None:
        """Returns the proxy that the environment names for this address, for messages.

        None for a direct connection.
        """
        if self.socket is not None or proxy_bypass(self.url.host):
            return None
        proxies = getproxies()
        scheme = self.url.scheme if self.url.scheme in proxies else "all"
        named = proxies.get(scheme)
        return f"the proxy {_without_password(named)} of {scheme.upper()}_PROXY" if named else None


@dataclass(frozen=True, slots=True)
class Response:
    """The head of a response; `pieces` is its body, decompressed, in pieces. `where` is its address, for messages."""

    status: int
    headers: Mapping[str, str]
    where: str
    pieces: AsyncIterator[bytes]

    @property
    def ok(self) -> bool:
        """Whether the status is 2xx."""
        return 200 <= self.status < 300


class Connection:
    """Requests to one service. Each event loop, and each process after a fork, opens connections of its own.

    Parameters
    ----------
    headers : the headers of every request
    http : a client of httpx2 that the caller made. It is used for all requests, and never closed.
    """

    def __init__(
        self, address: Address, headers: Mapping[str, str], http: httpx2.AsyncClient | None = None
    ) -> None:
        if http is not None and not isinstance(http, httpx2.AsyncClient):
            raise InvalidParameter(f"http: a {type(http).__name__} is not an httpx2.AsyncClient")
        if http is not None:
            address = Address(http.base_url, None, _label(http.base_url))
        self._address = address
        self._headers, self._http = headers, http
        self._open: httpx2.AsyncClient | None = None
        self._home: object = None
        self._process = os.getpid()
        self._closed = False

    @asynccontextmanager
    async def response(
        self, method: str, path: str, seconds: float, **options: Any
    ) -> AsyncIterator[Response]:
        """Yields the response to a request, open until the block ends.

        The caller bounds its time with `asyncio.timeout`.

        `seconds` is that time. Raises ServiceUnreachable, InvalidParameter.
        """
        where, process = f"{self._address.label}{path}", os.getpid()
        if self._closed:
            raise ServiceUnreachable(f"{where}: this client was closed; make another")
        http = self._client()
        timeout = httpx2.Timeout(None, connect=_CONNECTING * seconds)
        with self._unreachable(where):
            response = await http.send(
                http.build_request(method, path, timeout=timeout, **options), stream=True
            )
        pieces = self._pieces(response, where)
        try:
            yield Response(response.status_code, response.headers, where, pieces)
        finally:
            if os.getpid() == process:  # a forked child would close its parent's connection
                with suppress(httpx2.RequestError, OSError):
                    await pieces.aclose()
                    await response.aclose()

    async def close(self) -> None:
        """Closes the connections. Later requests raise ServiceUnreachable."""
        opened, self._open, self._closed = self._open, None, True
        if opened is not None and self._home == _here():
            await opened.aclose()

    def _client(self) -> httpx2.AsyncClient:
        """Returns the client of httpx2 for this process and event loop; raises InvalidParameter."""
        if self._http is not None:
            if os.getpid() != self._process:
                raise InvalidParameter(
                    "http: was made before this process was forked; make another client here"
                )
            return self._http
        here = _here()
        if self._open is None or self._home != here:  # another's connections are not ours to close
            socket = self._address.socket
            try:
                self._open = httpx2.AsyncClient(
                    base_url=self._address.url,
                    headers=self._headers,
                    limits=_LIMITS,
                    transport=None
                    if socket is None
                    else httpx2.AsyncHTTPTransport(uds=socket, limits=_LIMITS),
                )
            except (ValueError, ImportError, httpx2.InvalidURL) as error:
                raise InvalidParameter(
                    f"url: {self._address.proxy()} cannot be used: {error}"
                ) from None
            self._home = here
        return self._open

    async def _pieces(self, response: httpx2.Response, where: str) -> AsyncGenerator[bytes, None]:
        with self._unreachable(where):
            process = os.getpid()
            async for piece in response.aiter_bytes():
                yield piece
                if os.getpid() != process:
                    raise ServiceUnreachable(
                        f"{where}: the process was forked while this was read; send it again"
                    )

    @contextmanager
    def _unreachable(self, where: str) -> Iterator[None]:
        """Turns the libraries' errors into ServiceUnreachable, and those of httpx2's own timeout into TimeoutError."""
        try:
            yield
        except httpx2.TimeoutException as error:
            raise TimeoutError from error
        except (httpx2.RequestError, OSError) as error:
            message = str(error)
            proxy = None if self._http is not None else self._address.proxy()
            hint = ""
            if any(words in message for words in _NO_TLS):
                hint = "; it speaks http, not https: give the address with http://"
            elif proxy:
                hint = f"; it was asked through {proxy}; NO_PROXY excepts an address"
            elif isinstance(error, httpx2.ConnectError) and "SSL" not in message:
                hint = "; is the service running at this address?"
            raise ServiceUnreachable(f"{where}: {type(error).__name__}: {message}{hint}") from error


def headers_of(key: str | None) -> dict[str, str]:
    """Returns the headers of every request with this API key.

    Raises InvalidParameter, without the key in the message.
    """
    headers = {"User-Agent": f"movemask/{__version__}"}
    if key is None:
        return headers
    if not isinstance(key, str) or not re.fullmatch(r"[!-~]*", key):
        raise InvalidParameter("key: is not one word of ASCII, as keys are")
    return headers | ({"Authorization": f"Bearer {key}"} if key else {})


def _here() -> object:
    """Returns the owner of connections that are opened now."""
    return os.getpid(), asyncio.get_running_loop()


def _label(url: httpx2.URL) -> str:
    """Returns a URL for messages: without user, password and final slash."""
    return str(url.copy_with(username=None, password=None)).rstrip("/")


def _without_password(address: str) -> str:
    return re.sub(r"//[^/@]*@", "//", address)
