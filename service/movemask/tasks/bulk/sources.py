"""Splits files of games and positions, plain or compressed, into chunks; only one is in memory.

Games of a PGN are split by their headers alone; python-chess parses them where they are evaluated.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from itertools import chain, islice
from pathlib import Path

from movemask.board.pgn import ends_in_comment
from movemask.errors import SourceError
from movemask.tasks.bulk.streams import TextSource

_COMPRESSED = (".zst", ".zstd", ".gz")
_LINES = (".epd", ".fen", ".fens", ".txt")


class Form(Enum):
    """The format of a file."""

    PGN = "pgn"  # games
    FEN = "fen"  # a FEN or EPD a line


@dataclass(frozen=True, slots=True)
class Chunk:
    """Some games or lines of one file: `items` are their texts, numbered from `first` in the file.

    `index` counts the chunks of all files; the same files in the same order give the same chunks. `size` is its length
    in bytes of the file on disk.
    """

    index: int
    source: str
    form: Form
    first: int
    items: tuple[str, ...]
    size: int

    @property
    def digest(self) -> str:
        """Hash of the whole chunk, by which the part of an earlier run is recognised."""
        content = "\0".join((self.source, self.form.value, str(self.first), *self.items))
        return hashlib.sha256(content.encode()).hexdigest()


def total_bytes(names: list[str]) -> int | None:
    """Bytes of all files on disk; None if one is standard input or a pipe."""
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
    form : the format of the files; detected by name and content if None
    games, lines : per chunk
    limit : largest number of games and lines of all files together

    Raises SourceError for a file that cannot be read.
    """
    index, left = 0, limit
    for name in names:
        with TextSource(name) as source:
            file_form, text = _open(source, name, form)
            items = _games(text) if file_form is Form.PGN else _positions(text)
            per_chunk = games if file_form is Form.PGN else lines
            number, start = 1, 0
            while (size := per_chunk if left is None else min(per_chunk, left)) > 0:
                part = tuple(islice(items, size))
                if not part:
                    break
                yield Chunk(index, name, file_form, number, part, source.position - start)
                index, number, start = index + 1, number + len(part), source.position
                left = None if left is None else left - len(part)


def check(names: list[str], form: Form | None) -> None:
    """Raises SourceError for a file whose beginning cannot be read, or is neither games nor positions. Pipes and the
    like can be read only once and are not checked."""
    for name in names:
        if Path(name).is_file():
            with TextSource(name) as source:
                _open(source, name, form)


def _games(lines: Iterator[str]) -> Iterator[str]:
    """The texts of a PGN's games. A header after moves, outside a comment, begins the next game."""
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
    """The lines, stripped. Comments become empty lines, so that line numbers stay right."""
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


def _open(source: TextSource, name: str, form: Form | None) -> tuple[Form, Iterator[str]]:
    """The format of a file, and all its lines. Raises SourceError for a list of positions that is not ASCII."""
    lines = iter(source)
    head = []
    for line in lines:
        head.append(line)
        if line.strip():
            break
    form = form or _form_of(name, head[-1].strip() if head else "")
    if form is Form.FEN and 10 * len(source.head.translate(None, bytes(range(0x80)))) > len(source.head):
        raise SourceError(f"{name}: neither a PGN nor a list of FENs, which are plain ASCII")
    return form, chain(head, lines)
