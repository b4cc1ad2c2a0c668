"""Logs of `movemask serve`: lines of text or JSON on standard error, with the id of their request.

In every process a thread writes them, from the first line on: nothing waits for a slow reader.
"""

from __future__ import annotations

import logging
import os
import random
import re
import select
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from contextvars import ContextVar
from logging.handlers import QueueHandler
from queue import Empty, SimpleQueue
from typing import Any, cast

import orjson

from movemask.times import rfc3339

#: Most lines that wait to be written.
QUEUE = 10_000

#: Seconds that the lines of requests are gathered, and most lines that are written together.
_TOGETHER, _MOST_TOGETHER = 0.1, 1_000

#: Seconds that a process which ends waits for its last lines to be written.
_LAST_SECONDS = 1.0

#: Most bytes that a pipe takes in one piece.
_PIPE_BYTES = getattr(select, "PIPE_BUF", 4096)

_SANE_ID = re.compile(rb"[A-Za-z0-9._:/+=@-]{1,128}")

log = logging.getLogger(__name__)
_access = logging.getLogger("access")
_ACCESS = "%s %s %d ms=%.3f positions=%d request_id=%s%s"

#: The id of the current request, for its log lines and problems. Set by the middleware and never reset, since each
#: request runs in its own task.
request_id: ContextVar[str | None] = ContextVar("request_id", default=None)


def id_of(headers: Iterable[tuple[bytes, bytes]]) -> str:
    """Returns the client's X-Request-ID if it is well-formed, else a new one of 32 hexadecimal digits."""
    for name, value in headers:
        if name == b"x-request-id" and _SANE_ID.fullmatch(value):
            return value.decode("ascii")
    return f"{random.getrandbits(128):032x}"


def access(
    method: str,
    route: str,
    status: int,
    seconds: float,
    positions: int,
    request: str,
    key: str | None,
    *,
    debug: bool,
) -> None:
    """Logs one request, with the name of its API key; never its body, query or headers."""
    level = logging.DEBUG if debug else logging.INFO
    if not _access.isEnabledFor(level):
        return
    fields = (
        method,
        route,
        status,
        1e3 * seconds,
        positions,
        request,
        "" if key is None else f" key={key}",
    )
    if handlers := _handlers():  # a line made here would cost the event loop a tenth of a request
        handlers[0].enqueue((time.time(), level, fields))
    else:
        _access.log(level, _ACCESS, *fields)


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
        fields: dict[str, Any] = {
            "time": rfc3339(record.created),
            "level": record.levelname.lower(),
            "logger": _name(record),
            "pid": os.getpid(),
        }
        if record.name == _access.name and isinstance(record.args, tuple):
            method, route, status, milliseconds, positions, request, key = record.args
            fields |= {
                "message": f"{method} {route} {status}",
                "method": method,
                "route": route,
                "status": status,
                "ms": round(cast(float, milliseconds), 3),
                "positions": positions,
                "request_id": request,
            }
            if key:
                fields["key"] = str(key).removeprefix(" key=")
        else:
            fields["message"] = record.getMessage()
            current_id = request_id.get()
            if current_id is not None:
                fields["request_id"] = current_id
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        return orjson.dumps(fields, default=str).decode()


def configure(level: str, log_format: str) -> None:
    """Makes this process log to standard error, with `level` and `log_format` as in Settings.

    Called in the supervisor and in each worker; a second call replaces the first. Of uvicorn's lines, warnings and
    errors are included.
    """
    root = logging.getLogger()
    for old in _handlers():
        root.removeHandler(old)
        old.close()
    root.addHandler(LogHandler(JsonFormatter() if log_format == "json" else TextFormatter()))
    root.setLevel(level.upper())
    for name in ("uvicorn", "uvicorn.error", "uvicorn.access"):
        logger = logging.getLogger(name)
        logger.handlers.clear()
        logger.propagate = name != "uvicorn.access"
    # asyncio warns of each write to a client that has disconnected.
    logging.getLogger("asyncio").setLevel(logging.ERROR)
    # These use many lines for what movemask says in one.
    for library in ("uvicorn", "httpx2", "mcp"):
        logging.getLogger(library).setLevel(logging.WARNING)
    logging.captureWarnings(True)
    logging.raiseExceptions = False  # a line that cannot be written is lost


def await_each_line(seconds: float) -> None:
    """Makes each log call wait until its line is written, at most `seconds`. 0, the default, does not wait.

    A process that ends on the spot, as by a network file, then leaves the line that names the cause.
    """
    for handler in _handlers():
        handler.seconds = seconds


