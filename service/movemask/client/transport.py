"""`DeadlineTransport`: a transport of httpx2 for blocking code, in which every wait ends at the call's `Deadline`.

The transport of httpx2 bounds each wait: with a server that sends a byte now and then, a call never ends. `asyncio`
needs no such transport, because `asyncio.timeout` bounds a whole call.
"""

from __future__ import annotations

import ipaddress
import queue
import socket
import ssl
import threading
from collections.abc import Iterable, Iterator
from typing import Any
from urllib.request import getproxies, proxy_bypass

import httpcore2
import httpx2

from movemask.client.deadline import Deadline
from movemask.errors import InvalidParameter

#: The errors of httpcore2, which have no common base class.
CORE_ERRORS = (
    httpcore2.NetworkError,
    httpcore2.ProtocolError,
    httpcore2.ProxyError,
    httpcore2.TimeoutException,
    httpcore2.UnsupportedProtocol,
)

#: Bytes written between two looks at the clock.
_WRITTEN = 16_384


class DeadlineTransport(httpx2.BaseTransport):
    """Sends requests over connections that keep to deadlines; raises CORE_ERRORS.

    `socket` is the path of a Unix socket. Without it, the transport obeys HTTP_PROXY, HTTPS_PROXY, ALL_PROXY and
    NO_PROXY, as httpx2 does.
    """

    def __init__(self, url: httpx2.URL, limits: httpx2.Limits, socket: str | None = None) -> None:
        options: dict[str, Any] = {
            "max_connections": limits.max_connections,
            "max_keepalive_connections": limits.max_keepalive_connections,
            "keepalive_expiry": limits.keepalive_expiry,
            "network_backend": _Backend(),
        }
        proxy = None if socket is not None else _proxy_of(url)
        if url.scheme == "https" or (proxy is not None and proxy.url.scheme == "https"):
            options["ssl_context"] = httpx2.create_ssl_context()
        self._pool: httpcore2.ConnectionPool
        if proxy is None:
            self._pool = httpcore2.ConnectionPool(uds=socket, **options)
        else:
            address = httpcore2.URL(
                scheme=proxy.url.raw_scheme, host=proxy.url.raw_host, port=proxy.url.port, target=proxy.url.raw_path
            )
            self._pool = httpcore2.HTTPProxy(proxy_url=address, proxy_auth=proxy.raw_auth, **options)

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        """The response, before its body is read."""
        url = request.url
        core = httpcore2.Request(
            method=request.method,
            url=httpcore2.URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path),
            headers=request.headers.raw,
            content=request.stream,
            extensions=request.extensions,
        )
        response = self._pool.handle_request(core)
        return httpx2.Response(
            response.status, headers=response.headers, stream=_Body(response), extensions=response.extensions
        )

    def close(self) -> None:
        """Closes the connections."""
        self._pool.close()


class _Body(httpx2.SyncByteStream):
    """The body of a response of httpcore2."""

    def __init__(self, response: httpcore2.Response) -> None:
        self._response = response

    def __iter__(self) -> Iterator[bytes]:
        return self._response.iter_stream()

    def close(self) -> None:
        self._response.close()


def _proxy_of(url: httpx2.URL) -> httpx2.Proxy | None:
    """The proxy that the environment names for a URL; raises InvalidParameter unless it is an HTTP proxy."""
    proxies = getproxies()
    address = proxies.get(url.scheme) or proxies.get("all")
    if not address or proxy_bypass(url.host):
        return None
    try:
        proxy = httpx2.Proxy(address if "://" in address else f"http://{address}")
    except (ValueError, httpx2.InvalidURL) as error:
        raise InvalidParameter(f"url: the environment's proxy {address!r:.60} cannot be used: {error}") from None
    if proxy.url.scheme not in ("http", "https"):
        raise InvalidParameter(
            f"url: the environment's proxy speaks {proxy.url.scheme}, which the blocking client does not; "
            "set NO_PROXY, or pass http=httpx2.Client()"
        )
    return proxy


class _Backend(httpcore2.NetworkBackend):
    """Opens the connections of a pool."""

    def __init__(self) -> None:
        self._sockets = httpcore2.SyncBackend()

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.NetworkStream:
        """Tries the IP addresses of a host in turn, each for an equal share of the remaining time."""
        addresses = _addresses(host, port, _left(timeout, httpcore2.ConnectTimeout))
        last: Exception = httpcore2.ConnectError(f"{host} has no address")
        for number, address in enumerate(addresses):
            left = _left(timeout, httpcore2.ConnectTimeout)
            share = None if left is None else left / (len(addresses) - number)
            try:
                stream = self._sockets.connect_tcp(address, port, share, local_address, socket_options)
                return _Stream(stream)
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout) as error:
                last = error
        raise last

    def connect_unix_socket(
        self,
        path: str,
        timeout: float | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.NetworkStream:
        """Connects to a Unix socket."""
        left = _left(timeout, httpcore2.ConnectTimeout)
        return _Stream(self._sockets.connect_unix_socket(path, left, socket_options))


class _Stream(httpcore2.NetworkStream):
    """A connection of httpcore2. A timeout that is a `Deadline` ends each wait at its moment."""

    def __init__(self, stream: httpcore2.NetworkStream) -> None:
        self._stream = stream

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._stream.read(max_bytes, _left(timeout, httpcore2.ReadTimeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        for start in range(0, len(buffer), _WRITTEN):
            self._stream.write(buffer[start : start + _WRITTEN], _left(timeout, httpcore2.WriteTimeout))

    def close(self) -> None:
        self._stream.close()

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore2.NetworkStream:
        left = _left(timeout, httpcore2.ConnectTimeout)
        return _Stream(self._stream.start_tls(ssl_context, server_hostname, left))

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)


def _left(timeout: float | None, expired: type[Exception]) -> float | None:
    """The seconds for one wait; raises `expired` after the deadline."""
    if not isinstance(timeout, Deadline):
        return timeout
    left = timeout.left
    if left <= 0:
        raise expired(f"not within {timeout:g} s")
    return left


def _addresses(host: str, port: int, seconds: float | None) -> list[str]:
    """The IP addresses of a host; raises errors of httpcore2.

    A thread asks the resolver of the system, which takes no timeout. If it is late, the thread is left to itself.
    """
    try:
        ipaddress.ip_address(host)
        return [host]
    except ValueError:
        pass
    answers: queue.SimpleQueue[list[str] | OSError | UnicodeError] = queue.SimpleQueue()

    def look_up() -> None:
        try:
            entries = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            answers.put([str(address[0]) for *_, address in entries])
        except (OSError, UnicodeError) as error:  # UnicodeError: a label of more than 63 characters
            answers.put(error)

    threading.Thread(target=look_up, name="movemask-resolver", daemon=True).start()
    try:
        answer = answers.get(timeout=seconds)
    except queue.Empty:
        raise httpcore2.ConnectTimeout(f"{host}: its address was not found within the timeout") from None
    if isinstance(answer, Exception):
        raise httpcore2.ConnectError(f"{host}: {answer}") from answer
    return answer
