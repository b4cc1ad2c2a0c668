"""Logs of `movemask serve`: lines of text or JSON on standard error, with the id of their request.

A separate thread writes them, so that a slow reader of standard error delays no request. Lines wait in a bounded queue;
lines that do not fit are dropped and counted.
"""

from __future__ import annotations

import logging
import os
import random
import re
import select
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable
from contextvars import ContextVar
from typing import Any, cast

import orjson

from movemask.times import rfc3339

#: Most lines that wait to be written.
QUEUE = 10_000

_GATHER_SECONDS = 0.05  # between writes; warnings and the end of the process do not wait
_LAST_SECONDS = 2.0  # longest wait for a slow reader at the end of the process
_ATOMIC: int = getattr(select, "PIPE_BUF", 512)  # bytes of a write that other processes cannot interrupt

_STANDARD_ERROR = 2
_SANE_ID = re.compile(rb"[A-Za-z0-9._:/+=@-]{1,128}")

_access = logging.getLogger("access")
_ACCESS = "%s %s %d ms=%.3f positions=%d request_id=%s%s"

#: The id of the current request, for its log lines and problems. Set by the middleware and never reset, since each
#: request runs in its own task.
request_id: ContextVar[str | None] = ContextVar("request_id", default=None)


def id_of(headers: Iterable[tuple[bytes, bytes]]) -> str:
    """The client's X-Request-ID if it is well-formed, else a new one of 32 hexadecimal digits."""
    for name, value in headers:
        if name == b"x-request-id" and _SANE_ID.fullmatch(value):
            return value.decode("ascii")
    return f"{random.getrandbits(128):032x}"


def access(
    method: str, route: str, status: int, seconds: float, positions: int, request: str, key: str | None, *, debug: bool
) -> None:
    """Logs one request, with the name of its API key; never its body, query or headers."""
    key = "" if key is None else f" key={key}"
    level = logging.DEBUG if debug else logging.INFO
    _access.log(level, _ACCESS, method, route, status, 1e3 * seconds, positions, request, key)


class TextFormatter(logging.Formatter):
    """`2026-01-31T12:00:00.123Z INFO    name: message [request id]`, followed by any traceback, indented: what a client
    sent cannot begin a line."""

    def format(self, record: logging.LogRecord) -> str:
        line = f"{rfc3339(record.created)} {record.levelname:<7} {_name(record)}: {_printable(record.getMessage())}"
        current_id = request_id.get() if record.name != _access.name else None
        if current_id is not None:
            line += f" [{current_id}]"
        if record.exc_info:
            for part in self.formatException(record.exc_info).split("\n"):
                line += f"\n    {_printable(part)}"
        return line


class JsonFormatter(logging.Formatter):
    """One JSON object per line."""

    def format(self, record: logging.LogRecord) -> str:
        out: dict[str, Any] = {"time": rfc3339(record.created), "level": record.levelname.lower()}
        out |= {"logger": _name(record), "pid": os.getpid()}
        if record.name == _access.name and isinstance(record.args, tuple):
            method, route, status, milliseconds, positions, request, key = record.args
            out |= {"message": f"{method} {route} {status}", "method": method, "route": route, "status": status}
            out |= {"ms": round(cast(float, milliseconds), 3), "positions": positions, "request_id": request}
            if key:
                out["key"] = str(key).removeprefix(" key=")
        else:
            out["message"] = record.getMessage()
            current_id = request_id.get()
            if current_id is not None:
                out["request_id"] = current_id
        if record.exc_info:
            out["exception"] = self.formatException(record.exc_info)
        return orjson.dumps(out, default=str).decode()


Dropped = Callable[[int], object]


