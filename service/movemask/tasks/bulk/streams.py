"""Text files decompressed while they are read, with progress in bytes of the file on disk."""

from __future__ import annotations

import io
import sys
import zlib
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from movemask.errors import SourceError
from movemask.extras import require

#: The name of standard input.
STDIN = "-"

_ZSTD, _GZIP = b"\x28\xb5\x2f\xfd", b"\x1f\x8b"

#: Bytes passed to a decompressor at once, which is the resolution of progress.
_PIECE = 4096

_TEXT = bytes([*range(0x07, 0x0E), 0x1A, 0x1B, *range(0x20, 0x100)])


class TextSource:
    """The lines of a file or of standard input, decompressed if the first bytes say gzip or zstandard. A context
    manager.

    Raises SourceError for a file that cannot be opened or read, or that is binary.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        try:
            raw: Any = sys.stdin.buffer if name == STDIN else Path(name).open("rb")  # noqa: SIM115
        except OSError as error:
            raise SourceError(f"{name}: {error.strerror}") from None
        self._metered = _Metered(raw, name)
        self._plain = io.BufferedReader(self._metered, 1 << 18)
        try:
            self._metered.begin()
            self.head = self._plain.peek(1)
        except (OSError, EOFError) as error:
            self._plain.close()
            end = " to its end" if isinstance(error, EOFError) else ""
            raise SourceError(f"{name}: cannot be read{end}: {error}") from None
        except BaseException:
            self._plain.close()
            raise
        if _is_binary(self.head):
            self._plain.close()
            raise SourceError(f"{name}: binary data, neither a PGN nor a list of FENs")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._plain.close()

    @property
    def position(self) -> int:
        """Bytes of the file on disk that the lines read so far came from; all of them after the last line."""
        return int(self._metered.position)

    def __iter__(self) -> Iterator[str]:
        # Line ends stay as they are until their bytes are counted.
        text = io.TextIOWrapper(self._plain, encoding="utf-8-sig", errors="replace", newline="")
        try:
            for line in text:
                self._metered.consumed(len(line) if line.isascii() else len(line.encode()))
                yield line.rstrip("\r\n") + "\n" if line.endswith(("\r", "\r\n")) else line
        except (OSError, EOFError) as error:
            raise SourceError(f"{self._name}: cannot be read to its end: {error}") from None
        self._metered.finished()


class LineReader:
    """A source as a file object of the kind that python-chess reads lines from."""

    def __init__(self, source: TextSource) -> None:
        self._lines = iter(source)

    def readline(self) -> str:
        """The next line; empty after the last."""
        return next(self._lines, "")


def _is_binary(head: bytes) -> bool:
    """Whether the beginning of a file is not text: it has a NUL, or over 1 % control characters. Text that is not UTF-8
    passes: a PGN may be Latin-1."""
    return b"\0" in head or 100 * len(head.translate(None, _TEXT)) > len(head)


class _Metered(io.RawIOBase):
    """The decompressed content of a file; `position` is the bytes of the file behind the text consumed so far.

    Decompression runs ahead of the reader, so the bytes that a piece of text took are spread evenly over it. Raises
    OSError for damaged data and EOFError for data that is cut short, which zstandard's own reader does not report.
    """

    def __init__(self, raw: Any, name: str) -> None:
        self._raw, self._name = raw, name
        self._new_frame: Callable[[], Any] | None = None  # None if the file is not compressed
        self._frame: Any = None  # None between frames
        self._left = b""  # of the file, not decompressed yet
        self._ready = memoryview(b"")
        self._pulled = self._charged = 0  # bytes of the file: read so far, and of those in a piece of text
        self._ahead: deque[tuple[int, float]] = deque()  # bytes of text to come, and of the file for them
        self.position = 0.0

    def begin(self) -> None:
        """Recognises the compression by the first bytes."""
        self._left = self._pull()
        if self._left.startswith(_ZSTD):
            require("audit", self._name)
            import zstandard

            self._new_frame = zstandard.ZstdDecompressor().decompressobj
        elif self._left.startswith(_GZIP):
            self._new_frame = lambda: zlib.decompressobj(wbits=16 + zlib.MAX_WBITS)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if not self._ready:
            self._ready = memoryview(self._next_text())
            if self._ready:
                self._ahead.append((len(self._ready), self._pulled - self._charged))
                self._charged = self._pulled
        size = min(len(buffer), len(self._ready))
        buffer[:size], self._ready = self._ready[:size], self._ready[size:]
        return size

    def consumed(self, size: int) -> None:
        """Counts this many more bytes of text as consumed."""
        while size and self._ahead:
            length, cost = self._ahead.popleft()
            part = min(size, length)
            share = cost * part / length
            self.position += share
            size -= part
            if part < length:
                self._ahead.appendleft((length - part, cost - share))

    def finished(self) -> None:
        """Counts the whole file as consumed."""
        self._ahead.clear()
        self.position = float(self._pulled)

    def close(self) -> None:
        if self._name != STDIN:
            self._raw.close()
        super().close()

    def _next_text(self) -> bytes:
        """The next piece of text; empty at the end."""
        while data := self._left or self._pull():
            self._left = b""
            if self._new_frame is None:
                return data
            if self._frame is None:
                data = data.lstrip(b"\0")  # padding after a frame
                if not data:
                    continue
                self._frame = self._new_frame()
            try:
                text: bytes = self._frame.decompress(data)
            except Exception as error:  # zlib's and zstandard's errors have no base in common
                raise OSError(str(error)) from None
            if self._frame.eof:
                self._left, self._frame = self._frame.unused_data, None
            if text:
                return text
        if self._frame is not None:
            raise EOFError("the file is cut short")
        return b""

    def _pull(self) -> bytes:
        data: bytes = self._raw.read1(_PIECE)
        self._pulled += len(data)
        return data
