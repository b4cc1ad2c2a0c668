"""Files of games and positions, plain or compressed, cut into chunks without holding more than one.

A game of a PGN is found by its headers alone; it is read by python-chess where it is evaluated.
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
    """What a file holds."""

    PGN = "pgn"  # games
    FEN = "fen"  # a FEN or EPD a line


@dataclass(frozen=True, slots=True)
class Chunk:
    """Some games or lines of one file: `items` are their texts, numbered from `first` in the file.

    `index` counts the chunks of all files; the same files in the same order give the same chunks. `size` is how many
    bytes of the file, as it lies on the disk, it takes up.
    """

    index: int
    source: str
    form: Form
    first: int
    items: tuple[str, ...]
    size: int

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
    index, left = 0, limit
    for name in names:
        with TextSource(name) as source:
            found, text = _begun(source, name, form)
            items = _games(text) if found is Form.PGN else _positions(text)
            most = games if found is Form.PGN else lines
            number, before = 1, 0
            while (wanted := most if left is None else min(most, left)) > 0:
                part = tuple(islice(items, wanted))
                if not part:
                    break
                yield Chunk(index, name, found, number, part, source.position - before)
                index, number, before = index + 1, number + len(part), source.position
                left = None if left is None else left - len(part)


def check(names: list[str], form: Form | None) -> None:
    """Raises SourceError for a file that cannot be read or holds neither games nor positions, by its beginning. What is
    no plain file, such as a pipe, can be read once and is left alone."""
    for name in names:
        if Path(name).is_file():
            with TextSource(name) as source:
                _begun(source, name, form)


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


def _begun(source: TextSource, name: str, form: Form | None) -> tuple[Form, Iterator[str]]:
    """What a file holds, and all its lines. Raises SourceError for a list of positions that is no ASCII."""
    lines = iter(source)
    skipped = []
    for line in lines:
        skipped.append(line)
        if line.strip():
            break
    found = form or _form_of(name, skipped[-1].strip() if skipped else "")
    if found is Form.FEN and 10 * len(source.head.translate(None, bytes(range(0x80)))) > len(source.head):
        raise SourceError(f"{name}: neither a PGN nor a list of FENs, which are plain ASCII")
    return found, chain(skipped, lines)
