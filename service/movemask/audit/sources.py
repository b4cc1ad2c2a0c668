"""Splits files of games and positions, plain or compressed, into chunks; only one is in memory.

A large file is read in *splits* (byte ranges of a plain file, whole frames of a zstandard one), so that several readers
can share it; a small one is a single split. A chunk never has items of two splits, so the chunks are the same however
many readers there are. Games of a PGN are split by their headers alone; python-chess parses them where they are
evaluated.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from movemask.audit.files import is_uri, open_binary, size_of
from movemask.audit.frames import frame_starts, is_zstd
from movemask.audit.games import STATES, State, games
from movemask.audit.streams import STDIN, TextSource
from movemask.errors import SourceError

_COMPRESSED = (".zst", ".zstd", ".gz")
_LINES = (".epd", ".fen", ".fens", ".txt")


class Form(Enum):
    """The format of a file."""

    PGN = "pgn"  # games
    FEN = "fen"  # a FEN or EPD a line


class Key(NamedTuple):
    """Identifies a chunk: the file's place in the list, its split, and the chunk's place in the split."""

    file: int
    split: int
    number: int


@dataclass(frozen=True, slots=True)
class Chunk:
    """Some games or lines of one file: `items` are their texts, numbered from `first` in the file.

    The same files in the same order give the same chunks. `size` is its length in bytes of the file on disk.
    """

    key: Key
    source: str
    form: Form
    first: int
    items: tuple[str, ...]
    size: int

    @property
    def digest(self) -> str:
        """Hash of the whole chunk, by which the part of an earlier run is recognised."""
        content = "\0".join((self.source, self.form.value, str(self.first), *self.items))
        return hashlib.sha256(content.encode(errors="surrogatepass")).hexdigest()


@dataclass(frozen=True, slots=True)
class Sizes:
    """How files are cut: games and lines per chunk, and bytes on disk per split of a large file, at least."""

    games: int = 40
    lines: int = 2_000
    split: int = 64 << 20


@dataclass(frozen=True, slots=True)
class Source:
    """A file: its place in the list, path or URI, format, and the offsets of its splits; more in `TextSource`."""

    index: int
    name: str
    form: Form
    starts: tuple[int, ...] = (0,)


_BEGINNING = State()


@dataclass(frozen=True, slots=True)
class Entry:
    """Where reading begins: at a split, of which the first line may be `partial`; `state` is that of the games before,
    `item` the number of the first item that begins in the split."""

    split: int = 0
    partial: bool = False
    state: State = _BEGINNING
    item: int = 1


def total_bytes(names: Sequence[str]) -> int | None:
    """Bytes of all files on disk; None if one is standard input, a pipe or not on this machine."""
    total = 0
    for name in names:
        size = None if name == STDIN or is_uri(name) else size_of(name)
        if size is None:
            return None
        total += size
    return total


def survey(index: int, name: str, form: Form | None, sizes: Sizes) -> Source:
    """The format and the splits of a file, by its beginning and its frames. Raises SourceError for one whose beginning
    cannot be read, or is neither games nor positions."""
    with TextSource(name) as source:
        found, _ = _form_and_lines(source, name, form)
    try:
        return Source(index, name, found, _splits(name, sizes.split))
    except OSError as error:
        raise SourceError(f"{name}: {error.strerror or error}") from None


def check(names: Sequence[str], form: Form | None) -> None:
    """Raises SourceError for a file whose beginning cannot be read, or is neither games nor positions. Pipes and the
    like can be read only once and are not checked."""
    for name in names:
        if is_uri(name) or Path(name).is_file():
            with TextSource(name) as source:
                _form_and_lines(source, name, form)


def _splits(name: str, least: int) -> tuple[int, ...]:
    """The offsets of a file's splits; one for a file that can only be read from its beginning."""
    size = size_of(name)
    if size is None or size <= least:
        return (0,)
    with open_binary(name) as file:
        head = bytes(file.read(4))
        if is_zstd(head):
            starts = [0]
            for start in frame_starts(file, size):
                if start - starts[-1] >= least:
                    starts.append(start)
            return tuple(starts)
    return (0,) if head[:2] == b"\x1f\x8b" else tuple(range(0, size, least))


def read(index: int, name: str, form: Form | None, sizes: Sizes, limit: int | None = None) -> Iterator[Chunk]:
    """The chunks of a file, of at most `limit` items in all; what cannot be sought in, such as a pipe, is read once.

    Raises SourceError where it cannot be read on; the chunks before that are whole.
    """
    if name != STDIN and size_of_or_none(name) is not None:
        yield from chunks(survey(index, name, form, sizes), sizes, limit=limit)
        return
    with TextSource(name) as source:
        found, lines = _form_and_lines(source, name, form)
        yield from _chunked(Source(index, name, found), source, lines, Entry(), sizes, limit)


def size_of_or_none(name: str) -> int | None:
    """Bytes of a file. Raises SourceError if there is none."""
    try:
        return size_of(name)
    except OSError as error:
        raise SourceError(f"{name}: {error.strerror or error}") from None


