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
from queue import Full, Queue
from typing import Any, cast

import orjson

from movemask.times import rfc3339

#: Most lines that wait to be written.
QUEUE = 10_000

#: Seconds until the lines of requests are made, many at once.
_TOGETHER = 0.1

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
    if handlers := _handlers():
        handlers[0].emit_later(level, fields)
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
        out: dict[str, Any] = {"time": rfc3339(record.created), "level": record.levelname.lower()}
        out |= {"logger": _name(record), "pid": os.getpid()}
        if record.name == _access.name and isinstance(record.args, tuple):
            method, route, status, milliseconds, positions, request, key = record.args
            out |= {
                "message": f"{method} {route} {status}",
                "method": method,
                "route": route,
                "status": status,
            }
            out |= {
                "ms": round(cast(float, milliseconds), 3),
                "positions": positions,
                "request_id": request,
            }
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
    for old in _handlers():
        root.removeHandler(old)
        old.close()
    handler = LogHandler()
    handler.setFormatter(JsonFormatter() if log_format == "json" else TextFormatter())
    root.addHandler(handler)
    root.setLevel(level.upper())
    for name in ("uvicorn", "uvicorn.error", "uvicorn.access"):
        logger = logging.getLogger(name)
        logger.handlers.clear()
        logger.propagate = name != "uvicorn.access"
    logging.getLogger("asyncio").setLevel(
        logging.ERROR
    )  # it warns of each write to a client that has gone
    for library in (
        "uvicorn",
        "httpx2",
        "mcp",
    ):  # which use many lines for what movemask says in one
        logging.getLogger(library).setLevel(logging.WARNING)
    logging.captureWarnings(True)
    logging.raiseExceptions = False  # a line that cannot be written is lost


def await_each_line(seconds: float) -> None:
    """Has the program go on after a line only when it is written, or after `seconds`; 0: at once, as by default. What
    ends a process on the spot, such as a network file, is then named in its last line."""
    for handler in _handlers():
        handler.seconds = seconds


def flush(seconds: float = _LAST_SECONDS) -> None:
    """Returns when all lines are written, after `seconds` at the latest."""
    for handler in _handlers():
        handler.flush(seconds)


def _handlers() -> list[LogHandler]:
    return [handler for handler in logging.getLogger().handlers if isinstance(handler, LogHandler)]


class LogHandler(logging.Handler):
    """Has a thread write the lines to standard error. `QUEUE` lines wait at most, and as many of requests; others are
    lost, and a later one says how many.

    seconds : that each line waits until it is written
    """

    def __init__(self) -> None:
        super().__init__()
        self.seconds = 0.0
        self._lines: Queue[str | None] = Queue(QUEUE)  # empty: those of requests; None: the end
        self._requests: list[
            tuple[float, int, tuple[object, ...]]
        ] = []  # time, level, and the fields of `_ACCESS`
        self._lost = 0
        threading.Thread(target=self._write, name="log", daemon=True).start()

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._lines.put_nowait(self.format(record))
        except Full:
            self._lost += 1
            return
        except Exception:  # a bug of the line, which ends nothing
            self.handleError(record)
            return
        if self._lost and self._lines.qsize() < QUEUE // 2:
            self._tell()
        if (
            self.seconds and self._lines.unfinished_tasks == 1
        ):  # with more, nothing reads standard error
            self.flush(self.seconds)

    def emit_later(self, level: int, fields: tuple[object, ...]) -> None:
        """Has the thread make the line of a request, with all others of 0.1 s. Made at once, a line would cost the
        event loop a tenth of a request."""
        if len(self._requests) >= QUEUE:
            self._lost += 1
            return
        self._requests.append((time.time(), level, fields))
        if len(self._requests) == 1:
            try:
                self._lines.put_nowait("")
            except Full:
                self._lost += len(self._requests)
                self._requests.clear()

    def flush(self, seconds: float = _LAST_SECONDS) -> None:
        """Returns when all lines are written, after `seconds` at the latest."""
        self._tell()
        with self._lines.all_tasks_done:
            self._lines.all_tasks_done.wait_for(lambda: not self._lines.unfinished_tasks, seconds)

    def close(self) -> None:
        """Ends the thread when all lines are written."""
        with suppress(Full):
            self._lines.put_nowait(None)
        super().close()

    def _tell(self) -> None:
        """Logs how many lines were lost since the last call, if any."""
        lost, self._lost = self._lost, 0
        if lost:
            log.warning("%d log lines were lost: nothing read standard error in time", lost)

    def _write(self) -> None:
        # Not by `sys.stderr`: a thread that is blocked in it would hold its lock, and Python could not end.
        try:
            stream, encoding = sys.stderr.fileno(), sys.stderr.encoding
        except (AttributeError, OSError, ValueError):  # there is none, or it is no file
            stream, encoding = -1, "utf-8"
        while (line := self._lines.get()) is not None:
            lines = [line] if line else self._lines_of_requests()
            for piece in _pieces(
                [f"{one}\n".encode(encoding, "backslashreplace") for one in lines]
            ):
                with suppress(OSError):
                    while piece:
                        try:
                            piece = piece[os.write(stream, piece) :]
                        except BlockingIOError:  # another program has made the stream so
                            select.select((), (stream,), ())
            if (
                not line and self._lines.qsize() < QUEUE // 2
            ):  # a service without trouble logs only requests
                self._tell()
            self._lines.task_done()
        self._lines.task_done()

    def _lines_of_requests(self) -> list[str]:
        """The lines of the requests of 0.1 s."""
        time.sleep(_TOGETHER)
        lines = []
        while some := self._requests[:]:
            del self._requests[: len(some)]  # others may have come
            for created, level, fields in some:
                record = logging.LogRecord(_access.name, level, "", 0, _ACCESS, fields, None)
                record.created = created
                lines.append(self.format(record))
        return lines


def _pieces(lines: Iterable[bytes]) -> Iterator[bytes]:
    """The lines, as many together as a pipe does not mix with what another process writes to it."""
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
    """The message with control characters escaped, so that no input can forge a line."""
    if message.isprintable():
        return message
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode() for char in message
    )
