"""Reads files of games and positions in chunks, one chunk in memory at a time, and finds their positions.

A PGN is split into games here. python-chess parses a game where it is evaluated.
"""

from __future__ import annotations

import hashlib
import io
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Literal, NamedTuple

import chess

from movemask.audit.files import is_uri, locate
from movemask.board.fen import PLACEMENT
from movemask.board.moves import has_legal_move
from movemask.board.pgn import Game, no_game, outside, read_game_text
from movemask.board.position import Elo, Position
from movemask.board.split import GameText, begins_with_tag, split
from movemask.board.textfile import STDIN, TextSource
from movemask.errors import ASK_AS_CHESS960, LimitExceeded, MovemaskError, SourceError
from movemask.leakage.kinds import KINDS

_COMPRESSED = (".zst", ".zstd", ".gz")

#: Endings that decide a file's format. For other endings, the first lines decide.
_NAMED: dict[str, Literal["pgn", "fen"]] = {".pgn": "pgn", ".fen": "fen", ".epd": "fen"}

#: Bytes fetched at once from object storage.
_REMOTE_BUFFER = 8 << 20

#: Most lines and characters from which a file's format is guessed, if no earlier line decides.
_HEAD_LINES, _HEAD = 1_000, 1 << 16

#: Most games or lines of a chunk.
_MOST = {"pgn": 40, "fen": 2_000}

#: The format of a file: games, or one FEN or EPD per line.
Form = Literal["pgn", "fen"]


class ChunkKey(NamedTuple):
    """Identifies a chunk: the file's place in the list, and the chunk's place in the file."""

    file: int
    number: int


@dataclass(frozen=True, slots=True)
class Chunk:
    """Some games or lines of one file. The same files in the same order give the same chunks.

    items : number in the file, from 1, and text. Text outside games has the number of the game before it
    size : bytes of the chunk on disk, as far as reading ahead shows them
    """

    key: ChunkKey
    source: str
    form: Form
    items: tuple[tuple[int, str | GameText], ...]
    size: int

    @property
    def count(self) -> int:
        """Number of games or lines."""
        return sum(map(_counts, self.items))

    @property
    def digest(self) -> str:
        """Hash of the whole chunk. It identifies the part of an earlier run."""
        texts = (
            (number, item.text if isinstance(item, GameText) else item)
            for number, item in self.items
        )
        content = "\0".join(
            (self.source, self.form, *(f"{number} {text}" for number, text in texts))
        )
        return hashlib.sha256(content.encode(errors="surrogatepass")).hexdigest()


def _counts(item: tuple[int, str | GameText]) -> bool:
    """Returns whether an item is a game or a line, not text outside games."""
    return isinstance(item[1], str) or item[1].role == "game"


def text_source(name: str) -> TextSource:
    """Returns the text of a file or URI. Raises SourceError."""
    if not is_uri(name):
        return TextSource(name)
    try:
        system, path = locate(name)
        file = io.BufferedReader(system.open_input_file(path), _REMOTE_BUFFER)
    except OSError as error:
        raise SourceError(f"{name}: {getattr(error, 'strerror', None) or error}") from None
    return TextSource(name, file)


def total_bytes(names: Sequence[str]) -> int | None:
    """Bytes of all files on disk; None if one is standard input, a pipe or not on this machine."""
    files = [
        Path(name) for name in names if name != STDIN and not is_uri(name) and Path(name).is_file()
    ]
    return sum(file.stat().st_size for file in files) if len(files) == len(names) else None


def check(names: Sequence[str], form: Form | None) -> None:
    """Raises SourceError for a file whose beginning cannot be read, or is neither games nor positions.

    Pipes and standard input are not checked, because they can be read only once.
    """
    for name in names:
        if is_uri(name) or Path(name).is_file():
            with text_source(name) as source:
                _form_and_lines(source, form)


def read(index: int, name: str, form: Form | None, limit: int | None = None) -> Iterator[Chunk]:
    """Yields the chunks of a file, with at most `limit` items together. `index` is the file's place in its list.

    Raises SourceError where the file cannot be read further; the chunks before that are whole.
    """
    with text_source(name) as source:
        form, lines = _form_and_lines(source, form)
        all_items: Iterable[tuple[int, str | GameText]] = (
            _games(lines, name) if form == "pgn" else _positions(lines)
        )
        most = _MOST[form]
        items: list[tuple[int, str | GameText]] = []
        left = sys.maxsize if limit is None else limit
        number = start = 0

        def chunk() -> Chunk:
            return Chunk(ChunkKey(index, number), name, form, tuple(items), source.position - start)

        for item in all_items if left else ():
            items.append(item)
            left -= _counts(item)
            if len(items) == most or not left:
                yield chunk()
                items, number, start = [], number + 1, source.position
            if not left:
                return
        if items:
            yield chunk()


