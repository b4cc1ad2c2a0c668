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
import time
from collections import deque
from collections.abc import Callable, Iterable
from contextvars import ContextVar
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, cast

import orjson

#: Most lines that wait to be written.
QUEUE = 10_000

_GATHER_SECONDS = 0.05  # delay that collects lines into one write; warnings and the end of the process skip it
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
    method: str,
    route: str,
    status: int,
    seconds: float,
    positions: int,
    request: str,
    key: str | None = None,
    *,
    debug: bool,
) -> None:
    """Logs one request, with the name of its API key; never its body, query or headers."""
    level = logging.DEBUG if debug else logging.INFO
    key = "" if key is None else f" key={key}"
    _access.log(level, _ACCESS, method, route, status, 1e3 * seconds, positions, request, key)


class TextFormatter(logging.Formatter):
    """`2026-01-31T12:00:00.123Z INFO    name: message [request id]`, followed by any traceback."""

    def format(self, record: logging.LogRecord) -> str:
        line = f"{_time(record)} {record.levelname:<7} {_name(record)}: {_printable(record.getMessage())}"
        current_id = request_id.get() if record.name != _access.name else None
        if current_id is not None:
            line += f" [{current_id}]"
        trace = _trace(self, record)
        return f"{line}\n{trace}" if trace else line


class JsonFormatter(logging.Formatter):
    """One JSON object per line."""

    def format(self, record: logging.LogRecord) -> str:
        out: dict[str, Any] = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": _name(record),
            "pid": os.getpid(),
        }
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
        trace = _trace(self, record)
        if trace:
            out["exception"] = trace
        return orjson.dumps(out, default=str).decode()


class Repeated(logging.Filter):
    """Drops lines that libraries repeat for every broken connection: `most` of a text in `seconds`, then a count.

    `clock` must not jump, as a record's own time does when the system's clock is set.
    """

    def __init__(self, most: int = 5, seconds: float = 10, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._most, self._seconds, self._clock = most, seconds, clock
        self._seen: dict[str, tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the line is logged."""
        if record.levelno < logging.WARNING:
            return True
        text, now = str(record.msg)[:100], self._clock()
        since, count = self._seen.get(text, (now, 0))
        if now - since >= self._seconds:
            if count > self._most:
                record.msg = f"{record.msg} ({count - self._most} more like it were not logged)"
            since, count = now, 0
        if len(self._seen) > 100:
            self._seen.clear()
        self._seen[text] = since, count + 1
        return count < self._most


class QueuedHandler(logging.Handler):
    """Writes lines to a file descriptor from its own thread; calls `dropped` with the number of lines it dropped."""

    def __init__(self, descriptor: int, *, limit: int = QUEUE, dropped: Callable[[int], object] | None = None) -> None:
        super().__init__()
        self._descriptor = descriptor
        self._limit = limit
        self._on_dropped = dropped
        self._dropped = 0
        self._lines: deque[str | logging.LogRecord] = deque()
        self._wake, self._hurry = threading.Event(), threading.Event()
        self._closing = False
        self._thread = threading.Thread(target=self._work, name="logs", daemon=True)
        self._thread.start()

    def emit(self, record: logging.LogRecord) -> None:
        """Puts a line into the queue; never waits for the reader."""
        if len(self._lines) >= self._limit:
            self._dropped += 1
            return
        try:
            # Access lines hold no mutable state, so the writer thread formats them.
            self._lines.append(record if record.name == _access.name else self.format(record))
        except Exception:
            self.handleError(record)
        if not self._thread.is_alive():
            if select.select([], [self._descriptor], [], 0)[1]:  # writing would not block
                self._write_all()
            return
        if record.levelno >= logging.WARNING:
            self._hurry.set()
        if not self._wake.is_set():
            self._wake.set()

    def finish(self) -> None:
        """Writes waiting lines, for two seconds at most, and ends the thread; later lines are written directly."""
        self._closing = True
        self._hurry.set()
        self._wake.set()
        self._thread.join(_LAST_SECONDS)

    def close(self) -> None:
        """Calls `finish`; logging calls this at the end of the process."""
        self.finish()
        super().close()

    def _work(self) -> None:
        while not self._closing:
            self._wake.wait()
            self._hurry.wait(_GATHER_SECONDS)
            self._hurry.clear()
            self._wake.clear()
            self._write_all()
        self._write_all()

    def _write_all(self) -> None:
        chunk: list[bytes] = []
        size = 0
        while self._lines or self._dropped:
            if self._dropped and len(self._lines) < self._limit:
                self._report_dropped()
            line = self._next_line()
            if size + len(line) > _ATOMIC:
                self._write(chunk)
                chunk, size = [], 0
            chunk.append(line)
            size += len(line)
        self._write(chunk)

    def _next_line(self) -> bytes:
        line = self._lines.popleft()
        text = self.format(line) if isinstance(line, logging.LogRecord) else line
        return text.encode("utf-8", "backslashreplace") + b"\n"

    def _report_dropped(self) -> None:
        self.acquire()
        count, self._dropped = self._dropped, 0
        self.release()
        if self._on_dropped is not None:
            self._on_dropped(count)
        record = logging.makeLogRecord(
            {
                "name": __name__,
                "levelno": logging.WARNING,
                "levelname": "WARNING",
                "msg": "%d log lines were dropped: whoever reads them is too slow",
                "args": (count,),
            }
        )
        self._lines.append(self.format(record))

    def _write(self, lines: list[bytes]) -> None:
        left = memoryview(b"".join(lines))
        while left:
            try:
                left = left[os.write(self._descriptor, left) :]
            except BlockingIOError:  # another process made it non-blocking
                select.select([], [self._descriptor], [], 1)
            except OSError:  # the reader has gone
                if self._on_dropped is not None:
                    self._on_dropped(len(lines))
                return


def configure(level: str, log_format: str, *, dropped: Callable[[int], object] | None = None) -> None:
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
    for name in ("uvicorn.error", "asyncio"):
        logger = logging.getLogger(name)
        for filter_ in [one for one in logger.filters if isinstance(one, Repeated)]:
            logger.removeFilter(filter_)
        logger.addFilter(Repeated())
    logging.captureWarnings(True)
    # No line names its caller, thread or process: looking them up would be half of the cost of an access line.
    logging._srcfile = None  # so in "Optimization" of Python's logging HOWTO
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False


def finish() -> None:
    """Writes waiting lines. Needed in workers: uvicorn ends them with a signal, which skips logging's own shutdown."""
    for handler in logging.getLogger().handlers:
        if isinstance(handler, QueuedHandler):
            handler.finish()


def _time(record: logging.LogRecord) -> str:
    second = int(record.created)
    return f"{_date_and_time(second)}.{int((record.created - second) * 1000):03}Z"


@lru_cache(maxsize=4)  # many lines share a second
def _date_and_time(second: int) -> str:
    return f"{datetime.fromtimestamp(second, UTC):%Y-%m-%dT%H:%M:%S}"


def _name(record: logging.LogRecord) -> str:
    return "uvicorn" if record.name == "uvicorn.error" else record.name


def _printable(message: str) -> str:
    """The message with control characters escaped, so that no input can forge a line."""
    if message.isprintable():
        return message
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in message)


def _trace(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    return formatter.formatException(record.exc_info) if record.exc_info else ""
