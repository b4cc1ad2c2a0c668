"""A file's text, decompressed as it is read, and how much of the file stands behind the text that was taken."""

from __future__ import annotations

import gzip
import io
import sys
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self, cast

from movemask.errors import SourceError
from movemask.extras import require

#: What stands for standard input.
STDIN = "-"

_ZSTD, _GZIP = b"\x28\xb5\x2f\xfd", b"\x1f\x8b"

#: Bytes that are handed to a decompressor at once: progress is told no finer.
_PIECE = 4096

#: What is held of the text: more than a block of zstandard, so that each is taken from it whole.
_BUFFER = 1 << 18

_TEXT = bytes([*range(0x07, 0x0E), 0x1A, 0x1B, *range(0x20, 0x100)])


class TextSource:
    """The lines of a file or of standard input, compressed (by what its first bytes say) or not. A context manager.

    Raises SourceError for a file that cannot be opened or read, or that is binary.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        try:
            raw: Any = sys.stdin.buffer if name == STDIN else Path(name).open("rb", buffering=0)  # noqa: SIM115
        except OSError as error:
            raise SourceError(f"{name}: {error.strerror}") from None
        buffered = io.BufferedReader(_Kept(raw) if name == STDIN else raw, 1 << 16)
        self._pieces = _Pieces(buffered)
        self._metered = _Metered(self._pieces)
        self._plain = io.BufferedReader(self._metered, _BUFFER)
        try:
            head = buffered.peek(4)[:4]
            if head == _ZSTD:
                require("audit", name)
                self._metered.through(_Unzstd(self._pieces))
            elif head[:2] == _GZIP:
                self._metered.through(gzip.GzipFile(fileobj=cast(Any, self._pieces)))
            self.head = self._plain.peek(1)
        except _UNREADABLE as error:
            self._plain.close()
            how = "cannot be read to its end" if isinstance(error, EOFError) else "cannot be read"
            raise SourceError(f"{name}: {how}: {error}") from None
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
        """Bytes of the file, as it lies on the disk, behind the lines that were taken; all of them after the last."""
        return int(self._metered.position)

    def __iter__(self) -> Iterator[str]:
        # Line ends are kept as they are until they are counted.
        text = io.TextIOWrapper(self._plain, encoding="utf-8-sig", errors="replace", newline="")
        try:
            for line in text:
                self._metered.taken(len(line) if line.isascii() else len(line.encode()))
                yield line.rstrip("\r\n") + "\n" if line.endswith(("\r", "\r\n")) else line
        except _UNREADABLE as error:
            raise SourceError(f"{self._name}: cannot be read to its end: {error}") from None
        self._metered.finished()


_UNREADABLE = (OSError, EOFError)  # gzip's errors are OSErrors


class LineReader:
    """The lines of a source one at a time, as python-chess asks for them."""

    def __init__(self, source: TextSource) -> None:
        self._lines = iter(source)

    def readline(self) -> str:
        """The next line; empty after the last."""
        return next(self._lines, "")


def _is_binary(head: bytes) -> bool:
    """Whether the beginning of a file is no text: a NUL, or control characters for a hundredth of it. Text that is not
    UTF-8 passes: a PGN may be Latin-1."""
    return b"\0" in head or 100 * len(head.translate(None, _TEXT)) > len(head)


class _Kept(io.RawIOBase):
    """Standard input, which stays open when this is closed."""

    def __init__(self, raw: io.BufferedReader[Any]) -> None:
        self._raw = raw

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: object) -> int:
        room = memoryview(cast(bytearray, buffer))
        data = self._raw.read1(len(room))
        room[: len(data)] = data
        return len(data)


class _Pieces(io.RawIOBase):
    """A file as it lies on the disk, a piece at a time; `pulled` is how much of it was taken."""

    def __init__(self, raw: io.BufferedReader[Any]) -> None:
        self._raw = raw
        self.pulled = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: object) -> int:
        room = memoryview(cast(bytearray, buffer))
        data = self._raw.read1(min(len(room), _PIECE))
        room[: len(data)] = data
        self.pulled += len(data)
        return len(data)

    def close(self) -> None:
        self._raw.close()
        super().close()


class _Metered(io.RawIOBase):
    """The text of a file, and how many bytes of the file stand behind what was taken of it.

    Decompression is ahead of whoever takes lines: what a piece of text cost is spread over the piece.
    """

    def __init__(self, pieces: _Pieces) -> None:
        self._plain: io.RawIOBase | gzip.GzipFile = pieces
        self._read: Callable[[int], bytes | None] = pieces.read
        self._ready = memoryview(b"")
        self._pieces = pieces
        self._pulled = 0
        self._ahead: deque[tuple[int, float]] = deque()  # bytes of text, and of the file for them
        self.position = 0.0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if not self._ready:
            self._ready = memoryview(self._read(_BUFFER) or b"")
            if not self._ready:
                return 0
            self._ahead.append((len(self._ready), self._pieces.pulled - self._pulled))
            self._pulled = self._pieces.pulled
        size = min(len(buffer), len(self._ready))
        buffer[:size], self._ready = self._ready[:size], self._ready[size:]
        return size

    def through(self, plain: _Unzstd | gzip.GzipFile) -> None:
        """Reads through a decompressor from now on, which reads the pieces."""
        self._plain = plain
        # gzip's `read` would go on until it has all that it may give, and stumble over damage far ahead.
        self._read = plain.read1 if isinstance(plain, gzip.GzipFile) else plain.read

    def taken(self, size: int) -> None:
        """Says that so many more bytes of the text were taken."""
        while size and self._ahead:
            length, cost = self._ahead.popleft()
            part = min(size, length)
            share = cost * part / length
            self.position += share
            size -= part
            if part < length:
                self._ahead.appendleft((length - part, cost - share))

    def finished(self) -> None:
        """Says that all was taken."""
        self._ahead.clear()
        self.position = float(self._pieces.pulled)

    def close(self) -> None:
        if not self.closed:
            self._plain.close()
            self._pieces.close()
        super().close()


class _Unzstd(io.RawIOBase):
    """The content of a zstandard file, frame after frame; OSError for one that is damaged, EOFError for one that is cut
    short, which the library's own stream ends without a word."""

    def __init__(self, raw: _Pieces) -> None:
        import zstandard

        self._raw = raw
        self._decompressor = zstandard.ZstdDecompressor()
        self._damaged = zstandard.ZstdError
        self._frame = self._decompressor.decompressobj()
        self._begun = False
        self._ready = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: object) -> int:
        room = memoryview(cast(bytearray, buffer))
        while not self._ready:
            data = self._frame.unused_data if self._frame.eof else b""
            if self._frame.eof:
                self._frame, self._begun = self._decompressor.decompressobj(), False
            data = data or self._raw.read(_PIECE)
            if not data:
                if self._begun:
                    raise EOFError("the file is cut short")
                return 0
            self._begun = True
            try:
                self._ready = memoryview(self._frame.decompress(data))
            except self._damaged as error:
                raise OSError(str(error)) from None
        size = min(len(room), len(self._ready))
        room[:size], self._ready = self._ready[:size], self._ready[size:]
        return size