def flush(seconds: float = _LAST_SECONDS) -> None:
    """Waits until all lines are written, at most `seconds`."""
    for handler in _handlers():
        handler.wait_until_written(seconds)


def _handlers() -> list[LogHandler]:
    return [handler for handler in logging.getLogger().handlers if isinstance(handler, LogHandler)]


class LogHandler(QueueHandler):
    """Writes lines to standard error on a thread of its own. `QUEUE` lines wait at most; a later one counts the others.

    Attributes
    ----------
    seconds : longest time that a log call waits until its line is written
    """

    def __init__(self, formatter: logging.Formatter) -> None:
        # Lines; requests as their time, level and the fields of `_ACCESS`; events to set when all before is written;
        # None at the end.
        self._items: SimpleQueue[Any] = SimpleQueue()
        super().__init__(cast(Any, self._items))
        self.setFormatter(formatter)
        self.seconds = 0.0
        self._lost, self._lost_lock = 0, threading.Lock()
        threading.Thread(target=self._write, name="log", daemon=True).start()

    def prepare(self, record: logging.LogRecord) -> str:
        """Returns the line of a record, made here because the thread does not know the current request."""
        return self.format(record)

    def enqueue(self, item: Any) -> None:
        """Has the thread write a line, or that of a request."""
        if self._items.qsize() < QUEUE:
            self._items.put(item)
        else:
            with self._lost_lock:
                self._lost += 1

    def emit(self, record: logging.LogRecord) -> None:
        super().emit(record)
        if self.seconds and not self.wait_until_written(self.seconds):
            self.seconds = 0.0  # nothing reads standard error

    def wait_until_written(self, seconds: float) -> bool:
        """Waits until all lines are written, at most `seconds`; returns whether they are."""
        written = threading.Event()
        self._items.put(written)
        return written.wait(seconds)

    def close(self) -> None:
        """Ends the thread when all lines are written."""
        self._items.put(None)
        super().close()

    def _write(self) -> None:
        # Not by `sys.stderr`: a thread that is blocked in it would hold its lock, and Python could not end.
        try:
            stream, encoding = sys.stderr.fileno(), sys.stderr.encoding
        except (AttributeError, OSError, ValueError):  # there is none, or it is no file
            stream, encoding = -1, "utf-8"
        items: list[Any] = []
        while None not in items:
            items = self._next_items()
            lines = [line for item in items for line in self._lines(item)]
            if self._lost and self._items.qsize() < QUEUE // 2:
                lines.append(self._line_of_lost())
            for piece in _pieces(
                [f"{one}\n".encode(encoding, "backslashreplace") for one in lines]
            ):
                with suppress(OSError):
                    _write_all(stream, piece)
            for item in items:
                if isinstance(item, threading.Event):
                    item.set()

    def _next_items(self) -> list[Any]:
        """Waits for items. Requests of 0.1 s come together: waking this thread for each would cost the event loop."""
        items = [self._items.get()]
        if isinstance(items[0], tuple):
            time.sleep(_TOGETHER)
        with suppress(Empty):
            while len(items) < _MOST_TOGETHER:
                items.append(self._items.get_nowait())
        return items

    def _lines(self, item: Any) -> Iterator[str]:
        if isinstance(item, str):
            yield item
        elif isinstance(item, tuple):
            created, level, fields = item
            record = logging.LogRecord(_access.name, level, "", 0, _ACCESS, fields, None)
            record.created = created
            yield self.format(record)

    def _line_of_lost(self) -> str:
        with self._lost_lock:
            lost, self._lost = self._lost, 0
        text = "%d log lines were lost: nothing read standard error in time"
        return self.format(logging.LogRecord(log.name, logging.WARNING, "", 0, text, (lost,), None))


def _write_all(stream: int, data: bytes) -> None:
    while data:
        try:
            data = data[os.write(stream, data) :]
        except BlockingIOError:  # another program has made the stream non-blocking
            select.select((), (stream,), ())


def _pieces(lines: Iterable[bytes]) -> Iterator[bytes]:
    """Yields the lines, as many together as a pipe does not mix with what another process writes to it."""
    piece = b""
    for line in lines:
        if piece and len(piece) + len(line) > _PIPE_BYTES:
            yield piece
            piece = b""
        piece += line
    yield piece


def _name(record: logging.LogRecord) -> str:
    return "uvicorn" if record.name == "uvicorn.error" else record.name


def _printable(message: str) -> str:
    """Returns the message with control characters escaped, so that no input can forge a line."""
    if message.isprintable():
        return message
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode() for char in message
    )
