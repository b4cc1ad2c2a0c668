"""Files of games and positions, plain or compressed, cut into chunks without holding more than one.

A game of a PGN is found by its headers alone; it is read by python-chess where it is evaluated.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, BinaryIO, TextIO, cast

from service.encoding.pgn import ends_in_comment
from service.errors import SourceError
from service.extras import require

#: What stands for standard input.
STDIN = "-"

_ZSTD, _GZIP = b"\x28\xb5\x2f\xfd", b"\x1f\x8b"
_COMPRESSED = (".zst", ".zstd", ".gz")
_LINES = (".epd", ".fen", ".fens", ".txt")


class Form(Enum):
    """What a file holds."""

    PGN = "pgn"  # games
    FEN = "fen"  # a FEN or EPD a line


@dataclass(frozen=True, slots=True)
class Chunk:
    """Some games or lines of one file: `items` are their texts, numbered from `first` in the file.

    `index` counts the chunks of all files; the same files in the same order give the same chunks. `read` is how many
    bytes of all files had been read when it was complete.
    """

    index: int
    source: str
    form: Form
    first: int
    items: tuple[str, ...]
    read: int

    @property
    def digest(self) -> str:
        """Of everything in it: whether what was done with it once still holds."""
        told = "\0".join((self.source, self.form.value, str(self.first), *self.items))
        return hashlib.sha256(told.encode()).hexdigest()


def total_bytes(names: list[str]) -> int | None:
    """Bytes of all files as they lie on the disk; None if one is standard input or a pipe."""
    if not all(Path(name).is_file() for name in names):
        return None
    return sum(Path(name).stat().st_size for name in names)


def chunks(
    names: list[str],
    form: Form | None,
    *,
    games: int,
    lines: int,
    limit: int | None = None,
) -> Iterator[Chunk]:
    """The chunks of files, in order.

    Parameters
    ----------
    form : what they hold; told by name and content if None
    games, lines : how many make a chunk
    limit : games and lines at most, of all files together

    Raises SourceError for a file that cannot be read.
    """
    index, left, read = 0, limit, 0

    def count(more: int) -> None:
        nonlocal read
        read += more

    for name in names:
        with _opened(name, count) as stream:
            first_line, stream_lines = _begun(stream, name)
            found = form or _form_of(name, first_line)
            items = _games(stream_lines) if found is Form.PGN else _positions(stream_lines)
            size = games if found is Form.PGN else lines
            number = 1
            while (size if left is None else min(size, left)) > 0:
                part = _take(items, size if left is None else min(size, left), name)
                if not part:
                    break
                yield Chunk(index, name, found, number, tuple(part), read)
                index, number = index + 1, number + len(part)
                left = None if left is None else left - len(part)


def _take(items: Iterator[str], count: int, name: str) -> list[str]:
    part = []
    try:
        for item in items:
            part.append(item)
            if len(part) == count:
                break
    except (OSError, EOFError) as error:  # gzip's errors are OSErrors
        raise SourceError(f"{name}: cannot be read to its end: {error}") from None
    return part


def _games(lines: Iterator[str]) -> Iterator[str]:
    """The texts of a PGN's games. A game begins with a header that follows moves, outside of a comment."""
    game: list[str] = []
    moves = in_comment = False
    for line in lines:
        header = line.startswith("[") and not in_comment
        if header and moves:
            yield "".join(game)
            game, moves = [], False
        if not header and line.strip() and not line.startswith("%"):
            moves = True
            in_comment = ends_in_comment(line, in_comment)
        game.append(line)
    if any(line.strip() for line in game):
        yield "".join(game)


def _positions(lines: Iterator[str]) -> Iterator[str]:
    """The lines themselves: those that hold nothing keep their number as empty ones."""
    for line in lines:
        text = line.strip()
        yield "" if text.startswith("#") else text


def _form_of(name: str, first_line: str) -> Form:
    suffixes = [suffix for suffix in Path(name).suffixes if suffix not in _COMPRESSED]
    if suffixes and suffixes[-1] == ".pgn":
        return Form.PGN
    if suffixes and suffixes[-1] in _LINES:
        return Form.FEN
    return Form.PGN if re.match(r"\[|1\.|\{|;", first_line) else Form.FEN


def _begun(stream: TextIO, name: str) -> tuple[str, Iterator[str]]:
    """The first line that is not blank, and all lines."""
    skipped = []
    try:
        for line in stream:
            skipped.append(line)
            if line.strip():
                break
    except (OSError, EOFError) as error:
        raise SourceError(f"{name}: cannot be read: {error}") from None

    def everything() -> Iterator[str]:
        yield from skipped
        yield from stream

    return (skipped[-1].strip() if skipped else ""), everything()


class _Counted(io.RawIOBase):
    """Passes reads on, and tells how much was read."""

    def __init__(self, raw: BinaryIO, count: Callable[[int], None]) -> None:
        self._raw, self._count = raw, count

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: object) -> int:
        data = self._raw.read(len(memoryview(cast(bytearray, buffer))))
        memoryview(cast(bytearray, buffer))[: len(data)] = data
        self._count(len(data))
        return len(data)

    def close(self) -> None:
        if self._raw is not sys.stdin.buffer:
            self._raw.close()
        super().close()


class _Unzstd(io.RawIOBase):
    """The content of a zstandard file, frame after frame; OSError for one that is damaged, EOFError for one that is cut
    short, which the library's own stream ends without a word."""

    def __init__(self, raw: io.BufferedReader[Any]) -> None:
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
            data = data or self._raw.read1(1 << 17)
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

    def close(self) -> None:
        self._raw.close()
        super().close()


@contextmanager
def opened_text(name: str) -> Iterator[TextIO]:
    """A file, or standard input for `-`, as text, decompressed by what its first bytes say it is.

    Raises SourceError, also for what fails while it is read.
    """
    try:
        with _opened(name, lambda _: None) as stream:
            yield stream
    except (OSError, EOFError) as error:
        raise SourceError(f"{name}: cannot be read to its end: {error}") from None


def _opened(name: str, count: Callable[[int], None]) -> TextIO:
    """A file as text, decompressed by what its first bytes say it is; `count` is told of the bytes that are read."""
    try:
        raw: BinaryIO = sys.stdin.buffer if name == STDIN else Path(name).open("rb")  # noqa: SIM115
    except OSError as error:
        raise SourceError(f"{name}: {error.strerror}") from None
    buffered = io.BufferedReader(_Counted(raw, count), 1 << 16)
    head = buffered.peek(4)[:4]
    plain: BinaryIO = cast(BinaryIO, buffered)
    if head == _ZSTD:
        require("audit", name)
        plain = cast(BinaryIO, io.BufferedReader(_Unzstd(buffered), 1 << 16))
    elif head[:2] == _GZIP:
        plain = cast(BinaryIO, gzip.GzipFile(fileobj=buffered))
    return io.TextIOWrapper(plain, encoding="utf-8-sig", errors="replace")
