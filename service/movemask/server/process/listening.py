"""`Port`: where a service listens; `Sockets`: the listening sockets of a worker.

On Linux each of several workers has sockets of its own with SO_REUSEPORT. The system spreads new connections
over them by a hash of their addresses (docs/performance.md). Elsewhere all workers accept from one socket.
"""

from __future__ import annotations

import errno
import logging
import os
import socket
import ssl
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from movemask.errors import SettingsError

log = logging.getLogger(__name__)

#: Whether the system spreads connections over sockets of the same port.
SPREADS = sys.platform == "linux" and hasattr(socket, "SO_REUSEPORT")

#: How a host that is the file of a Unix socket begins.
UNIX = "unix:"
AF_UNIX = getattr(socket, "AF_UNIX", None)

#: Connections that a worker accepts in one turn of its event loop.
AT_ONCE = 1

_BACKLOG = 2048  # connections that wait to be accepted; uvicorn's default
_NO_ADDRESS = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)  # such as ::1 without IPv6

#: Errors of `accept` when the process or the system has no descriptors or memory left.
_NO_RESOURCES = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


class Port:
    """The addresses of `host` with a port, or the file of `unix:FILE`, until closed.

    `::` takes IPv4 connections too. The supervisor only reserves the port. Nothing listens before a
    worker can answer, so that a proxy asks another machine meanwhile. A file is of this machine
    alone, and listens at once.

    With one worker, or if connections are not spread over the workers, the supervisor's socket
    listens. When a worker ends, connections that it had not accepted wait for its replacement.
    Otherwise each worker binds sockets of its own. New connections go to the others at once, and
    those that it had not accepted are lost.

    Raises SettingsError if `host` has no address of this machine, or the port or the file is in
    use.
    """

    def __init__(self, host: str, port: int, workers: int = 1) -> None:
        self._spread = SPREADS and workers > 1
        self._reserved: list[socket.socket] = []
        self._both = host == "::"  # whether a socket takes IPv4 connections too
        self.file = Path(host.removeprefix(UNIX)) if host.startswith(UNIX) else None
        if self.file is not None:
            self._spread = False
            self._reserved.append(_file_socket(self.file))
            return
        try:
            addresses = socket.getaddrinfo(
                host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )
            for family, _, _, _, address in dict.fromkeys(addresses):
                # With port 0, all have the port of the first.
                number = self._reserved[0].getsockname()[1] if self._reserved else port
                try:
                    self._open(family, (address[0], number, *address[2:]))
                except OSError as error:
                    if error.errno not in _NO_ADDRESS:
                        raise
        except OSError as error:
            self.close()
            unknown_host = isinstance(error, socket.gaierror)
            reason = (
                os.strerror(error.errno) if error.errno and not unknown_host else error.strerror
            )
            hint = ""
            if error.errno == errno.EADDRINUSE:
                hint = "; give another --port, or 0 for a free one"
            raise SettingsError(
                f"MOVEMASK_{'HOST' if unknown_host else 'PORT'}: cannot listen on {host}:{port}: "
                f"{str(reason).lower()}{hint}"
            ) from None
        if not self._reserved:
            raise SettingsError(f"MOVEMASK_HOST: {host!r} has no address of this machine")

    @property
    def addresses(self) -> list[tuple[str, int]]:
        """The addresses with their port; none for a file."""
        return [
            reserved.getsockname()[:2] for reserved in self._reserved if reserved.family != AF_UNIX
        ]

    @property
    def sockets(self) -> Sockets:
        """What each worker listens on."""
        if not self._spread:
            return Sockets(shared=self._reserved)
        return Sockets(
            [(reserved.family, reserved.getsockname()) for reserved in self._reserved],
            both=self._both,
        )

    def close(self) -> None:
        """Closes the sockets that the supervisor holds, and deletes the file."""
        for reserved in self._reserved:
            reserved.close()
        if self.file is not None:
            self.file.unlink(missing_ok=True)
            self.file = None

    def _open(self, family: int, address: tuple[Any, ...]) -> None:
        if not self._spread:
            self._reserved.append(_bound(family, address, both=self._both))
            return
        # With SO_REUSEPORT, the system would give the port to a second service of the same user too. Without it, the
        # system refuses a port on which anybody listens.
        with _bound(family, address, both=self._both) as exclusive:
            exclusive.listen(_BACKLOG)
            address = (address[0], exclusive.getsockname()[1], *address[2:])
        self._reserved.append(_bound(family, address, both=self._both, reuse_port=True))


def _bound(
    family: int, address: tuple[Any, ...], *, both: bool, reuse_port: bool = False
) -> socket.socket:
    """Returns a socket with an address, which does not listen. Raises OSError."""
    bound = socket.socket(family, socket.SOCK_STREAM)
    try:
        if sys.platform != "win32":  # there it would share the port
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if reuse_port:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if family == socket.AF_INET6:
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, not both)
        # Accepted connections inherit it. Otherwise a body waits 40 ms until the client has acknowledged the head.
        bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        bound.bind(address)
    except BaseException:
        bound.close()
        raise
    return bound