def _form_and_lines(source: TextSource, form: Form | None) -> tuple[Form, Iterator[str]]:
    """Returns the format of a file, and all its lines. Raises SourceError for a list of positions that is not ASCII."""
    suffixes = [
        suffix
        for suffix in Path(source.name.partition("?")[0]).suffixes
        if suffix.lower() not in _COMPRESSED
    ]
    form = form or _NAMED.get(suffixes[-1].lower() if suffixes else "")
    head: list[str] = []
    guessed: Form | None = None
    size = 0
    for line in source:
        head.append(line)
        size += len(line)
        guessed = "pgn" if begins_with_tag(line) else "fen" if PLACEMENT.search(line) else None
        if guessed or len(head) == _HEAD_LINES or size > _HEAD or (form and not line.isspace()):
            break
    form = (
        form
        or guessed
        or ("pgn" if any(text.role == "game" for text in split(head, None)) else "fen")
    )
    text = "".join(head)
    if form == "fen" and 10 * len(text.encode("ascii", "ignore")) < 9 * len(text):
        raise SourceError(f"{source.name}: neither a PGN nor a list of FENs, which are plain ASCII")
    return form, chain(head, source)


def _positions(lines: Iterable[str]) -> Iterator[tuple[int, str]]:
    """Yields the stripped lines with their numbers, without empty lines and comments."""
    for number, line in enumerate(map(str.strip, lines), 1):
        if line and not line.startswith("#"):
            yield number, line


def _games(lines: Iterable[str], name: str) -> Iterator[tuple[int, GameText]]:
    """Yields the games with their numbers, and text between them; or the text of a file without games."""
    number = 0
    try:
        for text in split(lines):
            number += text.role == "game"
            if text.role == "game" or outside(text) or not number:
                yield number, text
    except LimitExceeded as error:
        raise SourceError(f"{name}: {error}") from None


#: Most examples of skipped items by reason, and most characters of an example.
EXAMPLES, _EXAMPLE = 20, 300


@dataclass(frozen=True, slots=True)
class Choice:
    """Which positions are audited, and how.

    every : takes one ply in N of a game, from `first_ply` on, White's and Black's in turn
    elo : ratings for positions without ratings
    """

    kinds: tuple[str, ...] = KINDS
    threshold: float = 1e-4
    first_ply: int = 0
    every: int = 1
    chess960: bool = False
    elo: Elo | None = None

    def takes(self, game: int, ply: int) -> bool:
        """Returns whether a ply of a game, which is numbered from 1, is audited.

        Of each N plies the first or the second is taken, so that the sides take turns: within a game, and from game to
        game for games of fewer than N plies.
        """
        if ply < self.first_ply:
            return False
        block, place = divmod(ply - self.first_ply, self.every)
        second = (
            game + 1 + (block if self.every % 2 == 0 else 0)
        ) % 2  # an odd N alternates by itself
        return place == min(second, self.every - 1)


@dataclass(frozen=True, slots=True)
class Sample:
    """A position, its place in the files, and the move that was played there."""

    position: Position
    source: str
    item: int
    ply: int
    elo: Elo | None
    played: chess.Move | None


@dataclass(slots=True)
class Skipped:
    """Games and positions that were not audited: counts by reason, and a few examples of each reason.

    examples : pairs of a reason and an example, in the order of the files
    """

    reasons: Counter[str] = field(default_factory=Counter)
    examples: list[tuple[str, str]] = field(default_factory=list)

    def examples_of(self, reason: str) -> list[str]:
        """Returns the examples of a reason."""
        return [example for its_reason, example in self.examples if its_reason == reason]

    def add(self, reason: str, example: str) -> None:
        """Counts one item. The example is shortened and made printable."""
        self.reasons[reason] += 1
        if self.reasons[reason] <= EXAMPLES:
            printable = "".join(
                char if char.isprintable() else "\N{REPLACEMENT CHARACTER}"
                for char in example[:_EXAMPLE]
            )
            self.examples.append((reason, printable + ("…" if len(example) > _EXAMPLE else "")))


def samples(chunk: Chunk, choice: Choice, skipped: Skipped) -> Iterator[Sample]:
    """Yields the positions of a chunk. Finished games and unreadable items are skipped and counted."""
    for number, item in chunk.items:
        if isinstance(item, str):
            yield from _line_samples(item, chunk.source, number, choice, skipped)
        elif item.role == "game":
            yield from _game_samples(item, chunk.source, number, choice, skipped)
        elif (error := outside(item)) is not None:
            skipped.add("text outside games", f"{chunk.source}: {error}")
        elif item.role == "trailing":
            skipped.add("file without games", f"{chunk.source}: {no_game(item)}")


def _game_samples(
    text: GameText, source: str, number: int, choice: Choice, skipped: Skipped
) -> Iterator[Sample]:
    game = read_game_text(text, number)
    if not isinstance(game, Game):
        skipped.add("game that cannot be played through", f"{source}: {game}")
        return
    for note in game.repairs:
        skipped.add("part of a game that does not fit", f"{source}: game {number}: {note}")
    for index, ply in enumerate(game.plies):
        if choice.takes(number, index):
            yield Sample(ply.position, source, number, index, ply.elo or choice.elo, ply.played)


def _line_samples(
    text: str, source: str, number: int, choice: Choice, skipped: Skipped
) -> Iterator[Sample]:
    try:
        position = Position.read_line(text, chess960=choice.chess960)
    except MovemaskError as error:
        reason = str(error).replace(ASK_AS_CHESS960, "use --chess960")
        skipped.add("line that is not a position", f"{source}: line {number}: {reason}")
        return
    if not has_legal_move(position.board):
        skipped.add("finished game", f"{source}: line {number}: {position.fen} has no legal move")
        return
    yield Sample(position, source, number, position.board.ply(), choice.elo, None)
