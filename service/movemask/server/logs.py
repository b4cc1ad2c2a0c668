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
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from contextvars import ContextVar
from logging.handlers import QueueHandler, QueueListener
from queue import SimpleQueue
from typing import Any, cast

import orjson

from movemask.times import rfc3339

#: Most lines that wait to be written.
QUEUE = 10_000

_LAST_SECONDS = 2.0  # longest wait for a slow reader at the end of the process

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
    """`2026-01-31T12:00:00.123Z INFO    name: message [request id]`, followed by any traceback, indented: text from a
    client cannot begin a line."""

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


class QueuedHandler(QueueHandler):
    """Writes lines to a file descriptor from its own thread.

    A line that finds `limit` lines waiting is dropped; `dropped` is called with the number of such lines.
    """

    def __init__(self, descriptor: int, *, limit: int = QUEUE, dropped: Dropped = lambda count: None) -> None:
        lines: SimpleQueue[bytes] = SimpleQueue()
        super().__init__(cast(Any, lines))
        self._lines, self._limit, self._dropped, self._closed = lines, limit, 0, False
        self._writer = _Writer(self, descriptor, dropped)
        self._writer.start()

    def prepare(self, record: logging.LogRecord) -> bytes:
        """The line of a record: made here, where the request is known."""
        return self.format(record).encode("utf-8", "backslashreplace") + b"\n"

    def enqueue(self, record: Any) -> None:
        """Puts a line into the queue; never waits for the reader."""
        if self._closed:
            self._writer.handle(record)
        elif self._lines.qsize() >= self._limit:
            self._dropped += 1
        else:
            self._lines.put(record)

    def take_dropped(self) -> int:
        """The number of lines dropped since the last call."""
        with self.lock or nullcontext():  # as `enqueue` is called
            count, self._dropped = self._dropped, 0
        return count

    def close(self) -> None:
        """Writes waiting lines, for two seconds at most, and ends the thread; later lines are written directly."""
        if not self._closed:
            stopping = threading.Thread(target=self._writer.stop, daemon=True)  # it waits for a slow reader for ever
            stopping.start()
            stopping.join(_LAST_SECONDS)
            self._closed = True
        super().close()


class _Writer(QueueListener):
    """The thread that writes a handler's lines."""

    def __init__(self, handler: QueuedHandler, descriptor: int, dropped: Dropped) -> None:
        super().__init__(handler.queue)
        self._handler, self._descriptor, self._on_dropped = handler, descriptor, dropped

    def handle(self, record: Any) -> None:
        """Writes a line, and another if lines were dropped meanwhile."""
        self._write(record)
        if count := self._handler.take_dropped():
            self._on_dropped(count)
            words = "dropped %d log lines: stderr is read too slowly"
            self._write(
                self._handler.prepare(logging.LogRecord(__name__, logging.WARNING, "", 0, words, (count,), None))
            )

    def _write(self, line: bytes) -> None:
        left = memoryview(line)
        while left:
            try:
                left = left[os.write(self._descriptor, left) :]
            except BlockingIOError:  # another process made it non-blocking
                select.select([], [self._descriptor], [], 1)
            except OSError:  # the reader has gone
                self._on_dropped(1)
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
    # No line names its caller, thread or process: looking them up would be half of the cost of an access line. The name
    # `_srcfile` is the one in "Optimization" of Python's logging HOWTO; without it, lines would only cost more.
    logging._srcfile = None
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False


def _name(record: logging.LogRecord) -> str:
    return "uvicorn" if record.name == "uvicorn.error" else record.name


def _printable(message: str) -> str:
    """The message with control characters escaped, so that no input can forge a line."""
    if message.isprintable():
        return message
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in message)
