"""Reads files of games and positions, plain or compressed, in chunks; only one chunk is in memory.

Games of a PGN are split by their headers alone; python-chess parses them where they are evaluated.
"""

from __future__ import annotations

import codecs
import gzip
import hashlib
import io
import re
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import chain
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

from movemask.audit.files import is_uri, located
from movemask.board.pgn import ends_in_comment
from movemask.errors import SourceError
from movemask.extras import require

#: The name of standard input.
STDIN = "-"

_COMPRESSED = (".zst", ".zstd", ".gz")
_LINES = (".epd", ".fen", ".fens", ".txt")

_GZIP = b"\x1f\x8b"
_ZSTD = re.compile(rb"\x28\xb5\x2f\xfd|[\x50-\x5f]\x2a\x4d\x18")  # a frame, or a skippable one, as pzstd begins with

#: Bytes of text taken from a decompressor at once: what is lost where a file turns out to be damaged.
_BLOCK = 1 << 14

#: Bytes fetched at once from object storage.
_REMOTE_BUFFER = 8 << 20

#: Characters of a game or line, all of which is in memory at once; more than a game of any length has.
_LONGEST = 1 << 24

#: Text may be this many times as long as the compressed file, beyond a beginning that may be anything. Collections of
#: games are five to twenty times as long. zstandard itself refuses windows of more than 128 MiB.
_RATIO, _UNMEASURED = 500, 1 << 24

_TEXT = bytes([*range(0x07, 0x0E), 0x1A, 0x1B, *range(0x20, 0x100)])
_ASCII = bytes(range(0x80))

#: Games or lines of a chunk.
_MOST = {"pgn": 40, "fen": 2_000}

_DAMAGED = (OSError, EOFError, zlib.error)


class Form(Enum):
    """The format of a file."""

    PGN = "pgn"  # games
    FEN = "fen"  # a FEN or EPD a line


class Key(NamedTuple):
    """Identifies a chunk: the file's place in the list, and the chunk's place in the file."""

    file: int
    number: int


@dataclass(frozen=True, slots=True)
class Chunk:
    """Some games or lines of one file: `items` are their numbers in the file, from 1, and their texts.

    The same files in the same order give the same chunks. `size` is its length in bytes of the file on disk, as far as
    that is known while reading ahead.
    """

    key: Key
    source: str
    form: Form
    items: tuple[tuple[int, str], ...]
    size: int

    @property
    def digest(self) -> str:
        """Hash of the whole chunk, by which the part of an earlier run is recognised."""
        content = "\0".join((self.source, self.form.value, *(f"{number} {text}" for number, text in self.items)))
        return hashlib.sha256(content.encode(errors="surrogatepass")).hexdigest()


