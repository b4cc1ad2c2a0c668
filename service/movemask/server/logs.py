"""Logs of `movemask serve`: lines of text or JSON on standard error, with the id of their request.

In a worker that serves, a separate thread writes them.
"""

from __future__ import annotations

import logging
import os
import random
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from logging.handlers import QueueHandler, QueueListener
from queue import Full, Queue
from typing import Any, TextIO, cast

import orjson

from movemask.times import rfc3339

#: Most lines that wait to be written.
QUEUE = 10_000

_SANE_ID = re.compile(rb"[A-Za-z0-9._:/+=@-]{1,128}")

log = logging.getLogger(__name__)
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


def configure(level: str, log_format: str) -> None:
    """Makes this process log to standard error, with `level` and `log_format` as in Settings.

    Called in the supervisor and in each worker; a second call replaces the first. Of uvicorn's lines, warnings and
    errors are included.
    """
    root = logging.getLogger()
    for old in [handler for handler in root.handlers if isinstance(handler, DirectHandler)]:
        root.removeHandler(old)
    handler = DirectHandler()
    handler.setFormatter(JsonFormatter() if log_format == "json" else TextFormatter())
    root.addHandler(handler)
    root.setLevel(level.upper())
    for name in ("uvicorn", "uvicorn.error", "uvicorn.access"):
        logger = logging.getLogger(name)
        logger.handlers.clear()
        logger.propagate = name != "uvicorn.access"
    logging.getLogger("asyncio").setLevel(logging.ERROR)  # it warns of each write to a client that has gone
    for library in ("uvicorn", "httpx2", "mcp"):  # which use many lines for what movemask says in one
        logging.getLogger(library).setLevel(logging.WARNING)
    logging.captureWarnings(True)
    logging.raiseExceptions = False  # a line that cannot be written is lost


class DirectHandler(logging.StreamHandler[TextIO]):
    """Writes each line before the program goes on."""


class _CountingHandler(QueueHandler):
    """Counts the lines for which the queue has no room, and logs their number when half of it is free again."""

    def __init__(self, queue: Queue[logging.LogRecord]) -> None:
        super().__init__(queue)
        self._lines, self._lost = queue, 0

    def enqueue(self, record: logging.LogRecord) -> None:
        try:
            super().enqueue(record)
        except Full:
            self._lost += 1
        else:
            if self._lost and self._lines.qsize() < QUEUE // 2:
                self.tell()

    def tell(self) -> None:
        """Logs how many lines were lost since the last call, if any."""
        lost, self._lost = self._lost, 0
        if lost:
            log.warning("%d log lines were lost: nothing read standard error in time", lost)


@contextmanager
def written_by_a_thread() -> Iterator[None]:
    """Within it, a slow reader of standard error delays no request: `QUEUE` lines wait at most, others are lost and
    counted.

    Before and after, a line is written before the program goes on.
    """
    root = logging.getLogger()
    direct = next(handler for handler in root.handlers if isinstance(handler, DirectHandler))
    queued = _CountingHandler(Queue(QUEUE))
    queued.setFormatter(direct.formatter)  # in the thread that logs, where the request is known
    listener = QueueListener(queued.queue, logging.StreamHandler())
    listener.start()
    root.addHandler(queued)
    root.removeHandler(direct)
    try:
        yield
    finally:
        root.addHandler(direct)
        root.removeHandler(queued)
        with suppress(Full):  # nothing reads standard error
            listener.stop()
            queued.tell()


def _name(record: logging.LogRecord) -> str:
    return "uvicorn" if record.name == "uvicorn.error" else record.name


def _printable(message: str) -> str:
    """The message with control characters escaped, so that no input can forge a line."""
    if message.isprintable():
        return message
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in message)
