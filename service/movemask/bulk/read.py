"""Reads files of games and positions, plain or compressed, in chunks, of which one is in memory, and their positions.

Games of a PGN are split by their headers alone; python-chess parses them where they are evaluated.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import re
import sys
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast

import chess

from movemask.board.moves import has_legal_move
from movemask.board.pgn import Game, ends_in_comment, read_games
from movemask.board.position import Elo, Position
from movemask.bulk.files import is_uri, located
from movemask.errors import MovemaskError, SourceError, require
from movemask.leakage.kinds import KINDS

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
#: games are five to twenty times as long. A pipe's length is not known. zstandard itself refuses windows of more than
#: 128 MiB.
_RATIO, _UNMEASURED = 500, 1 << 22

#: Empty lines that may come before the content from which a file's format is guessed.
_BLANK = 1_000

_TEXT = bytes([*range(0x07, 0x0E), 0x1A, 0x1B, *range(0x20, 0x100)])
_ASCII = bytes(range(0x80))

#: Games or lines of a chunk.
_MOST = {"pgn": 40, "fen": 2_000}

#: The format of a file: games, or a FEN or EPD a line.
Form = Literal["pgn", "fen"]


class ChunkKey(NamedTuple):
    """Identifies a chunk: the file's place in the list, and the chunk's place in the file."""

    file: int
    number: int


@dataclass(frozen=True, slots=True)
class Chunk:
    """Some games or lines of one file: `items` are their numbers in the file, from 1, and their texts.

    The same files in the same order give the same chunks. `size` is its length in bytes of the file on disk, as far as
    that is known while reading ahead.
    """

    key: ChunkKey
    source: str
    form: Form
    items: tuple[tuple[int, str], ...]
    size: int

    @property
    def digest(self) -> str:
        """Hash of the whole chunk, by which the part of an earlier run is recognised."""
        content = "\0".join((self.source, self.form, *(f"{number} {text}" for number, text in self.items)))
        return hashlib.sha256(content.encode(errors="surrogatepass")).hexdigest()


class TextSource(io.TextIOWrapper):
    """The text of a file or of standard input, decompressed if the first bytes say gzip or zstandard. Lines end in a
    newline whatever system wrote them; bytes that are not UTF-8 are replaced, since a PGN may be Latin-1.

    Raises SourceError for a file that cannot be opened or read, or that is binary.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        try:
            file = _opened(name)
        except OSError as error:
            raise SourceError(f"{name}: {_why(error)}") from None
        self._data = _Decompressed(file, name)
        buffer = io.BufferedReader(self._data, _BLOCK)
        super().__init__(buffer, "utf-8-sig", "replace")
        self.head = buffer.peek(_BLOCK)
        if b"\0" in self.head or 100 * len(self.head.translate(None, _TEXT)) > len(self.head):
            raise SourceError(f"{name}: binary data, neither a PGN nor a list of FENs")

    @property
    def position(self) -> int:
        """Bytes of the file on disk that have been taken; the decompressor may be a little ahead."""
        return self._data.taken

    def readline(self, size: int = _LONGEST + 1, /) -> str:  # type: ignore[override]
        """The next line; empty after the last."""
        line = super().readline(size)
        if len(line) > _LONGEST:
            raise SourceError(f"{self._name}: a line of more than {_LONGEST >> 20} MiB is neither a game nor a FEN")
        return line


class _Decompressed(io.RawIOBase):
    """The text of a file as bytes. Raises SourceError where it cannot be read on, or is too long for its file."""

    def __init__(self, file: Any, name: str) -> None:
        self._name = name
        self._disk = file
        self._length = 0
        self._read: Callable[[int], bytes] = self._disk.read
        with self._named_errors():
            start = self._disk.peek(4)[:4]
        if start[:2] == _GZIP:
            # `read` would fill the whole block, and fail on damage that is still ahead.
            self._read = gzip.GzipFile(fileobj=self._disk).read1
        elif _ZSTD.match(start):
            require("audit", name)
            import pyarrow as pa

            self._read = pa.CompressedInputStream(pa.PythonFile(self._disk, "r"), "zstd").read

    @property
    def taken(self) -> int:
        """Bytes of the file that have been read; 0 for a pipe, which does not tell."""
        return int(self._disk.tell()) if self._disk.seekable() else 0

    def readable(self) -> bool:
        return True

    def close(self) -> None:
        super().close()
        self._disk.close()

    def readinto(self, buffer: Any) -> int:
        with self._named_errors():
            data = self._read(len(buffer))
        buffer[: len(data)] = data
        self._length += len(data)
        if self._length > _UNMEASURED and 0 < _RATIO * self.taken < self._length:
            raise SourceError(
                f"{self._name}: cannot be read to its end: it expands to more than {_RATIO} times its size, which "
                "no collection of games does"
            )
        return len(data)

    @contextmanager
    def _named_errors(self) -> Iterator[None]:
        try:
            yield
        except (OSError, EOFError, zlib.error) as error:
            raise SourceError(f"{self._name}: cannot be read to its end: {_why(error)}") from None


def _opened(name: str) -> Any:
    """A file's bytes, buffered."""
    if name == STDIN:
        return io.BufferedReader(cast(io.RawIOBase, sys.stdin.buffer))
    if not is_uri(name):
        return Path(name).open("rb")
    system, path = located(name)
    return io.BufferedReader(system.open_input_file(path), _REMOTE_BUFFER)