class QueuedHandler(logging.Handler):
    """Writes lines to a file descriptor from its own thread; calls `dropped` with the number of lines it dropped.

    logging.handlers.QueueListener would wake its thread for each line, and each time costs a request 10 µs or more.
    """

    def __init__(self, descriptor: int, *, limit: int = QUEUE, dropped: Dropped = lambda count: None) -> None:
        super().__init__()
        self._descriptor, self._limit, self._on_dropped = descriptor, limit, dropped
        self._dropped = 0
        self._lines: deque[bytes] = deque()
        self._hurry = threading.Event()
        self._closing = False
        self._thread = threading.Thread(target=self._work, name="logs", daemon=True)
        self._thread.start()

    def emit(self, record: logging.LogRecord) -> None:
        """Puts a line into the queue; never waits for the reader."""
        if len(self._lines) >= self._limit:
            self._dropped += 1
            return
        try:
            self._lines.append(self._line(record))
        except Exception:
            self.handleError(record)
        if not self._thread.is_alive():
            self._write_all()
        elif record.levelno >= logging.WARNING:
            self._hurry.set()

    def _line(self, record: logging.LogRecord) -> bytes:
        return self.format(record).encode("utf-8", "backslashreplace") + b"\n"

    def close(self) -> None:
        """Writes waiting lines, for two seconds at most, and ends the thread; later lines are written directly."""
        self._closing = True
        self._hurry.set()
        self._thread.join(_LAST_SECONDS)
        super().close()

    def _work(self) -> None:
        while not self._closing:
            self._hurry.wait(_GATHER_SECONDS)
            self._hurry.clear()
            self._write_all()
        self._write_all()

    def _write_all(self) -> None:
        while self._lines or self._dropped:
            lines = [self._lines.popleft()] if self._lines else []
            size = sum(map(len, lines))
            while self._lines and (size := size + len(self._lines[0])) <= _ATOMIC:
                lines.append(self._lines.popleft())
            self._write(lines)
            if self._dropped:
                self.acquire()  # as `emit` is called
                count, self._dropped = self._dropped, 0
                self.release()
                self._on_dropped(count)
                said = "dropped %d log lines: stderr is read too slowly"
                record = logging.LogRecord(__name__, logging.WARNING, "", 0, said, (count,), None)
                self._lines.append(self._line(record))

    def _write(self, lines: list[bytes]) -> None:
        left = memoryview(b"".join(lines))
        while left:
            try:
                left = left[os.write(self._descriptor, left) :]
            except BlockingIOError:  # another process made it non-blocking
                select.select([], [self._descriptor], [], 1)
            except OSError:  # the reader has gone
                self._on_dropped(len(lines))
                return


def configure(level: str, log_format: str, *, dropped: Dropped = lambda count: None) -> None:
    """Makes this process log to standard error, with `level` and `log_format` as in Settings.

    Called in the parent and in each worker; a second call replaces the first. uvicorn's loggers are included, without
    its access lines.
    """
    root = logging.getLogger()
    for old in [handler for handler in root.handlers if isinstance(handler, QueuedHandler)]:
        root.removeHandler(old)
        old.close()
    sys.stderr.flush()
    handler = QueuedHandler(_STANDARD_ERROR, dropped=dropped)
    handler.setFormatter(JsonFormatter() if log_format == "json" else TextFormatter())
    root.addHandler(handler)
    root.setLevel(level.upper())
    for name in ("uvicorn", "uvicorn.error", "uvicorn.access"):
        logger = logging.getLogger(name)
        logger.handlers.clear()
        logger.propagate = name != "uvicorn.access"
    logging.getLogger("asyncio").setLevel(logging.ERROR)  # it warns of each write to a client that has gone
    for library in ("alembic", "httpx2", "mcp"):  # which use many lines for what movemask says in one
        logging.getLogger(library).setLevel(logging.WARNING)
    logging.captureWarnings(True)
    # No line names its caller, thread or process: looking them up would be half of the cost of an access line.
    logging._srcfile = None  # so in "Optimization" of Python's logging HOWTO
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False


def _name(record: logging.LogRecord) -> str:
    return "uvicorn" if record.name == "uvicorn.error" else record.name


def _printable(message: str) -> str:
    """The message with control characters escaped, so that no input can forge a line."""
    if message.isprintable():
        return message
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in message)