def chunks(source: Source, sizes: Sizes, entry: Entry | None = None, *, limit: int | None = None) -> Iterator[Chunk]:
    """The chunks of a file; of one split, if an `entry` is given. Raises SourceError where it cannot be read on."""
    at = entry or Entry()
    with TextSource(source.name, source.starts, at.split, partial=at.partial) as text:
        last = None if entry is None else entry.split
        yield from _chunked(source, text, text.lines(), at, sizes, limit, last)


def _chunked(
    source: Source,
    text: TextSource,
    lines: Iterable[tuple[int, str]],
    entry: Entry,
    sizes: Sizes,
    limit: int | None,
    last: int | None = None,
) -> Iterator[Chunk]:
    """The chunks of these lines, through split `last`."""
    if limit == 0:
        return
    pgn = source.form is Form.PGN
    items = games(lines, entry.state, begun=not entry.split) if pgn else _positions(lines)
    most = sizes.games if pgn else sizes.lines
    split, number, first, start = entry.split, 0, entry.item, 0
    part: list[str] = []
    left = limit

    def chunk() -> Chunk:
        nonlocal number, first, start, part
        end = text.position
        found = Chunk(Key(source.index, split, number), source.name, source.form, first, tuple(part), end - start)
        number, first, start, part = number + 1, first + len(part), end, []
        return found

    for item_split, item in items:
        if item_split != split:
            if part:
                yield chunk()
            if last is not None and item_split > last:
                return
            split, number = item_split, 0
        part.append(item)
        left = None if left is None else left - 1
        if len(part) == most or left == 0:
            yield chunk()
        if left == 0:
            return
    if part:
        yield chunk()


@dataclass(frozen=True, slots=True)
class Passage:
    """What a split does to each way of entering it: by (partial, state), how many items begin in it, and the partial
    and state for the next one. `error` tells why it cannot be read to its end."""

    ways: dict[tuple[bool, State], tuple[int, bool, State]]
    error: str = ""


def passage(source: Source, split: int) -> Passage:
    """The passage of a split, read from itself alone: whether it is entered inside a comment, or before a game's moves,
    is known only when those before it have been read, so all ways are followed until they meet."""
    ways = {}
    try:
        for partial in (False, True):
            with TextSource(source.name, source.starts, split, partial=partial) as text:
                followed = {state: (0, state) for state in (STATES if source.form is Form.PGN else (State(),))}
                for at, line in text.lines():
                    if at != split:
                        break
                    followed = _followed(followed, line, source.form)
                entered_inside = split + 1 not in text.clean
            for state, (items, after) in followed.items():
                first = 1 if source.form is Form.PGN and not split else 0  # the first game begins with the file
                ways[partial, state] = (items + first, entered_inside, after)
            if not split:
                break
    except SourceError as error:
        return Passage(ways, str(error))
    return Passage(ways)


def _followed(ways: dict[State, tuple[int, State]], line: str, form: Form) -> dict[State, tuple[int, State]]:
    if form is Form.FEN:
        return {start: (items + 1, state) for start, (items, state) in ways.items()}
    after = {state: state.after(line) for state in {state for _, state in ways.values()}}
    return {start: (items + after[state][0], after[state][1]) for start, (items, state) in ways.items()}


def entries(source: Source, passages: Iterable[Passage]) -> Iterator[tuple[Entry, int | None]]:
    """Where each split is entered, and the number of its items: None, and no further splits, at the first that cannot
    be read to its end."""
    partial, state, item = False, State(), 1
    for split, one in enumerate(passages):
        entry = Entry(split, partial, state, item)
        if one.error:
            yield entry, None
            return
        count, partial, state = one.ways[partial, state]
        yield entry, count
        item += count


def _positions(lines: Iterable[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    """The lines, stripped. Comments become empty lines, so that line numbers stay right."""
    for split, line in lines:
        text = line.strip()
        yield split, "" if text.startswith("#") else text


def _form_of(name: str, first_line: str) -> Form:
    suffixes = [suffix for suffix in Path(name.partition("?")[0]).suffixes if suffix not in _COMPRESSED]
    if suffixes and suffixes[-1] == ".pgn":
        return Form.PGN
    if suffixes and suffixes[-1] in _LINES:
        return Form.FEN
    return Form.PGN if re.match(r"\[|1\.|\{|;", first_line) else Form.FEN


def _form_and_lines(source: TextSource, name: str, form: Form | None) -> tuple[Form, Iterator[tuple[int, str]]]:
    """The format of a file, and all its lines. Raises SourceError for a list of positions that is not ASCII."""
    lines = source.lines()
    head = []
    for split, line in lines:
        head.append((split, line))
        if line.strip():
            break
    form = form or _form_of(name, head[-1][1].strip() if head else "")
    if form is Form.FEN and 10 * len(source.head.translate(None, bytes(range(0x80)))) > len(source.head):
        raise SourceError(f"{name}: neither a PGN nor a list of FENs, which are plain ASCII")
    return form, chain(head, lines)