def _why(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)


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
                _form_and_lines(source, name, form)


def read(index: int, name: str, form: Form | None, limit: int | None = None) -> Iterator[Chunk]:
    """The chunks of a file, which is at `index` in its list, of at most `limit` items in all.

    Raises SourceError where it cannot be read on; the chunks before that are whole.
    """
    with TextSource(name) as source:
        form, lines = _form_and_lines(source, name, form)
        items = enumerate(_games(lines, name), 1) if form == "pgn" else _positions(lines)
        most = _MOST[form]
        part: list[tuple[int, str]] = []
        left = sys.maxsize if limit is None else limit
        number = start = 0

        def chunk() -> Chunk:
            return Chunk(ChunkKey(index, number), name, form, tuple(part), source.position - start)

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


def _form_and_lines(source: TextSource, name: str, form: Form | None) -> tuple[Form, Iterator[str]]:
    """The format of a file, and all its lines. Raises SourceError for a list of positions that is not ASCII."""
    head = []
    for line in source:
        head.append(line)
        if not line.isspace() or len(head) == _BLANK:
            break
    form = form or _form_of(name, "".join(head[-1:]))
    if form == "fen" and 10 * len(source.head.translate(None, _ASCII)) > len(source.head):
        raise SourceError(f"{name}: neither a PGN nor a list of FENs, which are plain ASCII")
    return form, chain(head, source)


def _form_of(name: str, text: str) -> Form:
    suffixes = [suffix for suffix in Path(name.partition("?")[0]).suffixes if suffix not in _COMPRESSED]
    if suffixes and suffixes[-1] == ".pgn":
        return "pgn"
    if suffixes and suffixes[-1] in _LINES:
        return "fen"
    return "pgn" if re.match(r"\s*(\[|1\.|\{|;)", text) else "fen"


def _positions(lines: Iterable[str]) -> Iterator[tuple[int, str]]:
    """The lines that are neither empty nor a comment, stripped, with their numbers."""
    for number, line in enumerate(map(str.strip, lines), 1):
        if line and not line.startswith("#"):
            yield number, line


def _games(lines: Iterable[str], name: str) -> Iterator[str]:
    """The texts of games. A header that follows moves, outside a comment, begins the next game."""
    game: list[str] = []
    length, moves, in_comment = 0, False, False
    for line in lines:
        if line.startswith("[") and not in_comment:
            if moves:
                yield "".join(game)
                game, length, moves = [], 0, False
        elif not line.isspace() and not line.startswith("%"):
            moves, in_comment = True, ends_in_comment(line, in_comment)
        game.append(line)
        length += len(line)
        if length > _LONGEST:
            raise SourceError(f"{name}: a game of more than {_LONGEST >> 20} MiB")
    if any(map(str.strip, game)):
        yield "".join(game)


#: Examples kept of what was skipped, and the characters of each.
EXAMPLES, _EXAMPLE = 20, 300


@dataclass(frozen=True, slots=True)
class Choice:
    """Which positions are audited, and how.

    `every` takes every Nth ply of a game from `first_ply` on; `elo` is for positions without ratings.
    """

    kinds: tuple[str, ...] = KINDS
    least: float = 1e-4
    first_ply: int = 0
    every: int = 1
    chess960: bool = False
    elo: Elo | None = None


@dataclass(frozen=True, slots=True)
class Sample:
    """A position, where it came from, and the move that was played there."""

    position: Position
    source: str
    item: int
    ply: int
    elo: Elo | None
    played: chess.Move | None


@dataclass(slots=True)
class Skipped:
    """Games and positions that were not audited: counts by reason, and a few examples."""

    reasons: Counter[str] = field(default_factory=Counter)
    examples: list[str] = field(default_factory=list)

    def add(self, reason: str, example: str) -> None:
        """Counts one; the example is shortened and made printable."""
        self.reasons[reason] += 1
        if len(self.examples) < EXAMPLES:
            shown = "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in example[:_EXAMPLE])
            self.examples.append(shown + ("…" if len(example) > _EXAMPLE else ""))


def samples(chunk: Chunk, choice: Choice, skipped: Skipped) -> Iterator[Sample]:
    """The positions of a chunk; finished games and what cannot be read are skipped and counted."""
    read = _game_samples if chunk.form == "pgn" else _line_samples
    for number, text in chunk.items:
        yield from read(text, chunk.source, number, choice, skipped)


def _game_samples(text: str, source: str, number: int, choice: Choice, skipped: Skipped) -> Iterator[Sample]:
    for game in read_games(io.StringIO(text)):  # one, or several without headers
        if not isinstance(game, Game):
            why = re.sub(r"game \d+", f"game {number}", str(game), count=1)
            skipped.add("game that cannot be played through", f"{source}: {why}")
            continue
        for index, ply in enumerate(game.plies):
            if index >= choice.first_ply and (index - choice.first_ply) % choice.every == 0:
                yield Sample(ply.position, source, number, index, ply.elo or choice.elo, ply.played)


def _line_samples(text: str, source: str, number: int, choice: Choice, skipped: Skipped) -> Iterator[Sample]:
    try:
        position = Position.read_line(text, chess960=choice.chess960)
    except MovemaskError as error:
        skipped.add("line that is no position", f"{source}: line {number}: {error}")
        return
    if not has_legal_move(position.board):
        skipped.add("finished game", f"{source}: line {number}: {position.fen} has no legal move")
        return
    yield Sample(position, source, number, position.board.ply(), choice.elo, None)
