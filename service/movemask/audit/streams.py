"""Text files decompressed while they are read, with progress in bytes of the file on disk."""

from __future__ import annotations

import codecs
import gzip
import io
import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from types import TracebackType
from typing import Any, Self, cast

from movemask.audit.files import open_binary
from movemask.audit.frames import is_zstd
from movemask.audit.unzstd import PIECE, Unzstd
from movemask.errors import SourceError
from movemask.extras import require

#: The name of standard input.
STDIN = "-"

_GZIP = b"\x1f\x8b"

#: Buffered text: more than a block of zstandard, so that a block is read whole.
_BUFFER = 1 << 18

#: Bytes of a line, all of which is in memory at once; more than a game of any length has.
_LONGEST_LINE = 1 << 24

#: Text may be so many times as long as the compressed file that it comes from, beyond a beginning that may be anything.
#: Collections of games compress to between a fifth and a twentieth.
_RATIO, _UNMEASURED = 500, 1 << 24

_TEXT = bytes([*range(0x07, 0x0E), 0x1A, 0x1B, *range(0x20, 0x100)])


class TextSource:
    """The lines of a file or of standard input, decompressed if the first bytes say gzip or zstandard. A context
    manager.

    Parameters
    ----------
    name : path, URI, or STDIN
    starts : offsets in the file on disk where its splits begin, if it is read in several: of bytes in a plain file, of
        frames in a zstandard one
    first : the split to begin with
    partial : whether that split begins in the middle of a line, which belongs to the split before and is skipped

    Raises SourceError for a file that cannot be opened or read, or that is binary.
    """

    def __init__(self, name: str, starts: Sequence[int] = (0,), first: int = 0, *, partial: bool = False) -> None:
        self._name = name
        try:
            raw: Any = _Unclosed(cast(Any, sys.stdin.buffer)) if name == STDIN else open_binary(name)
            buffered = io.BufferedReader(raw, 1 << 16)
            head = buffered.peek(4)[:4]
            if first:
                buffered.seek(starts[first])
        except OSError as error:
            raise SourceError(f"{name}: {error.strerror or error}") from None
        zstd = is_zstd(head)
        self._split = first
        #: The splits whose beginning is that of a line, of those that have been reached.
        self.clean: set[int] = set()
        # Offsets in the text from which a line belongs to a split; those of frames are known when they are reached.
        self._marks = deque((0 if zstd else start - starts[first], first + n) for n, start in enumerate(starts[first:]))
        if zstd:
            self._marks.clear()
        self._offset, self._partial, self._bom = 0, partial, not first
        self._pieces = _Pieces(buffered, starts[first:])
        self._metered = _Metered(self._pieces)
        self._plain = io.BufferedReader(self._metered, _BUFFER)
        try:
            if zstd:
                require("audit", name)
                number = {start: first + n for n, start in enumerate(starts[first:])}
                self._metered.through(Unzstd(self._pieces, starts[first], number, self._marks))
            elif head[:2] == _GZIP:
                self._metered.through(gzip.GzipFile(fileobj=cast(Any, self._pieces)))
            self.head = self._plain.peek(1)
        except _UNREADABLE as error:
            self._plain.close()
            end = " to its end" if isinstance(error, EOFError) else ""
            raise SourceError(f"{name}: cannot be read{end}: {error}") from None
        except BaseException:
            self._plain.close()
            raise
        if not first and _is_binary(self.head):
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
        for _, line in self.lines():
            yield line

    def lines(self) -> Iterator[tuple[int, str]]:
        """The lines, each with the split that it begins in."""
        try:
            for line in iter(partial(self._plain.readline, _LONGEST_LINE), b""):
                if len(line) == _LONGEST_LINE and not line.endswith(b"\n"):
                    raise SourceError(f"{self._name}: a line of more than {_LONGEST_LINE >> 20} MiB is no game or FEN")
                while self._marks and self._marks[0][0] <= self._offset:
                    mark, self._split = self._marks.popleft()
                    if mark == self._offset and not self._partial:
                        self.clean.add(self._split)
                self._offset += len(line)
                self._metered.consumed(len(line))
                if self._partial:
                    self._partial = False
                    continue
                if self._bom:
                    line, self._bom = line.removeprefix(codecs.BOM_UTF8), False
                for text in (line,) if b"\r" not in line else _split_at_returns(line):
                    yield self._split, text.decode("utf-8", "replace")
        except _UNREADABLE as error:
            raise SourceError(f"{self._name}: cannot be read to its end: {error}") from None
        self._metered.finished()


def _split_at_returns(line: bytes) -> list[bytes]:
    """The lines of text in which a carriage return ends one too, as on old Macs; each ends in a newline."""
    pieces = line.splitlines()
    whole = line.endswith((b"\n", b"\r"))
    return [piece + b"\n" if whole or piece is not pieces[-1] else piece for piece in pieces]


_UNREADABLE = (OSError, EOFError)  # gzip's errors are OSErrors


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


class _Unclosed(io.RawIOBase):
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
    """The raw bytes of a file, a piece at a time; `pulled` counts the bytes read. No piece lies across the beginning of
    a split, so that a split gives the same pieces from wherever reading began."""

    def __init__(self, raw: io.BufferedReader[Any], starts: Sequence[int]) -> None:
        self._raw = raw
        self._ends = deque(start - starts[0] for start in starts[1:])
        self.pulled = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: object) -> int:
        while self._ends and self._ends[0] <= self.pulled:
            self._ends.popleft()
        room = memoryview(cast(bytearray, buffer))
        size = min(len(room), PIECE)
        data = self._raw.read(min(size, self._ends[0] - self.pulled) if self._ends else size)
        room[: len(data)] = data
        self.pulled += len(data)
        return len(data)

    def close(self) -> None:
        self._raw.close()
        super().close()


class _Metered(io.RawIOBase):
    """The decompressed text of a file; `position` is the bytes of the file behind the text consumed so far.

    Decompression runs ahead of the reader, so the bytes that a piece of text took are spread evenly over it.
    """

    def __init__(self, pieces: _Pieces) -> None:
        self._plain: io.RawIOBase | gzip.GzipFile = pieces
        self._read: Callable[[int], bytes | None] = pieces.read
        self._ready = memoryview(b"")
        self._pieces = pieces
        self._pulled = self._text = 0
        self._ahead: deque[tuple[int, float]] = deque()  # bytes of text to come, and of the file for them
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
            self._text += len(self._ready)
            if self._text > _UNMEASURED and self._text > _RATIO * self._pulled:
                raise OSError(f"it expands to more than {_RATIO} times its size, which no collection of games does")
        size = min(len(buffer), len(self._ready))
        buffer[:size], self._ready = self._ready[:size], self._ready[size:]
        return size

    def through(self, plain: Unzstd | gzip.GzipFile) -> None:
        """Reads through this decompressor from now on."""
        self._plain = plain
        # gzip's `read` would fill the whole buffer, and fail on damage that is still far ahead.
        self._read = plain.read1 if isinstance(plain, gzip.GzipFile) else plain.read

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
        self.position = float(self._pieces.pulled)

    def close(self) -> None:
        if not self.closed:
            self._plain.close()
            self._pieces.close()
        super().close()