class TextSource:
    """The text of a file or of standard input, decompressed if the first bytes say gzip or zstandard. A context
    manager, and a stream of lines for python-chess.

    Raises SourceError for a file that cannot be opened or read, or that is binary.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        try:
            self._file = _opened(name)
        except OSError as error:
            raise SourceError(f"{name}: {_why(error)}") from None
        try:
            self._disk = io.BufferedReader(_Counted(self._file), 1 << 16)
            self._read = self._decompressor(self._disk.peek(4)[:4])
            self.head: bytes = self._read(_BLOCK)
        except _DAMAGED as error:
            self.close()
            end = " to its end" if isinstance(error, EOFError) or "Truncated" in str(error) else ""
            raise SourceError(f"{name}: cannot be read{end}: {_why(error)}") from None
        if b"\0" in self.head or 100 * len(self.head.translate(None, _TEXT)) > len(self.head):
            self.close()
            raise SourceError(f"{name}: binary data, neither a PGN nor a list of FENs")
        self._lines = (line for text in self.blocks() for line in _lines(text))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        if self._name != STDIN:
            self._file.close()

    @property
    def position(self) -> int:
        """Bytes of the file on disk that have been taken; the decompressor may be a little ahead."""
        return self._disk.tell()

    def _decompressor(self, start: bytes) -> Callable[[int], bytes]:
        """What reads the text of a file that begins with these bytes."""
        if start[:2] == _GZIP:
            # `read` would fill the whole block, and fail on damage that is still ahead.
            return gzip.GzipFile(fileobj=self._disk).read1
        if _ZSTD.match(start):
            require("audit", self._name)
            import pyarrow as pa

            read: Callable[[int], bytes] = pa.CompressedInputStream(pa.PythonFile(self._disk, "r"), "zstd").read
            return read
        return self._disk.read

    def readline(self) -> str:
        """The next line; empty after the last."""
        return next(self._lines, "")

    def blocks(self) -> Iterator[str]:
        """The text in blocks of whole lines, which end in a newline whatever system wrote them. Bytes that are not
        UTF-8 are replaced: a PGN may be Latin-1."""
        utf8 = codecs.getincrementaldecoder("utf-8-sig")("replace")
        decode = io.IncrementalNewlineDecoder(utf8, translate=True).decode
        rest: list[str] = []  # of a line whose end has not come
        length = 0
        for data in self._data():
            text = decode(data)
            end = text.rfind("\n") + 1
            if end:
                yield "".join((*rest, text[:end]))
                rest, length = [], 0
            rest.append(text[end:])
            length += len(text) - end
            if length > _LONGEST:
                raise SourceError(f"{self._name}: a line of more than {_LONGEST >> 20} MiB is no game or FEN")
        text = "".join((*rest, decode(b"", final=True)))
        if text:
            yield text if text.endswith("\n") else text + "\n"

    def _data(self) -> Iterator[bytes]:
        data, total = self.head, 0
        while data:
            yield data
            total += len(data)
            if total > _UNMEASURED and total > _RATIO * self.position:
                raise SourceError(
                    f"{self._name}: cannot be read to its end: it expands to more than {_RATIO} times its size, which "
                    "no collection of games does"
                )
            try:
                data = self._read(_BLOCK)
            except _DAMAGED as error:
                raise SourceError(f"{self._name}: cannot be read to its end: {_why(error)}") from None


class _Counted(io.RawIOBase):
    """The bytes of a file, also of one that cannot tell its place; closing it leaves the file open."""

    def __init__(self, file: Any) -> None:
        self._read, self._count = getattr(file, "read1", file.read), 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._read(len(buffer))
        buffer[: len(data)] = data
        self._count += len(data)
        return len(data)

    def tell(self) -> int:
        return self._count


def _opened(name: str) -> Any:
    if name == STDIN:
        return sys.stdin.buffer
    if not is_uri(name):
        return Path(name).open("rb", buffering=0)
    system, path = located(name)
    return io.BufferedReader(system.open_input_file(path), _REMOTE_BUFFER)


def _why(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)


def _lines(text: str) -> list[str]:
    """The lines of a text that ends in a newline, each with its own."""
    return [f"{line}\n" for line in text.split("\n")[:-1]]


def total_bytes(names: Sequence[str]) -> int | None:
    """Bytes of all files on disk; None if one is standard input, a pipe or not on this machine."""
    files = [Path(name) for name in names if name != STDIN and not is_uri(name) and Path(name).is_file()]
    return sum(file.stat().st_size for file in files) if len(files) == len(names) else None


def check(names: Sequence[str], form: Form | None) -> None:
    """Raises SourceError for a file whose beginning cannot be read, or is neither games nor positions. Pipes and the
    like can be read only once and are not checked."""
    for name in names:
        if is_uri(name) or Path(name).is_file():
            with TextSource(name) as source:
                _form_and_blocks(source, name, form)


def read(index: int, name: str, form: Form | None, limit: int | None = None) -> Iterator[Chunk]:
    """The chunks of a file, which is at `index` in its list, of at most `limit` items in all.

    Raises SourceError where it cannot be read on; the chunks before that are whole.
    """
    with TextSource(name) as source:
        form, blocks = _form_and_blocks(source, name, form)
        items = enumerate(_games(blocks, name), 1) if form is Form.PGN else _positions(blocks)
        most = _MOST[form.value]
        part: list[tuple[int, str]] = []
        left = sys.maxsize if limit is None else limit
        number = start = 0

        def chunk() -> Chunk:
            return Chunk(Key(index, number), name, form, tuple(part), source.position - start)

        for item in items if left else ():
            part.append(item)
            left -= 1
            if len(part) == most or not left:
                yield chunk()
                part, number, start = [], number + 1, source.position
            if not left:
                return
        if part:
            yield chunk()


def _form_and_blocks(source: TextSource, name: str, form: Form | None) -> tuple[Form, Iterator[str]]:
    """The format of a file, and its whole text. Raises SourceError for a list of positions that is not ASCII."""
    blocks, head, length = source.blocks(), [], 0
    for text in blocks:
        head.append(text)
        length += len(text)
        if not text.isspace() or length > _LONGEST:
            break
    form = form or _form_of(name, "".join(head).lstrip())
    if form is Form.FEN and 10 * len(source.head.translate(None, _ASCII)) > len(source.head):
        raise SourceError(f"{name}: neither a PGN nor a list of FENs, which are plain ASCII")
    return form, chain(head, blocks)


def _form_of(name: str, text: str) -> Form:
    suffixes = [suffix for suffix in Path(name.partition("?")[0]).suffixes if suffix not in _COMPRESSED]
    if suffixes and suffixes[-1] == ".pgn":
        return Form.PGN
    if suffixes and suffixes[-1] in _LINES:
        return Form.FEN
    return Form.PGN if re.match(r"\[|1\.|\{|;", text) else Form.FEN


def _positions(blocks: Iterable[str]) -> Iterator[tuple[int, str]]:
    """The lines that are neither empty nor a comment, stripped, with their numbers."""
    number = 0
    for text in blocks:
        for line in text.split("\n")[:-1]:
            number += 1
            line = line.strip()
            if line and not line.startswith("#"):
                yield number, line


#: Headers, with the empty lines and escapes between and after them.
_HEADERS = re.compile(r"(^\[.*\n(?:(?:[\[%].*|[^\S\n]*)\n)*)", re.MULTILINE)

_MOVES = re.compile(r"^(?!%).*\S", re.MULTILINE)
_ESCAPE = re.compile(r"^%", re.MULTILINE)


def _games(blocks: Iterable[str], name: str) -> Iterator[str]:
    """The texts of games. A header that follows moves, outside a comment, begins the next game."""
    game: list[str] = []
    length, moves, in_comment = 0, False, False
    for text in _headers_and_moves(blocks):
        # Whatever lies before, no comment is open where a brace was closed after the last that was opened. Other
        # braces, escapes and what looks like headers in a comment are rare: such a text is followed line by line.
        closed = text.rfind("}") - text.rfind("{")
        headers = text.startswith("[")
        plain = (not in_comment or closed == 0) if headers else (closed >= 0 and not _ESCAPE.search(text))
        for part in [text] if plain else _lines(text):
            if part.startswith("[") and not in_comment:
                if moves:
                    yield "".join(game)
                    game, length, moves = [], 0, False
            elif _MOVES.search(part):
                moves = True
                if closed:
                    in_comment = not plain and ends_in_comment(part, in_comment)
            game.append(part)
            length += len(part)
            if length > _LONGEST:
                raise SourceError(f"{name}: a game of more than {_LONGEST >> 20} MiB")
    if any(map(str.strip, game)):
        yield "".join(game)


def _headers_and_moves(blocks: Iterable[str]) -> Iterator[str]:
    """The text cut where headers follow moves or moves follow headers, and elsewhere at the end of a line."""
    for text in blocks:
        yield from filter(None, _HEADERS.split(text))
