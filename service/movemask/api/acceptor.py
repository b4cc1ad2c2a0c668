"""`Acceptor`: accepts all connections of a service, and hands each to the worker process that has the fewest.

A socket that several processes listen on gives most connections of a burst to whichever wakes first, and keep-alive
keeps them there. Here one thread of the supervisor accepts. It sends the descriptor over a Unix socket to a worker,
which does everything else, TLS too, and says when it has taken the connection and when that has ended. A connection
that a worker died before taking is given to another. One that no worker has room for now waits, and no more are
accepted meanwhile.
"""

from __future__ import annotations

import logging
import selectors
import socket
import struct
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

log = logging.getLogger(__name__)

#: What a descriptor comes with: the connection's number, and why it is to be refused (`SERVE` if it is not).
HANDED = struct.Struct("<II")
#: What comes back: the number of a connection, once when it is taken and again when it has ended; or DRAINING from a
#: worker that wants no more.
TOLD = struct.Struct("<I")
DRAINING = 0

#: Why a connection is refused, by the number that a worker is sent; 0 for one that is served.
SERVE, TOO_MANY, TOO_MANY_OF_ADDRESS = range(3)

#: Seconds without a sign of life after which a worker is passed over, if another gives signs.
_SILENT = 2.0
#: Connections taken from a listener before the other sockets are looked at again.
_AT_ONCE = 64
#: Seconds that workers which have had SIGTERM get to say that they drain.
_DRAINS = 1.0
_PAUSE = 0.05  # seconds, where nobody can take a connection
_FULL = 0.002  # seconds, where what has been handed over must be read first


@dataclass(slots=True, eq=False)
class _Worker:
    channel: socket.socket
    last_alive: Callable[[], float | None]
    addresses: dict[int, str] = field(default_factory=dict)  # of its connections, by their numbers
    untaken: dict[int, socket.socket] = field(default_factory=dict)  # those that it has not taken yet
    draining: bool = False
    partial: bytes = b""