class Sockets:
    """The listening sockets of a worker, to which this is sent.

    addresses : family and address of each socket that the worker binds with SO_REUSEPORT; `both` as for `::`
    shared : the sockets of the supervisor, in place of `addresses`
    """

    def __init__(
        self,
        addresses: Sequence[tuple[int, tuple[Any, ...]]] = (),
        *,
        both: bool = False,
        shared: Sequence[socket.socket] = (),
    ) -> None:
        self._addresses, self._both, self._shared = list(addresses), both, list(shared)
        self._listeners: list[Listener] = []

    def bind(self) -> list[Listener]:
        """Returns the sockets, which do not listen yet. Raises SettingsError if another program has taken the port."""
        try:
            sockets = [
                _bound(*address, both=self._both, reuse_port=True) for address in self._addresses
            ]
        except OSError as error:
            raise _port_taken(error) from None
        self._listeners = [Listener(one.detach()) for one in (sockets or self._shared)]
        return self._listeners

    def listen(self) -> None:
        """Accepts connections from now on. Raises SettingsError if another program has taken the port."""
        try:
            for listener in self._listeners:
                listener.listen()
        except OSError as error:
            raise _port_taken(error) from None

    @property
    def closed(self) -> bool:
        """Whether the worker has stopped listening."""
        return any(listener.fileno() < 0 for listener in self._listeners)


def _port_taken(error: OSError) -> SettingsError:
    """Returns the error for a reserved port that another program has.

    The port is reserved by sockets that do not listen, and the system gives it to any program that asks for it with
    SO_REUSEADDR.
    """
    reason = os.strerror(error.errno).lower() if error.errno else str(error)
    hint = "another program took the port that was reserved; end it, or give another --port"
    return SettingsError(f"MOVEMASK_PORT: cannot listen: {reason}: {hint}")


def _file_socket(file: Path) -> socket.socket:
    """Returns a socket that listens at a file. Raises SettingsError if the file is in use, or is no socket.

    It listens at once, so that a second service finds the file in use. Anybody who may enter the file's folder may
    connect, as with uvicorn. The file of a service that has ended is replaced.
    """
    if AF_UNIX is None:
        raise SettingsError(f"MOVEMASK_HOST: {UNIX}{file}: this system has no Unix sockets")
    listener = socket.socket(AF_UNIX, socket.SOCK_STREAM)
    try:
        if file.is_socket():
            with socket.socket(AF_UNIX, socket.SOCK_STREAM) as other:
                if other.connect_ex(str(file)) != errno.ECONNREFUSED:
                    raise OSError(errno.EADDRINUSE, "")
            file.unlink()
        listener.bind(str(file))
        file.chmod(0o666)
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        # An error without a number is such as a path that is too long.
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise SettingsError(
            f"MOVEMASK_HOST: cannot listen on {UNIX}{file}: {reason.lower()}"
        ) from None
    return listener


class Listener(socket.socket):
    """A worker's listening socket, from its descriptor.

    The queue of connections has its full length, whatever asyncio asks for. asyncio accepts up to
    `backlog` connections in one turn of the event loop, and uses the same number for the queue. A
    worker asks for `AT_ONCE`, for two reasons:

    - Workers that share a socket each get some of a burst.
    - When descriptors run out, asyncio logs once and waits a second, not once for each connection
      of the queue.
    """

    def __init__(self, descriptor: int) -> None:
        super().__init__(fileno=descriptor)

    def listen(self, backlog: int = _BACKLOG) -> None:
        """Listens with a queue of 2,048 connections."""
        super().listen(_BACKLOG)


def on_loop_error(loop: Any, context: dict[str, Any]) -> None:
    """Handles an error of an asyncio event loop. If no connection can be accepted, the log gets one line."""
    error = context.get("exception")
    if isinstance(error, OSError) and error.errno in _NO_RESOURCES:
        log.warning(
            "no connections are accepted for a second: %s", os.strerror(error.errno).lower()
        )
    else:
        loop.default_exception_handler(context)


def check_tls(cert: Path | None, key: Path | None) -> None:
    """Raises SettingsError if the certificate or its key cannot be used."""
    if cert is None:
        if key is not None:
            raise SettingsError("MOVEMASK_TLS_KEY: needs MOVEMASK_TLS_CERT")
        return

    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(cert, key, password="")
    except OSError as error:  # ssl's errors are OSErrors
        fault = f"{cert} and its key cannot be read: {error.strerror} (no password is taken)"
        raise SettingsError(f"MOVEMASK_TLS_CERT: {fault}") from None