class Acceptor:
    """Accepts on its own thread until closed.

    Parameters
    ----------
    listeners : sockets that listen
    most, most_of_address : connections, in all and of one address (None for no limit); a worker refuses more
    """

    def __init__(self, listeners: Sequence[socket.socket], most: int, most_of_address: int | None) -> None:
        for listener in listeners:
            listener.setblocking(False)
        self._listeners, self._most, self._most_of_address = listeners, most, most_of_address
        self._workers: set[_Worker] = set()
        self._addresses: Counter[str] = Counter()
        self._unhanded: deque[tuple[socket.socket, str]] = deque()  # accepted, with their addresses
        self._open = self._number = 0
        self._lock = threading.Lock()
        self._selector = selectors.DefaultSelector()
        self._waker, self._wake = socket.socketpair()
        self._selector.register(self._waker, selectors.EVENT_READ)
        self._accepting = self._closing = False
        self._thread = threading.Thread(target=self._work, name="acceptor", daemon=True)
        self._thread.start()

    def add(self, channel: socket.socket, last_alive: Callable[[], float | None]) -> None:
        """Adds a worker, which is given connections once it has given a sign of life: `last_alive` by
        `time.monotonic`."""
        channel.setblocking(False)
        with self._lock:
            worker = _Worker(channel, last_alive)
            self._workers.add(worker)
            self._selector.register(channel, selectors.EVENT_READ, worker)
            self._wake.send(b"+")

    def remove(self, channel: socket.socket) -> None:
        """Removes a worker that has ended, with its connections."""
        with self._lock:
            for worker in [one for one in self._workers if one.channel is channel]:
                self._forget(worker)
        channel.close()

    def close(self) -> None:
        """Closes the listeners once the workers drain (answers say `Connection: close` before the port is gone), and
        ends the thread; workers read the end of their channels."""
        until = time.monotonic() + _DRAINS
        while self._able() and time.monotonic() < until:
            time.sleep(0.01)
        with self._lock:
            self._closing = True
            self._wake.send(b"-")
        self._thread.join()
        self._selector.close()
        for one in (self._waker, self._wake):
            one.close()

    def _work(self) -> None:
        while not self._closing:
            with self._lock:
                self._hand_over_all()
                self._accept_or_wait(bool(self._able()) and not self._unhanded)
                waits = None if self._accepting else _FULL if self._able() else _PAUSE
            events = self._selector.select(waits)
            with self._lock:
                for key, _ in events:
                    self._ready(key)
        with self._lock:
            for listener in self._listeners:
                while self._accept(listener):
                    continue
                listener.close()
            while self._unhanded:
                self._unhanded.popleft()[0].close()
            for worker in self._workers:
                with suppress(OSError):
                    worker.channel.shutdown(socket.SHUT_WR)

    def _accept_or_wait(self, accepting: bool) -> None:
        """Listens for connections only while a worker can take them; until then they wait in the system's queue."""
        if accepting == self._accepting:
            return
        self._accepting = accepting
        for listener in self._listeners:
            if accepting:
                self._selector.register(listener, selectors.EVENT_READ, listener)
            else:
                self._selector.unregister(listener)

    def _ready(self, key: selectors.SelectorKey) -> None:
        if isinstance(key.data, _Worker):
            if key.data in self._workers:
                self._hear(key.data)
        elif key.data is None:
            self._waker.recv(64)
        else:
            for _ in range(_AT_ONCE):
                if self._unhanded or not self._accept(key.data):
                    break

    def _accept(self, listener: socket.socket) -> bool:
        """Takes a connection and hands it over; False if there is none."""
        try:
            connection, address = listener.accept()
        except BlockingIOError:
            return False
        except OSError as error:  # no descriptors left, or the client has gone again
            log.warning("a connection cannot be accepted: %s", error)
            return False
        self._unhanded.append((connection, str(address[0])))
        self._hand_over_all()
        return True

    def _able(self) -> list[_Worker]:
        return [one for one in list(self._workers) if not one.draining and one.last_alive() is not None]

    def _hand_over_all(self) -> None:
        while self._unhanded and self._hand_over(*self._unhanded[0]):
            self._unhanded.popleft()

    def _hand_over(self, connection: socket.socket, address: str) -> bool:
        """To the worker with the fewest connections of those that give signs of life; False if none takes it now."""
        verdict = SERVE
        if self._open >= self._most:
            verdict = TOO_MANY
        elif self._most_of_address is not None and self._addresses[address] >= self._most_of_address:
            verdict = TOO_MANY_OF_ADDRESS
        self._number = self._number % 0xFFFFFFFF + 1
        silent = time.monotonic() - _SILENT
        for worker in sorted(self._able(), key=lambda one: ((one.last_alive() or 0.0) < silent, len(one.addresses))):
            try:
                socket.send_fds(worker.channel, [HANDED.pack(self._number, verdict)], [connection.fileno()])
            except OSError:  # it has just died, or has not read what it was sent before
                continue
            worker.addresses[self._number], worker.untaken[self._number] = address, connection
            self._addresses[address] += 1
            self._open += 1
            return True
        return False

    def _hear(self, worker: _Worker) -> None:
        try:
            heard = worker.channel.recv(65_536)
        except BlockingIOError:
            return
        except OSError:
            heard = b""
        if not heard:  # it has died
            self._forget(worker)
            return
        heard = worker.partial + heard
        whole = len(heard) - len(heard) % TOLD.size
        worker.partial = heard[whole:]
        for (number,) in TOLD.iter_unpack(heard[:whole]):
            if number == DRAINING:
                worker.draining = True
                with suppress(OSError):
                    worker.channel.shutdown(socket.SHUT_WR)
            elif number in worker.untaken:
                worker.untaken.pop(number).close()
            else:
                self._ended(worker, number)

    def _forget(self, worker: _Worker) -> None:
        self._workers.remove(worker)
        if not self._closing:
            self._selector.unregister(worker.channel)
        again = [(connection, worker.addresses[number]) for number, connection in worker.untaken.items()]
        for number in list(worker.addresses):
            self._ended(worker, number)
        self._unhanded.extend(again)
        self._hand_over_all()

    def _ended(self, worker: _Worker, number: int) -> None:
        address = worker.addresses.pop(number, None)
        if address is not None:
            self._open -= 1
            self._addresses[address] -= 1
            if not self._addresses[address]:
                del self._addresses[address]
